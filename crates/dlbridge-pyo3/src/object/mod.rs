//! The Python class that a tensor becomes.
//! Negotiating with consumers belongs to `negotiate`.
//! Invariant: the tensor is not `Exclusive`: any number of consumers may write to its memory.

mod making;

use dlbridge::{SharedTensor, Tensor};
use pyo3::Borrowed;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::class::{ExportDlpack, Lend};
use crate::import::{ImportOptions, import_with_stream};
use crate::negotiate::Request;
use crate::release::Kept;
use crate::stream::{Ready, Stream};
use crate::{Error, Result, autograd, buffer, exchange};

/// A tensor in Python: `dlbridge.Tensor`.
///
/// It speaks DLPack, so every framework's `from_dlpack` takes it, any number of times.
///
/// Memory that is `readonly` must not be written. PyTorch, Paddle and TVM-FFI ignore that: writing
/// to their arrays over it changes what others read, or ends the process. Give them a copy:
/// `from_dlpack(x, copy=True)`.
#[pyclass(frozen, name = "Tensor", module = "dlbridge")]
#[derive(Debug)]
pub struct TensorObject {
    tensor: Kept,
    /// What consumers of device memory have to wait for; nothing if `None`.
    ready: Option<Box<Ready>>,
    /// Whether it shares memory of a tensor that requires grad, which must not be written.
    requires_grad: bool,
}

impl TensorObject {
    /// Makes a Python object of a tensor. Memory that was exclusive becomes shared. Memory of class
    /// [`Frozen`](dlbridge::Access::Frozen) stays so, and its consumers are trusted not to write.
    ///
    /// Device memory is ready after the work on the default stream, that of a CUDA slice after the
    /// work on its own ([`Tensor::stream_handle`]); [`ready_on`](Self::ready_on) says otherwise.
    #[must_use]
    pub fn new(tensor: Tensor) -> Self {
        Self::sharing(tensor.into_shared())
    }

    /// Takes a Python object's memory as [`import`](crate::import()) does, and remembers which
    /// stream's work makes device memory ready, for those who take it from here.
    ///
    /// # Errors
    ///
    /// As [`import`](crate::import()), and those of [`ready_on`](Self::ready_on).
    pub fn import(object: Borrowed<'_, '_, PyAny>, options: ImportOptions) -> Result<Self> {
        let requires_grad = autograd::requires_grad(object)?;
        let (tensor, stream) = import_with_stream(object, options)?;
        let requires_grad = requires_grad && !tensor.is_copied();
        let this = Self { tensor: Kept::new(tensor.into_shared()), ready: None, requires_grad };
        if let Some(stream) = stream { this.ready_on(stream) } else { Ok(this) }
    }

    /// Says that the memory is ready after the work that `stream` has been given so far. Whoever
    /// takes the tensor from here has its own stream wait for that work; the host waits only where
    /// the host reads. [`Stream::NO_SYNC`] says that the memory is ready now.
    ///
    /// Only streams of CUDA are ordered, by an event of its driver, which is opened when it is
    /// first needed; the default stream alone needs no event. (Tests play the driver: no GPU has
    /// run this yet.) What a CUDA slice tells of its own stream no longer counts then.
    ///
    /// ```
    /// use dlbridge::Tensor;
    /// use dlbridge_pyo3::{PyTensor, Stream};
    ///
    /// # pyo3::Python::initialize();
    /// let tensor = PyTensor::from(Tensor::from(vec![1.0_f32]));
    /// let error = tensor.ready_on(Stream::PER_THREAD).unwrap_err();
    /// assert_eq!(error.to_string(), "BufferError: stream: found 2, wanted None or -1 for cpu");
    /// ```
    ///
    /// # Errors
    ///
    /// A `BufferError` for a stream that the tensor's device does not have, or without a driver to
    /// order its work.
    pub fn ready_on(mut self, stream: Stream) -> Result<Self> {
        self.ready = Ready::on(stream, self.tensor.device())?.map(Box::new);
        Ok(self)
    }

    /// Waits until the host may read the memory.
    pub(crate) fn settle_on_host(&self, py: Python<'_>) -> Result<()> {
        let Some(ready) = &self.ready else { return Ok(()) };
        py.detach(|| ready.before_host(self.tensor.device()))
    }

    /// An object over a tensor that others may share.
    pub(crate) fn sharing(tensor: SharedTensor) -> Self {
        let ready = Ready::of(&tensor).map(Box::new);
        Self { tensor: Kept::new(tensor), ready, requires_grad: false }
    }

    /// The Python object.
    #[inline]
    pub(crate) fn into_bound(self, py: Python<'_>) -> PyResult<Bound<'_, Self>> {
        making::make(py, self)
    }

    /// The tensor of an object that comes back: another handle, not an export of an export. `None`
    /// for an object of another class.
    pub(crate) fn returned(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
        let Ok(object) = object.cast_exact::<Self>() else { return Ok(None) };
        let tensor = object.get().share();
        object.get().settle(&tensor)?;
        Ok(Some(tensor))
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
            return Err(autograd::refusal("tensor"));
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

#[pymethods]
impl TensorObject {
    /// The C exchange API of this type.
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Py<PyAny>> {
        // Class attributes are made when the class is, before there is an object of it.
        buffer::install(py)?;
        Ok(exchange::capsule::<Self>(py)?.unbind())
    }

    /// Give a capsule over the same memory.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, Option<i32>)>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        let request = Request { stream, max_version, dl_device, copy };
        request.answer_when(py, self.share(), self.ready.as_deref())
    }

    /// The kind and number of the device that the memory is on.
    fn __dlpack_device__(&self) -> (i32, i32) {
        let device = self.tensor.device();
        (device.kind.0, device.id)
    }

    /// The extents, outermost axis first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.shape())
    }

    /// The steps along each axis, in elements.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.strides())
    }

    /// The type of the elements, by name.
    #[getter]
    fn dtype(&self) -> String {
        self.tensor.dtype().to_string()
    }

    /// Where the memory is: `"cpu"`, `"cuda:0"`.
    #[getter]
    fn device(&self) -> String {
        self.tensor.device().to_string()
    }

    /// The number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.tensor.rank()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.tensor.len()
    }

    /// The size of all elements in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.tensor.nbytes()
    }

    /// The size of one element in bytes; None for elements narrower than a byte.
    #[getter]
    fn itemsize(&self) -> Option<usize> {
        self.tensor.dtype().itemsize()
    }

    /// Whether the memory must not be written. PyTorch, Paddle and TVM-FFI ignore it.
    #[getter]
    fn readonly(&self) -> bool {
        self.tensor.is_read_only()
    }

    /// Whether the memory is that of a tensor that requires grad: it is not to be written.
    #[getter]
    fn requires_grad(&self) -> bool {
        self.requires_grad
    }

    /// Whether the elements lie side by side in row-major order.
    #[getter]
    fn contiguous(&self) -> bool {
        self.tensor.is_contiguous()
    }

    /// The address of the first element.
    #[getter]
    fn data_ptr(&self) -> usize {
        self.tensor.data_ptr().addr()
    }

    fn __len__(&self) -> PyResult<usize> {
        match self.tensor.shape().first() {
            Some(&extent) => Ok(extent as usize),
            None => Err(PyTypeError::new_err("a tensor of rank 0 has no length")),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shape = self.shape(py)?.repr()?.to_string();
        let (dtype, device) = (self.tensor.dtype(), self.tensor.device());
        let readonly = if self.tensor.is_read_only() { ", readonly" } else { "" };
        Ok(format!("dlbridge.Tensor(shape={shape}, dtype={dtype}, device={device}{readonly})"))
    }
}
