//! Tensors as arguments and results of PyO3 functions, without copies.
//!
//! A function that has [`PyTensor`] in its signature accepts any array (NumPy, PyTorch, JAX, ...)
//! and uses the same memory. As a result, `PyTensor` becomes a `dlbridge.Tensor`, which every
//! framework imports with its `from_dlpack`.
//!
//! ```
//! use dlbridge_pyo3::{PyTensor, Result};
//! use pyo3::prelude::*;
//!
//! /// The sum of a tensor's elements, whatever its strides.
//! #[pyfunction]
//! fn sum(x: PyTensor) -> Result<f64> {
//!     Ok(x.view::<f64>()?.iter().sum())
//! }
//!
//! /// A new tensor: twice the values of `x`.
//! #[pyfunction]
//! fn double(x: PyTensor) -> Result<PyTensor> {
//!     let mut doubled = x.to_contiguous()?;
//!     doubled.view_mut::<f64>()?.map_inplace(|value| 2.0 * value);
//!     Ok(doubled.into())
//! }
//!
//! #[pymodule]
//! fn extension(module: &Bound<'_, PyModule>) -> PyResult<()> {
//!     module.add_function(wrap_pyfunction!(sum, module)?)?;
//!     module.add_function(wrap_pyfunction!(double, module)?)
//! }
//! # Python::initialize();
//! # Python::attach(|py| {
//! #     let module = PyModule::new(py, "m").unwrap();
//! #     extension(&module).unwrap();
//! #     let x = PyTensor::new(vec![1.0_f64, 2.0]).into_pyobject(py).unwrap();
//! #     let y = module.getattr("double").unwrap().call1((x,)).unwrap();
//! #     assert_eq!(module.getattr("sum").unwrap().call1((y,)).unwrap().extract::<f64>().unwrap(), 6.0);
//! # });
//! ```
//!
//! | I have | I want | call |
//! | --- | --- | --- |
//! | any array, as an argument | to read it | `x: PyTensor`, then [`view`](dlbridge::Tensor::view) |
//! | an array that must have one dtype and `ndim` | a `TypeError` for any other | `x: PyTensorOf<f32, 2>` |
//! | a list, a number, or an array of another dtype | a tensor, by one copy | `x: PyTensorLike<f32, 1>` |
//! | an array that must have three channels | a `TypeError` for any other | `x: PyTensorOf<u8, 3, Shape![_, _, 3]>` |
//! | a tensor whose gradient must not get lost | a `BufferError` where it would | `x: PyTensorOf<f32, 2, NoGrad>` |
//! | an array to write in place | a view to write | `mut x: PyTensorMut<f32>`, then [`view_mut`](PyTensorOf::view_mut) |
//! | an algorithm over `&[T]` or `ArrayView` | a slice or an array of the caller's memory | [`as_slice`](PyTensorOf::as_slice), [`as_array`](PyTensorOf::as_array), after one [`StableArguments`] |
//! | a Python object | a tensor over its memory | [`import()`] |
//! | any array | the protocol through which it was imported | [`Imported::protocol`] |
//! | a GPU array and a stream to use it on | to make the stream wait until it is ready | [`ImportOptions::stream`] |
//! | a GPU array | the stream on which its memory is ready | [`Imported::stream`] |
//! | a CUDA slice of cudarc, still being written | to return it | `PyTensor::new(Tensor::try_from(slice)?)` |
//! | another GPU tensor that a stream still writes | to return it | [`PyTensor::ready_after`] |
//! | a dtype or a device, as an argument | `np.float32`, `"cuda:0"`, `torch.device(..)` | [`PyDType`], [`PyDevice`] |
//! | a Rust array or vector | to return it | `PyTensor::new(array)` |
//! | a tensor | a NumPy array | [`PyTensor::into_numpy`] |
//! | a tensor, and the caller's array | an array of the caller's type | [`PyTensor::to_caller`] |
//! | an argument, and a result of its type | to return it | `x: CallerArray<'py, f32>`, then [`to_caller`](CallerArray::to_caller) |
//! | an argument `out=None` | to write the result to it | [`CallerArray::output`] |
//! | the caller's array | new memory of its framework | [`Allocator::of`] |
//! | a Python class of my own | every framework to import it | [`ExportDlpack`], [`dlpack_class`] |
//! | the same | to pickle it | [`Pickle`] |
//! | a function that launches kernels, on any thread | the device's context to be current | `CurrentContext::of`, by the feature `cuda` |
//! | a function that code in C calls, with or without the GIL | Python | [`attach`] |
//! | a module for free-threaded Python | threads that do not slow each other | [`defer_reference_counts`] |
//! | a tensor error or a Python exception | to return it | [`Result`], with `?` |

//!
//! # Features
//!
//! | feature | on by default | without it |
//! | --- | --- | --- |
//! | `columns` | yes | columns, record batches and tables (`__arrow_c_array__`, `__arrow_c_stream__`) are a `TypeError` that names the feature, and users' classes have no `__arrow_c_array__` |
//! | `cuda` | yes | the CUDA driver is not used: tensors on a device pass through on the default stream. Other streams, copies to the host and `__cuda_array_interface__` are errors that name the feature |
//! | `tensor-methods` | no | `dlbridge.Tensor` of the extension has no indexing, values and numbers |

mod arguments;
mod class;
mod dtypes;
mod error;
mod export;
mod ffi;
mod framework;
mod import;
mod interpreter;
mod object;
mod release;
mod stream;
mod types;

pub use arguments::{
    ANY_NDIM, AnyContiguous, ArrayOf, ColumnMajor, Constraint, Contiguous, IntoTensor, Metadata,
    NoGrad, PyTensor, PyTensorLike, PyTensorMut, PyTensorOf, ToWrite, Writable,
};
#[doc(hidden)]
pub use arguments::{KeepsCaller, shapes};
pub use class::{ExportDlpack, Pickle, dlpack_class};
#[doc(hidden)]
pub use dlbridge as __dlbridge;
pub use dtypes::names::{PyDType, PyDevice};
#[doc(hidden)]
pub use error::error_of;
pub use error::{Error, Result};
pub use ffi::borrow::{Promised, StableArguments};
pub use ffi::callbacks::Borrow;
pub use ffi::class::defer_reference_counts;
#[doc(hidden)]
pub use ffi::class::freeze;
#[cfg(feature = "cuda")]
pub use ffi::driver::CurrentContext;
pub use framework::{Allocator, CallerArray, Output};
#[doc(hidden)]
pub use import::import_as_consumer;
pub use import::{CopyMode, ImportOptions, Imported, Protocol, import};
pub use interpreter::attach;
#[doc(hidden)]
pub use interpreter::{extents, items, through_pyo3};
pub use object::TensorObject;
pub use stream::Stream;
