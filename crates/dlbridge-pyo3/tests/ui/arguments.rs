//! 57 programs, 35 with a cure in the message: arguments and results that do not fit their functions.
//! One more, `result::sum`, compiles now.

#![allow(dead_code)]

mod promise {
    //! References to the caller's memory need a promise that it does not change.

    use dlbridge_pyo3::{Contiguous, PyTensorOf, Result, StableArguments, Writable};
    use ndarray::ArrayView1;

    struct Stable;

    unsafe impl StableArguments for Stable {}

    fn no_marker(x: PyTensorOf<f64, 1>) -> Result<f64> {
        Ok(x.as_slice()?.iter().sum()) //~ E0277 cure: unsafe impl dlbridge_pyo3::StableArguments for Stable {}
    }

    fn another_marker(x: PyTensorOf<f64, 1, Contiguous>) -> Result<f64> {
        Ok(x.as_slice()?.iter().sum()) //~ E0277 cure: unsafe impl dlbridge_pyo3::StableArguments for Stable {}
    }

    fn marker_behind(x: PyTensorOf<f64, 1, (Contiguous, Stable)>) -> Result<f64> {
        Ok(x.as_slice()?.iter().sum()) //~ E0277 cure: the marker is the first in a tuple
    }

    fn array(x: PyTensorOf<f64, 1>) -> Result<f64> {
        Ok(x.as_array::<ArrayView1<f64>>()?.sum()) //~ E0277 cure: unsafe impl dlbridge_pyo3::StableArguments for Stable {}
    }

    fn mutable(mut x: PyTensorOf<f64, 1, Writable>) -> Result<()> {
        x.as_slice_mut()?.fill(0.0); //~ E0277 cure: (Stable, Writable)
        Ok(())
    }

    fn booleans(x: PyTensorOf<bool, 1>) -> Result<usize> {
        Ok(x.as_bools()?.len()) //~ E0277 cure: unsafe impl dlbridge_pyo3::StableArguments for Stable {}
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
    fn length(x: PyTensorOf<half::f16, 1>) -> usize { //~ E0277 cure: half-2
        x.len()
    }
}

mod result {
    //! The error of `PyTensor::view` converts in a `PyResult`.

    use dlbridge_pyo3::PyTensor;
    use pyo3::prelude::*;

    #[pyfunction]
    fn sum(x: PyTensor) -> PyResult<f64> {
        Ok(x.view::<f64>()?.iter().sum())
    }
}

mod not_a_tensor {
    //! Rows of rows, and arrays of a crate without its feature, do not become tensors.

    use dlbridge_pyo3::{CallerArray, PyTensor, Result};
    use pyo3::prelude::*;

    struct Array(Vec<f64>);

    fn rows(rows: Vec<Vec<f64>>) -> PyTensor {
        PyTensor::new(rows) //~ E0277 cure: Tensor::builder(rows.concat())
    }

    fn array<'py>(x: CallerArray<'py, f64>) -> Result<Bound<'py, PyAny>> {
        x.to_caller(Array(vec![1.0])) //~ E0277 cure: need the feature of `dlbridge`
    }
}

mod not_a_view {
    //! `as_array` makes views to read, by the feature of the view's crate.

    use dlbridge_pyo3::{PyTensorOf, Result, StableArguments, Writable};
    use ndarray::ArrayViewMut1;

    struct Stable;

    unsafe impl StableArguments for Stable {}

    fn mutable(x: PyTensorOf<f64, 1, (Stable, Writable)>) -> Result<()> {
        x.as_array::<ArrayViewMut1<f64>>()?.fill(0.0); //~ E0277 cure: as_array_mut()
        Ok(())
    }

    fn booleans(x: PyTensorOf<bool, 1, Stable>) -> Result<usize> {
        Ok(x.as_slice()?.len()) //~ E0277 cure: as_bools()
    }
}

mod helper {
    //! A helper for several dtypes says that they are elements.

    use dlbridge_pyo3::PyTensorOf;

    fn first<T, const N: usize, C>(x: &PyTensorOf<T, N, C>) {
        x.view(); //~ E0277 cure: : dlbridge::Element
    }
}

mod macros {
    //! A list of types, and extents.

    use dlbridge::match_dtype;
    use dlbridge_pyo3::{PyTensor, PyTensorOf, Result, Shape};

    fn sum(x: PyTensor) -> Result<usize> {
        Ok(match_dtype!(x.dtype(), T => x.view::<T>()?.len())?) //~ error cure: T: f32 | f64 => body
    }

    fn pixels(x: PyTensorOf<u8, 3, Shape![None, 3]>) -> usize { //~ error cure: Shape![_, _, 3]
        x.len()
    }

    fn negative(x: PyTensorOf<u8, 3, Shape![-1, 3]>) -> usize { //~ error cure: Shape![_, _, 3]
        x.len()
    }
}

mod view {
    //! The elements of a view are read and written by value.

    use dlbridge_pyo3::{PyTensorMut, PyTensorOf};

    fn indexed(x: PyTensorOf<f64, 2>) -> f64 {
        x.view()[[1, 2]] //~ E0277 cure: view.get([i, j])
    }

    fn written(mut x: PyTensorMut<f64, 1>) {
        x.view_mut()[1] = 0.0; //~ E0277 cure: view.set([i, j], value)?
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
    //! What arrays of NumPy and ndarray have. `rows_mut` returns a `Result`, because rows may overlap.

    use dlbridge_pyo3::{PyTensorMut, PyTensorOf, Result};

    fn first(x: PyTensorOf<f64, 1>) -> f64 {
        x[0] //~ E0277 cure: view.get([i, j])
    }

    fn rows(mut x: PyTensorMut<f64, 2>) {
        for mut row in x.view_mut().rows_mut() {
            row.fill(0.0); //~ E0599
        }
    }

    fn doubled(mut x: PyTensorMut<f64>) {
        x.view_mut().iter_mut().for_each(|value| *value *= 2.0); //~ E0277 cure: view.map_inplace(...)
    }

    fn cleared(x: PyTensorOf<f64>) {
        x.view().fill(0.0); //~ E0599
    }

    fn total(x: PyTensorOf<f64>) -> f64 {
        x.view().sum() //~ E0599 cure: into_iter()
    }

    fn at(x: PyTensorOf<f64, 1>) -> Option<f64> {
        x.view().get(0) //~ E0277 cure: `[i]`
    }

    fn added(x: PyTensorOf<f64>, y: PyTensorOf<f64>) {
        let _ = x.view() + y.view(); //~ E0369
    }

    fn part(x: PyTensorOf<f64, 1>) -> Vec<f64> {
        x.view()[1..3].to_vec() //~ E0277 E0599 cure: view.slice(axis, start..end)?
    }

    fn swapped(x: PyTensorOf<f64, 2>) -> Result<Vec<f64>> {
        Ok(x.view().permute(&[1, 0])?.to_vec()) //~ E0599 cure: use dlbridge::Parts;
    }
}

mod bounds {
    //! Functions that are generic over the elements.

    use dlbridge::Element;
    use dlbridge_pyo3::{PyTensor, PyTensorOf, Result};

    fn sum<T: Element>(x: PyTensorOf<T>) -> T {
        x.view().iter().sum() //~ E0277 cure: + std::iter::Sum
    }

    fn len<T>(x: &PyTensor) -> Result<usize> {
        Ok(x.view::<T>()?.len()) //~ E0277 E0599 cure: : dlbridge::Element
    }
}

mod elements {
    //! Elements of two types.

    use dlbridge_pyo3::{PyTensorMut, PyTensorOf, Result};

    fn add(mut x: PyTensorMut<f32>, y: PyTensorOf<f64>) -> Result<()> {
        Ok(x.view_mut().zip_inplace(&y.view(), |x, y| x + y)?) //~ E0277 E0308
    }

    fn zero(mut x: PyTensorMut<f64>) {
        x.view_mut().fill(0); //~ E0308 cure: .0
    }

    fn narrow(x: PyTensorOf<f64>) -> usize {
        fn len(x: &PyTensorOf<f32>) -> usize {
            x.len()
        }
        len(&x) //~ E0308
    }
}

mod written {
    //! An argument to write is a `PyTensorMut`, and `mut`.

    use dlbridge_pyo3::{PyTensorMut, PyTensorOf};

    fn to_read(mut x: PyTensorOf<f64>) {
        x.view_mut().fill(1.0); //~ E0277 cure: PyTensorMut<T, N>
    }

    fn not_mut(x: PyTensorMut<f64>) {
        x.view_mut().fill(1.0); //~ E0596 cure: mut 
    }
}

mod types {
    //! Types of arguments and results that are those of other libraries.

    use dlbridge::{DType, Tensor, View};
    use dlbridge_pyo3::{PyTensor, PyTensorOf, Result, Shape, match_dtype};
    use ndarray::{Array2, ArrayView2};
    use pyo3::prelude::*;

    #[pyfunction]
    fn view(x: View<'_, f64>) -> usize { //~ E0277
        x.len()
    }

    #[pyfunction]
    fn array(x: ArrayView2<'_, f64>) -> usize { //~ E0277
        x.len()
    }

    fn shape(x: PyTensorOf<f64, Shape![_, 3]>) -> usize { //~ E0747
        x.len()
    }

    fn extents(x: PyTensorOf<f64, 2, 3>) -> usize { //~ E0747
        x.len()
    }

    fn elements(x: PyTensor<f32>) -> usize { //~ E0107
        x.len()
    }

    #[pyfunction]
    fn tensor(n: usize) -> Result<Tensor> { //~ E0277
        Ok(Tensor::zeros(DType::F32, [n])?)
    }

    #[pyfunction]
    fn eye(n: usize) -> Array2<f64> { //~ E0277
        Array2::eye(n)
    }

    fn no_result(x: PyTensorOf<f32>) -> PyTensor {
        x.view().map_to_tensor(f32::sqrt)?.into() //~ E0277 cure: this function should return `Result`
    }

    fn of_a_result(x: PyTensorOf<f32>) -> PyTensor {
        PyTensor::new(x.view().map_to_tensor(f32::sqrt)) //~ E0277 cure: `?`
    }

    fn of_a_view(x: PyTensorOf<f32>) -> PyTensor {
        PyTensor::new(x.view()) //~ E0277 cure: view.map_to_tensor
    }

    fn not_converted(x: PyTensorOf<f32>) -> Result<PyTensor> {
        Ok(x.view().map_to_tensor(f32::sqrt)?) //~ E0308 cure: .into()
    }

    fn new(values: Vec<f32>) -> Tensor {
        Tensor::new(values) //~ E0599
    }

    fn name() -> Result<Tensor> {
        Ok(Tensor::zeros("float32", [2, 3])?) //~ E0308 cure: expected `DType`
    }

    fn no_name(x: PyTensor) -> Result<usize> {
        match_dtype!(x.dtype(), f32 | f64 => x.len()) //~ error cure: T: f32 | f64 => body
    }
}

mod lives {
    //! A view is borrowed from its argument, and objects of Python stay on their thread.

    use std::rc::Rc;

    use dlbridge::{Tensor, View};
    use dlbridge_pyo3::{CallerArray, PyTensor, PyTensorMut, PyTensorOf, Result, dlpack_class};
    use pyo3::prelude::*;

    fn returned(x: PyTensorOf<f64>) -> View<'static, f64> {
        x.view() //~ E0515
    }

    fn read_and_written(mut x: PyTensorMut<f64, 1>) -> Option<f64> {
        let view = x.view();
        x.view_mut().fill(1.0); //~ E0502
        view.get([0])
    }

    fn moved(x: PyTensorOf<f64>) -> usize {
        let tensor = x.into_inner();
        x.len() + tensor.len() //~ E0382
    }

    fn detached<'py>(py: Python<'py>, x: CallerArray<'py, f64>) -> f64 {
        py.detach(|| x.view().iter().sum()) //~ E0277
    }

    #[pyclass]
    struct Holder { //~ E0277 E0277
        x: CallerArray<'static, f64>,
    }

    struct Owner(Rc<Vec<f32>>);

    impl AsRef<[f32]> for Owner {
        fn as_ref(&self) -> &[f32] {
            &self.0
        }
    }

    fn not_send() -> Result<PyTensor> {
        Ok(Tensor::builder(Owner(Rc::new(vec![1.0]))).build_read_only::<f32>()?.into()) //~ E0277 E0599
    }

    #[pyclass]
    struct Exported {
        values: Vec<f32>,
    }

    fn no_export(py: Python<'_>) -> PyResult<()> {
        dlpack_class::<Exported>(py).map(drop) //~ E0277 cure: the trait `ExportDlpack` is not implemented
    }
}

fn main() {}
