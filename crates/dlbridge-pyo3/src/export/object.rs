//! The Python class that a tensor becomes.
//! Its methods in Python belong to `object_methods`.
//! Invariant: the tensor is not `Exclusive`: any number of consumers may write to its memory.

use std::sync::Arc;

use dlbridge::{SharedTensor, Tensor};
use pyo3::Borrowed;
use pyo3::prelude::*;

use super::class::{ExportDlpack, Lend};
use crate::release::{self, ObjectTensor};
use crate::stream::{Ready, Stream};
use crate::{Error, Result};

/// A tensor in Python: `dlbridge.Tensor`.
///
/// It speaks DLPack, so every framework's `from_dlpack` takes it, any number of times.
///
/// Memory that is `readonly` must not be written. PyTorch, Paddle and TVM-FFI ignore that: writing
/// to their arrays over it changes what others read, or ends the process. Give them a copy:
/// `from_dlpack(x, copy=True)`.
#[pyclass(frozen, weakref, name = "Tensor", module = "dlbridge")]
#[derive(Debug)]
pub struct TensorObject {
    pub(super) tensor: ObjectTensor,
    /// What consumers of device memory have to wait for; nothing if `None`.
    pub(super) ready: Option<Arc<Ready>>,
    /// Whether it shares memory of a tensor that requires grad, which must not be written.
    pub(super) requires_grad: bool,
}

impl TensorObject {
    /// Makes a Python object of a tensor. Memory that was exclusive becomes shared. Memory of class
    /// [`Frozen`](dlbridge::Access::Frozen) stays so, and its consumers are trusted not to write.
    ///
    /// Device memory is ready after the work on the default stream, that of a CUDA slice after the
    /// work on its own ([`Tensor::stream_handle`]); [`ready_after`](Self::ready_after) says otherwise.
    #[must_use]
    pub fn new(tensor: Tensor) -> Self {
        Self::sharing(tensor.into_shared())
    }

    /// An object over memory that was imported just now, and is ready after the work of `stream`.
    pub(crate) fn imported(
        tensor: Tensor,
        stream: Option<Stream>,
        requires_grad: bool,
    ) -> Result<Self> {
        let ready = match stream {
            Some(stream) => Ready::on(stream, tensor.device())?.map(Arc::new),
            None => None,
        };
        Ok(Self { tensor: ObjectTensor::new(tensor.into_shared()), ready, requires_grad })
    }

    /// Says that the memory is ready after the work that `stream` has been given so far. A consumer
    /// has its own stream wait for that work; the host waits only where the host reads. [`Stream::NO_SYNC`] says that the memory is ready now.
    ///
    /// Only streams of CUDA are ordered, by an event of its driver, which is opened when it is
    /// first needed; the default stream alone needs no event. (Tests play the driver: no GPU has
    /// run this yet.) What a CUDA slice tells of its own stream no longer counts then.
    ///
    /// ```
    /// use dlbridge_pyo3::{PyTensor, Stream};
    ///
    /// # pyo3::Python::initialize();
    /// let tensor = PyTensor::new(vec![1.0_f32]);
    /// let error = tensor.ready_after(Stream::PER_THREAD).unwrap_err();
    /// assert_eq!(error.to_string(), "BufferError: stream: expected None or -1 for cpu, found 2");
    /// ```
    ///
    /// # Errors
    ///
    /// A `BufferError` for a stream that the tensor's device does not have, or without a driver to
    /// order its work.
    pub fn ready_after(mut self, stream: Stream) -> Result<Self> {
        self.ready = Ready::on(stream, self.tensor.device())?.map(Arc::new);
        Ok(self)
    }

    /// Waits until the host may read the memory.
    pub(crate) fn settle_on_host(&self, py: Python<'_>) -> Result<()> {
        let Some(ready) = &self.ready else { return Ok(()) };
        py.detach(|| ready.before_host(self.tensor.device()))
    }

    /// An object over a tensor that others may share.
    pub(crate) fn sharing(tensor: SharedTensor) -> Self {
        let ready = Ready::for_tensor(&tensor).map(Arc::new);
        Self { tensor: ObjectTensor::new(tensor), ready, requires_grad: false }
    }

    /// The Python object.
    #[inline]
    pub(crate) fn into_bound(self, py: Python<'_>) -> PyResult<Bound<'_, Self>> {
        release::drain(py);
        Bound::new(py, self)
    }

    /// The tensor of an object that comes back: another handle, not an export of an export. `None`
    /// for an object of another class.
    pub(crate) fn returned(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
        let Ok(object) = object.cast_exact::<Self>() else { return Ok(None) };
        let tensor = object.get().share();
        object.get().settle(&tensor)?;
        Ok(Some(tensor))
    }

    /// An object over a part of the memory, which is ready when the whole is.
    pub(super) fn part(&self, tensor: SharedTensor) -> Self {
        let (ready, requires_grad) = (self.ready.clone(), self.requires_grad);
        Self { tensor: ObjectTensor::new(tensor), ready, requires_grad }
    }

    /// The tensor, once the host may read it.
    ///
    /// # Errors
    ///
    /// A `BufferError` for memory that the host cannot read.
    pub(super) fn on_host(&self, py: Python<'_>) -> Result<&Tensor> {
        let device = self.tensor.device();
        if !device.is_host_accessible() {
            return Err(Error::buffer(format!(
                "expected host memory, found memory on {device}: copy it, \
                 dlbridge.from_dlpack(x, device=\"cpu\")"
            )));
        }
        self.settle_on_host(py)?;
        Ok(&self.tensor)
    }

    /// The tensor inside.
    #[must_use]
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The tensor inside, to write to on Python's request.
    ///
    /// # Errors
    ///
    /// A `BufferError` if it shares the memory of a tensor that requires grad, since automatic
    /// differentiation would not see the write, or came by a legacy capsule, which cannot say
    /// that it may be written. Memory that is read-only in other ways is refused where it is written.
    pub fn to_write(&self) -> Result<&Tensor> {
        if self.requires_grad {
            return Err(Error::requires_grad("tensor"));
        }
        if self.tensor.is_legacy_read_only() {
            return Err(Error::buffer(
                "expected memory to write to, found a tensor from a legacy capsule, which cannot say \
                 that it may be written: copy it, from_dlpack(x, copy=True), or ask its producer \
                 for a versioned capsule",
            ));
        }
        Ok(&self.tensor)
    }

    /// Another tensor over the same memory, which it keeps alive.
    #[must_use]
    pub fn share(&self) -> Tensor {
        Tensor::from(self.tensor.clone())
    }
}

impl ExportDlpack for TensorObject {
    const LEND: Option<Lend<Self>> = Some(Lend::new(Self::tensor));

    fn tensor(&self) -> Result<Tensor> {
        Ok(self.share())
    }

    fn settle(&self, tensor: &Tensor) -> Result<()> {
        let Some(ready) = &self.ready else { return Ok(()) };
        ready.before(Stream::DEFAULT, tensor.device())
    }
}
