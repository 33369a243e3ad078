//! A Python extension with functions over any framework's arrays; its class is in `image`.
//! Invariant: no unsafe code.
#![forbid(unsafe_code)]

#[cfg(feature = "cuda")]
mod gpu;
mod image;
mod operators;

use dlbridge::{Parts, Tensor, ViewMut, thread_pool};
use dlbridge_pyo3::{
    ANY_NDIM, Allocator, CallerArray, NoGrad, PyTensor, PyTensorMut, PyTensorOf, Result, Shape,
    Writable, defer_reference_counts,
};
use pyo3::prelude::*;
use rayon::prelude::*;

use image::Image;

/// The length of a vector. Anything but a float32 vector in host memory raises `TypeError`.
#[pyfunction]
fn norm(x: PyTensorOf<f32, 1>) -> f32 {
    let sums: [f32; 16] = x.view().fold_lanes(0.0, |sum, value| sum + value * value);
    sums.iter().sum::<f32>().sqrt()
}

/// Divides a vector by its length, in place.
#[pyfunction]
fn normalise(mut x: PyTensorMut<f32, 1>) {
    let sums: [f32; 16] = x.view().fold_lanes(0.0, |sum, value| sum + value * value);
    let norm = sums.iter().sum::<f32>().sqrt();
    x.view_mut().map_inplace(|value| value / norm);
}

/// A new array of the type of `x`: `factor` times its values, without a gradient.
#[pyfunction]
fn scale<'py>(
    x: CallerArray<'py, f32, ANY_NDIM, NoGrad>,
    factor: f32,
) -> Result<Bound<'py, PyAny>> {
    x.to_caller(x.view().map_to_tensor(|value| factor * value)?)
}

/// A picture of bytes, height x width x 3, as a new array of its type: 3 x height x width, from 0 to
/// 1.
#[pyfunction]
fn to_planes<'py>(image: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let pixels: PyTensorOf<u8, 3, Shape![_, _, 3]> = image.extract()?;
    let planes = pixels.view().permute(&[2, 0, 1])?;
    let normalised = planes.view().map_to_tensor(|byte| f32::from(byte) / 255.0)?;
    PyTensor::new(normalised).to_caller(image)
}

/// Makes a picture of bytes brighter, in place.
#[pyfunction]
fn brighten(mut image: PyTensorOf<u8, 3, (Shape![_, _, 3], Writable)>, by: u8) {
    image.view_mut().map_inplace(|byte| byte.saturating_add(by));
}

/// The softmax of each row, on all cores, as a new array of the type of `x`.
#[pyfunction]
fn softmax<'py>(x: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let matrix: PyTensorOf<f32, 2, NoGrad> = x.extract()?;
    let result = x.py().detach(|| -> Result<Tensor> {
        let mut result = matrix.to_contiguous()?;
        let mut view = result.view_mut::<f32>()?;
        let rows = view.par_rows_mut()?;
        let each = |mut row: ViewMut<'_, f32>| {
            let most = row.as_view().iter().fold(f32::MIN, f32::max);
            row.map_inplace(|value| (value - most).exp());
            let sum: f32 = row.as_view().iter().sum();
            row.map_inplace(|value| value / sum);
        };
        // rayon's global pool would wait for ever in a forked process.
        thread_pool().install(|| rows.for_each(each));
        Ok(result)
    })?;
    PyTensor::new(result).to_caller(x)
}

/// The sum of each row, as an array of the caller's framework.
#[pyfunction]
fn row_sums<'py>(x: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let matrix: PyTensorOf<f32, 2, NoGrad> = x.extract()?;
    let [rows, columns] = matrix.extents();
    let mut sums = Allocator::of(x).zeros::<f32>(&[rows as i64])?;
    let mut values = matrix.view().iter();
    for sum in sums.as_slice_mut::<f32>()? {
        *sum = values.by_ref().take(columns).sum();
    }
    sums.to_caller(x)
}

/// A new, uninitialised array of the framework, shape, dtype and device of `x`.
#[pyfunction]
fn empty_like<'py>(x: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let tensor: PyTensor = x.extract()?;
    let empty = Allocator::of(x).allocate(tensor.dtype(), tensor.shape(), tensor.device())?;
    empty.to_caller(x)
}

/// A new array like the float32 array `x`, filled with `value` by Rust, in memory of its framework
/// and on its device.
#[pyfunction]
fn full_like<'py>(x: &Bound<'py, PyAny>, value: f32) -> Result<Bound<'py, PyAny>> {
    let like: PyTensor = x.extract()?;
    let mut full = Allocator::of(x).allocate(like.dtype(), like.shape(), like.device())?;
    fill(&mut full, value)?;
    full.to_caller(x)
}

fn fill(tensor: &mut Tensor, value: f32) -> Result<()> {
    #[cfg(feature = "cuda")]
    if tensor.device().kind == dlbridge::DeviceKind::CUDA {
        return gpu::fill(tensor, value);
    }
    tensor.as_slice_mut::<f32>()?.fill(value);
    Ok(())
}

/// The second argument as an array of the first argument's type, over the same memory.
#[pyfunction]
fn convert<'py>(kind: &Bound<'py, PyAny>, x: PyTensor) -> Result<Bound<'py, PyAny>> {
    x.to_caller(kind)
}

#[pymodule(gil_used = false)]
fn dlbridge_example(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Image>()?;
    module.add_function(wrap_pyfunction!(norm, module)?)?;
    module.add_function(wrap_pyfunction!(normalise, module)?)?;
    module.add_function(wrap_pyfunction!(scale, module)?)?;
    module.add_function(wrap_pyfunction!(to_planes, module)?)?;
    module.add_function(wrap_pyfunction!(brighten, module)?)?;
    module.add_function(wrap_pyfunction!(softmax, module)?)?;
    module.add_function(wrap_pyfunction!(row_sums, module)?)?;
    module.add_function(wrap_pyfunction!(empty_like, module)?)?;
    module.add_function(wrap_pyfunction!(full_like, module)?)?;
    #[cfg(feature = "cuda")]
    module.add_function(wrap_pyfunction!(gpu::filled, module)?)?;
    #[cfg(feature = "cuda")]
    module.add_function(wrap_pyfunction!(gpu::copied, module)?)?;
    module.add_function(wrap_pyfunction!(convert, module)?)?;
    defer_reference_counts(module)
}
