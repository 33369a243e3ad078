//! Pickles of `dlbridge.Tensor`, and of users' classes: bytes, out of band where the pickler takes
//! them so.
//! Invariant: a tensor is made over foreign bytes only if they are as many as its elements need.

use dlbridge::{DType, Flags, Tensor};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyTuple};
use pyo3::{Borrowed, PyClass, PyClassInitializer, PyTypeInfo};

use crate::dtypes::names::name_of;
use crate::error::error_of;
use crate::ffi::borrow::{copied, kept};
use crate::ffi::callbacks::caught;
use crate::ffi::memory::reinterpret;
use crate::import::import_argument;
#[cfg(feature = "tensor-methods")]
use crate::interpreter::Attributes;
use crate::interpreter::module;
use crate::{Error, Result, TensorObject};

/// Pickles of a class of your own: the memory out of band with protocol 5, in band with older ones.
///
/// The class needs `module`, by which pickle finds it. An object of a class that Python code derives from it
/// is not pickled, unless that class defines `__reduce_ex__`.
///
/// ```
/// use dlbridge::{ArcTensor, Tensor};
/// use dlbridge_pyo3::{ExportDlpack, Pickle, Result, dlpack_methods};
/// use pyo3::prelude::*;
///
/// #[pyclass(frozen, module = "extension")]
/// struct Samples {
///     tensor: ArcTensor,
/// }
///
/// impl ExportDlpack for Samples {
///     const PICKLE: Option<Pickle<Self>> =
///         Some(Pickle::new(|tensor| Ok(Self { tensor: tensor.into_shared() })));
///
///     fn tensor(&self) -> Result<Tensor> {
///         Ok(self.tensor.clone().into())
///     }
/// }
///
/// dlpack_methods!(Samples);
/// ```
#[derive(Debug)]
pub struct Pickle<T> {
    from_tensor: fn(Tensor) -> Result<T>,
    new: fn(Python<'_>, T) -> PyResult<Py<T>>,
}

impl<T: PyClass + Into<PyClassInitializer<T>>> Pickle<T> {
    /// Pickles objects, and makes them again by `from_tensor`.
    ///
    /// The tensor's memory belongs to the pickle: class [`Shared`](dlbridge::Access::Shared). It can come
    /// from any pickle, so check its dtype and shape, and return the exception that Python should see.
    #[must_use]
    pub const fn new(from_tensor: fn(Tensor) -> Result<T>) -> Self {
        Self { from_tensor, new: Py::new }
    }
}

impl<T: PyTypeInfo> Pickle<T> {
    /// The object of a pickled tensor. A panic becomes a `RuntimeError`, as in an export.
    pub(super) fn object(&self, py: Python<'_>, tensor: Tensor) -> Result<Py<T>> {
        let tensor = kept(tensor)?;
        let value = caught::<T, _>(py, "its pickle", || (self.from_tensor)(tensor))?;
        Ok((self.new)(py, value)?)
    }
}

/// The first protocol with buffers out of band.
const OUT_OF_BAND: i64 = 5;
/// What a pickle keeps of a tensor's flags.
const KEPT: Flags = Flags(Flags::READ_ONLY.0 | Flags::SUBBYTE_PADDED.0);

impl TensorObject {
    /// The function that rebuilds the tensor, and its arguments.
    #[cfg(feature = "tensor-methods")]
    pub(super) fn reduce<'py>(
        object: &Bound<'py, Self>,
        protocol: i64,
    ) -> Result<Bound<'py, PyAny>> {
        let py = object.py();
        let state = object.get().state(py, protocol)?;
        // The class is in each extension; pickle finds it by the name of the package.
        let rebuild = module(intern!(py, "dlbridge._native"))?;
        let rebuild = rebuild.attribute(intern!(py, "_unpickle"))?;
        Ok((rebuild, state).into_pyobject(py)?.into_any())
    }

    /// The same, by the Python package, because pickle finds the class by its name there.
    #[cfg(not(feature = "tensor-methods"))]
    pub(super) fn reduce<'py>(
        object: &Bound<'py, Self>,
        protocol: i64,
    ) -> Result<Bound<'py, PyAny>> {
        let py = object.py();
        let package = module(intern!(py, "dlbridge"))?;
        let tensor = package.call_method1(intern!(py, "from_dlpack"), (object,))?;
        Ok(tensor.call_method1(intern!(py, "__reduce_ex__"), (protocol,))?)
    }

    /// What a pickle keeps of the tensor: bytes, dtype, shape, flags.
    pub(super) fn state<'py>(&self, py: Python<'py>, protocol: i64) -> Result<Bound<'py, PyTuple>> {
        let device = self.tensor.device();
        if !device.is_host_accessible() {
            return Err(Error::buffer(format!(
                "expected host memory to pickle, found memory on {device}: pickle a copy on the \
                 host, dlbridge.from_dlpack(x, device=\"cpu\")"
            )));
        }
        // Borrowed until the pickler has the bytes: a writer would change them meanwhile.
        let tensor = kept(self.contiguous_on_host(py)?)?;
        let flags = tensor.flags().0 & KEPT.0;
        let (dtype, shape) = (name_of(py, tensor.dtype()), PyTuple::new(py, tensor.shape())?);
        let len = tensor.nbytes() as i64;
        let bytes = reinterpret(tensor, DType::U8, &[len], Flags::NONE)?;
        let bytes = TensorObject::made(py, bytes)?;
        let data = if protocol >= OUT_OF_BAND {
            let pickle = module(intern!(py, "pickle"))?;
            pickle.call_method1(intern!(py, "PickleBuffer"), (bytes,))?
        } else {
            let is_writable = flags & Flags::READ_ONLY.0 == 0;
            let kind =
                if is_writable { py.get_type::<PyByteArray>() } else { py.get_type::<PyBytes>() };
            kind.call1((PyMemoryView::from(bytes.as_any())?,))?
        };
        Ok((data, dtype, shape, flags).into_pyobject(py)?)
    }

    fn contiguous_on_host(&self, py: Python<'_>) -> Result<Tensor> {
        let tensor = self.on_host(py)?;
        if tensor.is_contiguous() {
            return Ok(self.handle());
        }
        let copy = copied(tensor)?;
        Ok(if tensor.is_read_only() { copy.into_frozen().into() } else { copy })
    }

    /// The object of a pickle; see [`rebuild`].
    ///
    /// # Errors
    ///
    /// Those of [`rebuild`].
    #[doc(hidden)]
    pub fn unpickle(
        data: Borrowed<'_, '_, PyAny>,
        dtype: DType,
        shape: &[i64],
        flags: u64,
    ) -> Result<Self> {
        rebuild(data, dtype, shape, flags).map(Self::new)
    }
}

/// A tensor over the bytes of a pickle, without a copy. It is read-only if the pickled one was, or if
/// the bytes are.
///
/// # Errors
///
/// A `ValueError` for a shape or a dtype that no tensor has, or that does not fit the bytes.
pub(super) fn rebuild(
    data: Borrowed<'_, '_, PyAny>,
    dtype: DType,
    shape: &[i64],
    flags: u64,
) -> Result<Tensor> {
    let wrong = |message: String| Error::from(error_of::<PyValueError>(message));
    if flags & !KEPT.0 != 0 {
        return Err(wrong(format!("flags: expected read-only or padded, found {flags:#x}")));
    }
    reinterpret(import_argument(data)?.into_given(), dtype, shape, Flags(flags))
}
