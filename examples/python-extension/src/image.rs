//! A Python class that every framework imports.
//! Invariant: the pixels of an image are not moved while it lives.

use dlbridge::{ArcTensor, DType, Parts, Tensor};
use dlbridge_pyo3::{Borrow, Contiguous, ExportDlpack, PyTensorOf, Result, Shape, dlpack_class};
use pyo3::prelude::*;

/// A picture: height x width x 3 bytes.
#[pyclass(frozen, module = "dlbridge_example")]
pub(crate) struct Image {
    pixels: ArcTensor,
}

impl ExportDlpack for Image {
    // Optional: spares consumers in C a new handle for each call.
    const BORROW: Option<Borrow<Self>> = Some(Borrow::new(|image| &image.pixels));

    fn tensor(&self) -> Result<Tensor> {
        Ok(self.pixels.clone().into())
    }
}

impl Image {
    /// A picture over pixels that Python may write as well.
    fn over(pixels: Tensor) -> Self {
        Self { pixels: pixels.into_shared() }
    }
}

#[pymethods]
impl Image {
    /// DLPack, buffers, `__array__` and `__arrow_c_array__`.
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Py<PyAny>> {
        dlpack_class::<Self>(py)
    }

    /// A black picture.
    #[new]
    fn new(height: i64, width: i64) -> Result<Self> {
        Ok(Self::over(Tensor::zeros(DType::U8, [height, width, 3])?))
    }

    /// A picture over the memory of any framework's array.
    #[staticmethod]
    fn over_pixels(pixels: PyTensorOf<u8, 3, (Shape![_, _, 3], Contiguous)>) -> Self {
        Self::over(pixels.into_inner())
    }

    /// The rows from `top` to `bottom`, as a picture over the same memory.
    fn rows(&self, top: usize, bottom: usize) -> Result<Self> {
        Ok(Self { pixels: self.pixels.slice(0, top..bottom)? })
    }

    /// The number of rows.
    #[getter]
    fn height(&self) -> i64 {
        self.pixels.shape()[0]
    }

    /// The number of columns.
    #[getter]
    fn width(&self) -> i64 {
        self.pixels.shape()[1]
    }

    /// The address of the first byte.
    #[getter]
    fn data_ptr(&self) -> usize {
        self.pixels.data_ptr().addr()
    }

    /// The mean of all bytes, including those that Python wrote.
    fn brightness(&self) -> Result<f64> {
        let sum: f64 = self.pixels.view::<u8>()?.iter().map(f64::from).sum();
        Ok(sum / self.pixels.len() as f64)
    }

    /// The negative, as a new picture.
    fn inverted(&self) -> Result<Self> {
        Ok(Self::over(self.pixels.view::<u8>()?.map_to_tensor(|byte| !byte)?))
    }

    fn __repr__(&self) -> String {
        format!("Image({}, {})", self.height(), self.width())
    }
}
