//! `dlbridge.Tensor`, the Python class of an exported tensor.
//! Its methods in Python belong to `class/tensor.rs`.
//! Invariant: the tensor is not `Exclusive`, since any number of consumers can write to its memory.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Once};

use dlbridge::ffi::{KeepAlive, bytes, keep_alive};
use dlbridge::{ArcTensor, Device, Tensor};
use pyo3::Borrowed;
use pyo3::ffi::PyTypeObject;
use pyo3::prelude::*;
use pyo3::sync::OnceExt;

use crate::ffi::borrow::{self, Reading, give_shared};
use crate::ffi::buffer::Extents;
use crate::ffi::class::freeze;
use crate::ffi::cycle;
use crate::ffi::instance::Known;
use crate::release::{self, ObjectTensor};
use crate::stream::{Ready, Stream};
use crate::{Error, Result, stream};

/// A tensor in Python: `dlbridge.Tensor`.
///
/// Every framework's `from_dlpack` accepts it, any number of times.
///
/// Memory that is `readonly` must not be written. PyTorch, Paddle and TVM-FFI ignore that: a write
/// to their arrays changes the values that other consumers read, or crashes the process. Copy for
/// these frameworks: `from_dlpack(x, copy=True)`.
#[pyclass(frozen, weakref, name = "Tensor", module = "dlbridge")]
#[derive(Debug)]
pub struct TensorObject {
    pub(crate) tensor: ObjectTensor,
    /// The work that consumers of device memory have to wait for; none if `None`.
    pub(crate) ready: Option<Arc<Ready>>,
    /// Whether the memory belongs to a tensor that requires grad, so that it must not be written.
    pub(crate) requires_grad: bool,
    /// What the buffers of this object point to.
    pub(crate) extents: Extents,
}

/// The class of [`TensorObject`]; null before it is made.
pub(crate) static CLASS: AtomicPtr<PyTypeObject> = AtomicPtr::new(ptr::null_mut());

/// The same, to make objects; empty before the first one.
static KNOWN: Known<TensorObject> = Known::new();

/// Completed once the class is immutable.
static FROZEN: Once = Once::new();

thread_local! {
    /// Whether this thread is in `freeze_class`, where a finaliser may run that makes an object.
    static FREEZES: Cell<bool> = const { Cell::new(false) };
}

/// Makes the class immutable before its first object. One thread does, and others wait: PyO3 lets each thread that needs
/// the class first set its attributes, which fails once the class is immutable.
#[cold]
fn freeze_class(py: Python<'_>) -> PyResult<()> {
    if FREEZES.replace(true) {
        return Ok(());
    }
    let mut result = Ok(());
    FROZEN.call_once_force_py_attached(py, |_| result = freeze(&py.get_type::<TensorObject>()));
    FREEZES.set(false);
    result
}

impl TensorObject {
    /// Makes a Python object from a tensor. `Exclusive` memory becomes `Shared`. Memory of class
    /// [`Frozen`](dlbridge::Access::Frozen) stays `Frozen`, and its consumers are trusted not to
    /// write.
    ///
    /// Device memory is ready after the work on the default stream, that of a CUDA slice after the
    /// work on its own stream ([`Tensor::stream_handle`]). Use [`ready_after`](Self::ready_after)
    /// for another stream.
    #[must_use]
    #[inline]
    pub fn new(tensor: Tensor) -> Self {
        Self::sharing(give_shared(tensor))
    }

    /// The Python object of a tensor, compiled once: [`new`](Self::new) and [`into_bound`](Self::into_bound) in each
    /// place would be much code.
    #[inline(never)]
    pub(crate) fn made(py: Python<'_>, tensor: Tensor) -> PyResult<Bound<'_, Self>> {
        Self::new(tensor).into_bound(py)
    }

    #[inline]
    fn of(tensor: ArcTensor, ready: Option<Arc<Ready>>, requires_grad: bool) -> Self {
        let (tensor, extents) = (ObjectTensor::new(tensor), Extents::default());
        Self { tensor, ready, requires_grad, extents }
    }

    /// An object over memory that was just imported.
    pub(crate) fn imported(tensor: Tensor, ready: Option<Ready>, requires_grad: bool) -> Self {
        Self::of(give_shared(tensor), ready.map(Arc::new), requires_grad)
    }

    /// Declares that the memory is ready after the work that is queued on `stream` now. A
    /// consumer's stream waits for that work; the host waits only before it reads.
    /// [`Stream::NO_SYNC`] declares that the memory is ready now. The stream replaces the one that
    /// a CUDA slice reports.
    ///
    /// Only CUDA streams are ordered, by an event of the CUDA driver, which is loaded at first use.
    /// The default stream needs no event.
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
    /// A `BufferError` for a stream that the tensor's device does not have, or if the driver is
    /// missing.
    pub fn ready_after(mut self, stream: Stream) -> Result<Self> {
        self.ready = Ready::on(stream, self.tensor.device())?.map(Arc::new);
        Ok(self)
    }

    /// Waits until the host may read the memory.
    pub(crate) fn settle_on_host(&self, py: Python<'_>) -> Result<()> {
        stream::settle_host(py, self.ready.as_deref(), self.tensor.device())
    }

    /// An object over a tensor that is already shared, without a lease.
    #[inline]
    pub(crate) fn sharing(tensor: ArcTensor) -> Self {
        let ready = Ready::for_tensor(&tensor).map(Arc::new);
        Self::of(tensor, ready, false)
    }

    /// The Python object. PyO3 makes the first one.
    ///
    /// # Errors
    ///
    /// A `MemoryError`.
    #[doc(hidden)]
    #[inline(always)]
    pub fn into_bound(self, py: Python<'_>) -> PyResult<Bound<'_, Self>> {
        release::drain(py);
        let Some(class) = KNOWN.class() else { return self.into_first(py) };
        let is_tracked = cycle::is_shown(&self.tensor);
        class.make(py, self, is_tracked)
    }

    #[cold]
    fn into_first(self, py: Python<'_>) -> PyResult<Bound<'_, Self>> {
        freeze_class(py)?;
        let made = Bound::new(py, self)?;
        KNOWN.look(&made);
        Ok(made)
    }

    /// Another handle to the tensor of an imported `dlbridge.Tensor`, instead of an export of an
    /// export, ready for `stream`. `None` for an object of another class.
    pub(crate) fn returned(
        object: Borrowed<'_, '_, PyAny>,
        stream: Stream,
    ) -> Result<Option<Tensor>> {
        let Ok(object) = object.cast_exact::<Self>() else { return Ok(None) };
        let object = object.get();
        stream::settle(object.ready.as_deref(), stream, object.tensor.device())?;
        Ok(Some(object.handle()))
    }

    /// Keeps the memory of an object of this class alive, without the object, for an array whose first element is at this
    /// address, if it has one. `None` for another object, or one without an element there: Python code can make an object
    /// the base of any array, by a replaced `__array_interface__`. Runs no Python code.
    pub(crate) fn keep(
        object: Borrowed<'_, '_, PyAny>,
        address: Option<usize>,
    ) -> Option<KeepAlive> {
        // An object of the class exists only once the class does. To ask PyO3 would make the class, by Python code.
        if object.get_type_ptr() != CLASS.load(Ordering::Relaxed) {
            return None;
        }
        let object = object.cast_exact::<Self>().ok()?;
        let tensor = &object.get().tensor;
        let has =
            |address| bytes(tensor).is_some_and(|all| (all.start..all.end).contains(&address));
        if address.is_none_or(has) { keep_alive(tensor) } else { None }
    }

    /// Another object over the same memory.
    #[must_use]
    pub fn another(&self) -> Self {
        self.part(self.tensor.clone())
    }

    /// An object over a part of the memory, which is ready when the whole is.
    pub(crate) fn part(&self, tensor: ArcTensor) -> Self {
        Self::of(tensor, self.ready.clone(), self.requires_grad)
    }

    /// The tensor, borrowed to read it once the host may.
    ///
    /// # Errors
    ///
    /// A `BufferError` for memory that the host cannot read; a `TypeError` if an argument of a running
    /// function is to write it.
    pub(crate) fn reading(&self, py: Python<'_>) -> Result<Reading<'_>> {
        Reading::new(self.on_host(py)?)
    }

    /// What `read`, which runs no Python code, makes of the elements.
    ///
    /// # Errors
    ///
    /// Those of [`reading`](Self::reading).
    #[cfg(feature = "tensor-methods")]
    #[inline(always)]
    pub(crate) fn read_at_once<R>(&self, py: Python<'_>, read: fn(&Tensor) -> R) -> Result<R> {
        borrow::read_at_once(py, self.on_host(py)?, read)
    }

    /// The tensor, to export it once the host may read it.
    #[inline(always)]
    pub(crate) fn on_host(&self, py: Python<'_>) -> Result<&Tensor> {
        // A call of the other function takes 16 of 60 instructions that are not the borrow in `float(x)`.
        if self.tensor.device() == Device::CPU && self.ready.is_none() {
            return Ok(&self.tensor);
        }
        self.settled_on_host(py)
    }

    #[cold]
    fn settled_on_host(&self, py: Python<'_>) -> Result<&Tensor> {
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

    /// The tensor inside. Only Python has it: Rust reads its elements only while it borrows them.
    pub(crate) fn inner(&self) -> &Tensor {
        &self.tensor
    }

    /// Another handle to the tensor inside, to export it or to borrow it.
    pub(crate) fn handle(&self) -> Tensor {
        Tensor::from(self.tensor.clone())
    }

    /// Checks that Python may write to the memory.
    ///
    /// # Errors
    ///
    /// A `BufferError` if the memory is not the host's or read-only; a `TypeError` if it belongs to a tensor that requires
    /// grad, since automatic differentiation would not record the write.
    pub fn check_writable(&self) -> Result<()> {
        if self.requires_grad {
            return Err(Error::requires_grad("memory to write to", "tensor"));
        }
        if self.tensor.is_legacy_read_only() {
            return Err(Error::buffer(
                "expected memory to write to, found a tensor of JAX or from a legacy capsule, which \
                 cannot say that it may be written: copy it, dlbridge.from_dlpack(x, copy=True), or ask \
                 its producer for a versioned capsule",
            ));
        }
        if self.tensor.is_read_only() {
            return Err(dlbridge::Error::ReadOnly.into());
        }
        let device = self.tensor.device();
        if !device.is_host_accessible() {
            return Err(dlbridge::Error::NotHostAccessible { device }.into());
        }
        Ok(())
    }

    /// A tensor over the same memory, which it keeps alive, and borrows to read for as long as Rust has it.
    ///
    /// # Errors
    ///
    /// A `TypeError` if an argument of a running function is to write the memory.
    pub fn to_tensor(&self) -> Result<Tensor> {
        borrow::kept(self.handle())
    }
}
