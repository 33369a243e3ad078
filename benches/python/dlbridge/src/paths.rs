//! The paths of the benchmark through dlbridge, as its README shows them.
//! Invariant: every function does what the same name in `../../floor/floor.c` does.
#![allow(unsafe_code, reason = "writing without a borrow is unsafe")]

use dlbridge::{ArcTensor, Parts, Tensor};
use dlbridge_pyo3::{
    Allocator, Error, ExportDlpack, PyTensor, PyTensorLike, PyTensorMut, PyTensorOf, Result,
    dlpack_methods,
};
use ndarray::Array2;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// What a call costs that does nothing: subtracted from every other.
#[pyfunction]
fn nothing() {}

/// The same with an argument and a result.
#[pyfunction]
fn ignore(_array: &Bound<'_, PyAny>) -> f32 {
    1.5
}

/// Whatever the argument speaks: the capsule, or the C exchange API.
#[pyfunction]
fn read(array: PyTensor) -> Result<f32> {
    array.view::<f32>()?.get([0, 0]).ok_or_else(no_elements)
}

#[cold]
fn no_elements() -> Error {
    PyTypeError::new_err("expected elements").into()
}

/// The same of one axis: a buffer without DLPack.
#[pyfunction]
fn read_line(list: PyTensor) -> Result<f32> {
    list.view::<f32>()?.get([0]).ok_or_else(no_elements)
}

fn new_tensor() -> PyResult<Tensor> {
    let elements = vec![1.5_f32, 2.5, 3.5, 4.5, 5.5, 6.5];
    let array = Array2::from_shape_vec((2, 3), elements);
    let array = array.map_err(|error| PyTypeError::new_err(error.to_string()))?;
    Ok(Tensor::from(array))
}

/// What never reaches Python: an array becomes a tensor, is looked at and dropped.
#[pyfunction]
fn share() -> Result<f32> {
    // Opaque, so that the compiler does not see the array through the tensor.
    let tensor = std::hint::black_box(new_tensor()?);
    tensor.view::<f32>()?.get([0, 0]).ok_or_else(no_elements)
}

/// A `dlbridge.Tensor`.
#[pyfunction]
fn make() -> PyResult<PyTensor> {
    Ok(new_tensor()?.into())
}

/// A user's own class over a tensor.
#[pyclass(frozen)]
struct Class(ArcTensor);

impl ExportDlpack for Class {
    fn tensor(&self) -> Result<Tensor> {
        Ok(self.0.clone().into())
    }
}

dlpack_methods!(Class);

/// An object of this class.
#[pyfunction]
fn make_class() -> PyResult<Class> {
    Ok(Class(new_tensor()?.into_shared()))
}

/// A NumPy array, by NumPy's own C API.
#[pyfunction]
fn make_numpy(py: Python<'_>) -> Result<Bound<'_, PyAny>> {
    make()?.into_numpy(py)
}

/// A contiguous copy.
#[pyfunction]
fn copy(array: PyTensor) -> Result<PyTensor> {
    Ok(array.to_contiguous()?.into())
}

/// A new array, `factor` times the argument.
#[pyfunction]
fn scale(array: PyTensor, factor: f32) -> Result<PyTensor> {
    Ok(array.view::<f32>()?.map_to_tensor(|value| factor * value)?.into())
}

/// Writes `value` to every element.
#[pyfunction]
fn fill(array: PyTensor, value: f32) -> Result<()> {
    // SAFETY: the benchmark has one thread, which waits for this call.
    unsafe { dlbridge::ffi::view_mut_unchecked::<f32>(&array) }?.fill(value);
    Ok(())
}

/// Replaces negative elements by 0.
#[pyfunction]
fn clip(mut array: PyTensorMut<f32>) {
    array.view_mut().map_inplace(|value| value.max(0.0));
}

/// The sum, in float64: one element after the other.
#[pyfunction]
fn sum(array: PyTensor) -> Result<f64> {
    Ok(array.view::<f32>()?.iter().map(f64::from).sum())
}

/// The same as eight sums, as the documentation of `View::as_cells` says.
#[pyfunction]
fn sum_by_eights(array: PyTensor) -> Result<f64> {
    let view = array.view::<f32>()?;
    let eights = view.as_cells().ok_or_else(no_elements)?.chunks_exact(8);
    let mut sums = [0.0; 8];
    let rest = eights.remainder().iter().map(|cell| f64::from(cell.get())).sum::<f64>();
    for cells in eights {
        for (sum, cell) in sums.iter_mut().zip(cells) {
            *sum += f64::from(cell.get());
        }
    }
    Ok(sums.iter().sum::<f64>() + rest)
}

/// What never reaches Python: the sum of 1,000 elements of a view.
#[pyfunction]
fn rust_sum() -> Result<f64> {
    let tensor = std::hint::black_box(Tensor::from(vec![0.0015_f64; 1000]));
    Ok((tensor.view::<f64>()?.iter().sum::<f64>() * 2.0).round() / 2.0)
}

/// The same: a transposed matrix of 32 x 32 becomes contiguous.
#[pyfunction]
fn rust_copy() -> Result<f32> {
    let tensor = std::hint::black_box(Tensor::from(vec![1.5_f32; 1024]));
    let copy = tensor.reshape([32, 32])?.permute(&[1, 0])?.to_contiguous()?;
    copy.view::<f32>()?.get([0, 0]).ok_or_else(no_elements)
}

/// The same: out through the C ABI, and in again.
#[pyfunction]
fn rust_round_trip() -> Result<f32> {
    let raw = std::hint::black_box(new_tensor()?).into_raw();
    // SAFETY: the pointer was returned a line above.
    let tensor = unsafe { Tensor::from_raw(raw) }?;
    tensor.view::<f32>()?.get([0, 0]).ok_or_else(no_elements)
}

/// A number of each array of a list.
#[pyfunction]
fn call_list(list: Vec<PyTensorOf<f64, 1>>) -> f64 {
    list.iter().map(|x| x.view().iter().sum::<f64>()).sum()
}

/// A number of five arrays.
#[pyfunction]
fn call_five(
    a: PyTensorOf<f64, 1>,
    b: PyTensorOf<f64, 1>,
    c: PyTensorOf<f64, 1>,
    d: PyTensorOf<f64, 1>,
    e: PyTensorOf<f64, 1>,
) -> f64 {
    [a, b, c, d, e].iter().map(|x| x.view().iter().sum::<f64>()).sum()
}

/// A number of an array of five axes.
#[pyfunction]
fn call_five_axes(x: PyTensorOf<f64, 5>) -> f64 {
    x.view().iter().sum()
}

/// A number of whatever `numpy.asarray` accepts.
#[pyfunction]
fn call_like(x: PyTensorLike<f64, 1>) -> f64 {
    x.view().iter().sum()
}

/// A number of a tensor that outlives its argument.
#[pyfunction]
fn call_keep(x: PyTensor) -> Result<f64> {
    let kept = std::hint::black_box(x.into_inner());
    Ok(kept.view::<f64>()?.iter().sum())
}

/// A new array of the caller's type, filled in place.
#[pyfunction]
fn call_allocate<'py>(x: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let mut made = Allocator::of(x).zeros::<f64>(&[4])?;
    made.as_slice_mut::<f64>()?.fill(1.5);
    made.to_caller(x)
}

/// 64 KiB of zeros.
#[pyfunction]
fn zeros() -> Result<PyTensor> {
    Ok(Tensor::zeros(dlbridge::DType::F32, [1 << 14])?.into())
}

/// A new array of the argument's type, by the C exchange API where there is one.
#[pyfunction]
fn make_exchange<'py>(like: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    make()?.to_caller(like)
}

/// Adds all to a module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(nothing, module)?)?;
    module.add_function(wrap_pyfunction!(ignore, module)?)?;
    module.add_function(wrap_pyfunction!(read, module)?)?;
    module.add_function(wrap_pyfunction!(read_line, module)?)?;
    module.add_function(wrap_pyfunction!(copy, module)?)?;
    module.add_function(wrap_pyfunction!(scale, module)?)?;
    module.add_function(wrap_pyfunction!(fill, module)?)?;
    module.add_function(wrap_pyfunction!(clip, module)?)?;
    module.add_function(wrap_pyfunction!(sum, module)?)?;
    module.add_function(wrap_pyfunction!(sum_by_eights, module)?)?;
    module.add_function(wrap_pyfunction!(zeros, module)?)?;
    module.add_function(wrap_pyfunction!(share, module)?)?;
    module.add_function(wrap_pyfunction!(make_exchange, module)?)?;
    module.add_function(wrap_pyfunction!(make_numpy, module)?)?;
    module.add_function(wrap_pyfunction!(make_class, module)?)?;
    module.add_function(wrap_pyfunction!(call_allocate, module)?)?;
    module.add_function(wrap_pyfunction!(call_keep, module)?)?;
    module.add_function(wrap_pyfunction!(call_like, module)?)?;
    module.add_function(wrap_pyfunction!(call_five_axes, module)?)?;
    module.add_function(wrap_pyfunction!(call_five, module)?)?;
    module.add_function(wrap_pyfunction!(call_list, module)?)?;
    module.add_function(wrap_pyfunction!(rust_round_trip, module)?)?;
    module.add_function(wrap_pyfunction!(rust_copy, module)?)?;
    module.add_function(wrap_pyfunction!(rust_sum, module)?)?;
    module.add_function(wrap_pyfunction!(make, module)?)?;
    Ok(())
}
