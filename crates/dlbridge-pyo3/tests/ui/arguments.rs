//! Arguments and results that do not fit their functions.

#![allow(dead_code)]

mod promise {
    //! References to the caller's memory need a promise that it does not change.

    use dlbridge_pyo3::{Contiguous, PyTensorOf, Result, StableArguments, Writable};
    use ndarray::ArrayView1;

    struct Stable;

    unsafe impl StableArguments for Stable {}

    fn no_marker(x: PyTensorOf<f64, 1>) -> Result<f64> {
        Ok(x.as_slice()?.iter().sum()) //~ E0277
    }

    fn another_marker(x: PyTensorOf<f64, 1, Contiguous>) -> Result<f64> {
        Ok(x.as_slice()?.iter().sum()) //~ E0277
    }

    fn marker_behind(x: PyTensorOf<f64, 1, (Contiguous, Stable)>) -> Result<f64> {
        Ok(x.as_slice()?.iter().sum()) //~ E0277
    }

    fn array(x: PyTensorOf<f64, 1>) -> Result<f64> {
        Ok(x.as_array::<ArrayView1<f64>>()?.sum()) //~ E0277
    }

    fn mutable(mut x: PyTensorOf<f64, 1, Writable>) -> Result<()> {
        x.as_slice_mut()?.fill(0.0); //~ E0277
        Ok(())
    }

    fn booleans(x: PyTensorOf<bool, 1>) -> Result<usize> {
        Ok(x.as_bools()?.len()) //~ E0277
    }
}

mod metadata {
    //! A constraint is checked before the memory is borrowed, and so sees no element.

    use dlbridge_pyo3::{Constraint, Metadata};

    struct Positive;

    impl Constraint for Positive {
        fn is_met(found: Metadata<'_>) -> bool {
            found.view::<f64>().is_ok() //~ E0599
        }

        fn name(_: &mut String) {}
    }
}

mod half {
    //! `half::f16` is an element with the feature `half-2` of dlbridge.

    use dlbridge_pyo3::PyTensorOf;
    use pyo3::prelude::*;

    #[pyfunction]
    fn length(x: PyTensorOf<half::f16, 1>) -> usize { //~ E0277
        x.len()
    }
}

mod result {
    //! A function that uses `?` on errors of tensors returns `dlbridge_pyo3::Result`.

    use dlbridge_pyo3::PyTensor;
    use pyo3::prelude::*;

    #[pyfunction]
    fn sum(x: PyTensor) -> PyResult<f64> {
        Ok(x.view::<f64>()?.iter().sum()) //~ E0277
    }
}

mod not_a_tensor {
    //! Rows of rows, and arrays of a crate without its feature, do not become tensors.

    use dlbridge_pyo3::{CallerArray, PyTensor, Result};
    use pyo3::prelude::*;

    struct Array(Vec<f64>);

    fn rows(rows: Vec<Vec<f64>>) -> PyTensor {
        PyTensor::new(rows) //~ E0277
    }

    fn array<'py>(x: CallerArray<'py, f64>) -> Result<Bound<'py, PyAny>> {
        x.to_caller(Array(vec![1.0])) //~ E0277
    }
}

mod not_a_view {
    //! `as_array` makes views to read, by the feature of the view's crate.

    use dlbridge_pyo3::{PyTensorOf, Result, StableArguments, Writable};
    use ndarray::ArrayViewMut1;

    struct Stable;

    unsafe impl StableArguments for Stable {}

    fn mutable(x: PyTensorOf<f64, 1, (Stable, Writable)>) -> Result<()> {
        x.as_array::<ArrayViewMut1<f64>>()?.fill(0.0); //~ E0277
        Ok(())
    }

    fn booleans(x: PyTensorOf<bool, 1, Stable>) -> Result<usize> {
        Ok(x.as_slice()?.len()) //~ E0277
    }
}

mod helper {
    //! A helper for several dtypes says that they are elements.

    use dlbridge_pyo3::PyTensorOf;

    fn first<T, const N: usize, C>(x: &PyTensorOf<T, N, C>) {
        x.view(); //~ E0277
    }
}

mod macros {
    //! A list of types, and extents.

    use dlbridge::match_dtype;
    use dlbridge_pyo3::{PyTensor, PyTensorOf, Result, Shape};

    fn sum(x: PyTensor) -> Result<usize> {
        Ok(match_dtype!(x.dtype(), T => x.view::<T>()?.len())?) //~ error
    }

    fn pixels(x: PyTensorOf<u8, 3, Shape![None, 3]>) -> usize { //~ error
        x.len()
    }

    fn negative(x: PyTensorOf<u8, 3, Shape![-1, 3]>) -> usize { //~ error
        x.len()
    }
}

mod view {
    //! The elements of a view are read and written by value.

    use dlbridge_pyo3::{PyTensorMut, PyTensorOf};

    fn indexed(x: PyTensorOf<f64, 2>) -> f64 {
        x.view()[[1, 2]] //~ E0277
    }

    fn written(mut x: PyTensorMut<f64, 1>) {
        x.view_mut()[1] = 0.0; //~ E0277
    }
}

mod not_an_argument {
    //! An argument is a `PyTensor`, by value.

    use dlbridge::Tensor;
    use dlbridge_pyo3::PyTensorOf;
    use pyo3::prelude::*;

    #[pyfunction]
    fn tensor(x: Tensor) -> usize { //~ E0277
        x.len()
    }

    #[pyfunction]
    fn reference(x: &PyTensorOf<f64>) -> usize { //~ E0277
        x.len()
    }
}

mod by_analogy {
    //! The methods of an array are on the argument's view. `rows_mut` returns a `Result`, because rows may overlap.

    use dlbridge_pyo3::{PyTensorMut, PyTensorOf};

    fn sum(x: PyTensorOf<f64>) -> f64 {
        x.iter().sum() //~ E0599
    }

    fn first(x: PyTensorOf<f64, 1>) -> f64 {
        x[0] //~ E0608
    }

    fn rows(mut x: PyTensorMut<f64, 2>) {
        for mut row in x.view_mut().rows_mut() {
            row.fill(0.0); //~ E0599
        }
    }
}

fn main() {}
