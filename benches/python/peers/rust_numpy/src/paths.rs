//! The paths of the benchmark through rust-numpy, which knows NumPy's arrays and no others.

use numpy::ndarray::Array2;
use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyReadonlyArray5,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

#[pyfunction]
fn nothing() {}

#[pyfunction]
fn ignore(_array: &Bound<'_, PyAny>) -> f32 {
    1.5
}

#[pyfunction]
fn read(array: PyReadonlyArray2<'_, f32>) -> PyResult<f32> {
    let first = array.as_array().first().copied();
    first.ok_or_else(|| PyTypeError::new_err("expected elements"))
}

/// The array moves into NumPy: no copy, no DLPack.
#[pyfunction]
fn make_numpy(py: Python<'_>) -> PyResult<Bound<'_, PyArray2<f32>>> {
    let elements = vec![1.5_f32, 2.5, 3.5, 4.5, 5.5, 6.5];
    let array = Array2::from_shape_vec((2, 3), elements);
    let array = array.map_err(|error| PyTypeError::new_err(error.to_string()))?;
    Ok(PyArray2::from_owned_array(py, array))
}

#[pyfunction]
fn call_list(list: Vec<PyReadonlyArray1<'_, f64>>) -> f64 {
    list.iter().map(|x| x.as_array().sum()).sum()
}

#[pyfunction]
fn call_five(
    a: PyReadonlyArray1<'_, f64>,
    b: PyReadonlyArray1<'_, f64>,
    c: PyReadonlyArray1<'_, f64>,
    d: PyReadonlyArray1<'_, f64>,
    e: PyReadonlyArray1<'_, f64>,
) -> f64 {
    [a, b, c, d, e].iter().map(|x| x.as_array().sum()).sum()
}

#[pyfunction]
fn call_five_axes(x: PyReadonlyArray5<'_, f64>) -> f64 {
    x.as_array().sum()
}

type Vector<'a, 'py> = &'a Bound<'py, PyArray1<f64>>;

#[pyfunction]
fn call_one_unchecked(x: Vector<'_, '_>) -> f64 {
    // SAFETY: the benchmark has one thread, which waits for this call.
    unsafe { x.as_array() }.sum()
}

#[pyfunction]
fn call_two_unchecked(x: Vector<'_, '_>, y: Vector<'_, '_>) -> f64 {
    // SAFETY: as above.
    unsafe { x.as_array().dot(&y.as_array()) }
}

#[pyfunction]
fn call_new_unchecked<'py>(x: Vector<'_, 'py>) -> Bound<'py, PyArray1<f64>> {
    // SAFETY: as above.
    (&unsafe { x.as_array() } * 2.0).into_pyarray(x.py())
}

#[pyfunction]
fn call_two_new_unchecked<'py>(
    x: Vector<'_, 'py>,
    y: Vector<'_, 'py>,
) -> Bound<'py, PyArray1<f64>> {
    // SAFETY: as above.
    let (x_array, y_array) = unsafe { (x.as_array(), y.as_array()) };
    (&x_array + &y_array).into_pyarray(x.py())
}

#[pyfunction]
fn call_write_unchecked(x: Vector<'_, '_>) {
    // SAFETY: as above.
    unsafe { x.as_array_mut() }.mapv_inplace(|x| x.max(0.0));
}

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(nothing, module)?)?;
    module.add_function(wrap_pyfunction!(call_list, module)?)?;
    module.add_function(wrap_pyfunction!(call_five, module)?)?;
    module.add_function(wrap_pyfunction!(call_five_axes, module)?)?;
    module.add_function(wrap_pyfunction!(ignore, module)?)?;
    module.add_function(wrap_pyfunction!(read, module)?)?;
    module.add_function(wrap_pyfunction!(call_one_unchecked, module)?)?;
    module.add_function(wrap_pyfunction!(call_two_unchecked, module)?)?;
    module.add_function(wrap_pyfunction!(call_new_unchecked, module)?)?;
    module.add_function(wrap_pyfunction!(call_two_new_unchecked, module)?)?;
    module.add_function(wrap_pyfunction!(call_write_unchecked, module)?)?;
    module.add_function(wrap_pyfunction!(make_numpy, module)?)?;
    Ok(())
}
