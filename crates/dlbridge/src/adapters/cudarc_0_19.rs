//! `cudarc` 0.19, both ways: CUDA slices with their streams. Feature `cudarc-0_19`.
//!
//! Streams wait for each other by events; the host waits only where the next stream is unknown.
//! Nothing is linked: the driver is loaded at its first use, so this builds anywhere.
//!
//! Memory is freed in the order of its own stream. If a consumer in another language had it, that stream first
//! waits for all work of the device: the consumer may drop the tensor while its own work is still queued. With a
//! driver before CUDA 12.5 the host waits instead. While the stream that PyTorch works on captures a graph, the memory is kept until a
//! later drop or export. A forked child frees none.
//!
//! The tests run with a fake driver, whose streams run their work as late as CUDA permits. The guide's page on GPUs
//! says what ran on hardware.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, CudaViewMut};

#[doc(hidden)]
pub use super::cudarc_0_19_free_memory::set_captures;
use super::cudarc_0_19_free_memory::{Current, library, undisturbed};
use super::cudarc_0_19_memory::{
    Owned, current, driver, export_borrowed, export_slice, producer, take_slice,
};
use crate::memory::unwind::catch;
use crate::{Builder, Device, DeviceKind, Error, Plain, Tensor};

/// A CUDA slice becomes a tensor of one axis, without a copy. It is of class
/// [`Exclusive`](crate::Access::Exclusive); [`into_as`](Tensor::into_as) takes it back out.
///
/// # Errors
///
/// Never fails today: every slice passes the checks of [`Builder::build_cuda`].
impl<T: Plain> TryFrom<CudaSlice<T>> for Tensor {
    type Error = Error;

    fn try_from(slice: CudaSlice<T>) -> Result<Self, Error> {
        Self::builder(slice).build_cuda()
    }
}

/// A shared CUDA slice becomes a read-only tensor of one axis, without a copy.
///
/// # Errors
///
/// None is known, as for a slice.
impl<T: Plain> TryFrom<Arc<CudaSlice<T>>> for Tensor {
    type Error = Error;

    fn try_from(slice: Arc<CudaSlice<T>>) -> Result<Self, Error> {
        let len = slice.len() as i64;
        let builder = Self::builder(slice).dtype(T::DTYPE).shape([len]);
        builder.place(|owner, placement| export_borrowed(owner, placement, |slice| Ok(&**slice)))
    }
}

impl<T: Plain> Builder<CudaSlice<T>> {
    /// Exports a CUDA slice with the chosen shape: writable, of class
    /// [`Exclusive`](crate::Access::Exclusive), on the slice's device.
    ///
    /// Work that was queued on the slice is ordered on its stream. A consumer on another stream
    /// calls [`join_stream`] first; [`OwnedSlice`] does, and so does `dlbridge-pyo3` for
    /// consumers in Python.
    ///
    /// ```no_run
    /// use cudarc::driver::CudaSlice;
    /// use dlbridge::{Device, Error, Tensor, cudarc_0_19};
    ///
    /// fn matrix(slice: CudaSlice<f32>) -> Result<Tensor, Error> {
    ///     let columns = slice.len() as i64 / 2;
    ///     Tensor::builder(slice).shape([2, columns]).build_cuda()
    /// }
    ///
    /// let stream = cudarc_0_19::context(Device::cuda(0))?.default_stream();
    /// let slice = stream.alloc_zeros(6).expect("enough memory");
    /// assert_eq!(matrix(slice)?.device(), Device::cuda(0));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build).
    pub fn build_cuda(self) -> Result<Tensor, Error> {
        let size = self.owner().num_bytes();
        self.export(T::DTYPE, size, export_slice::<T>)
    }
}

/// The CUDA slice that the tensor was made from, if it never left Rust: on its own stream, and whole,
/// even if the tensor is a part of it.
///
/// # Errors
///
/// The tensor itself, if it has another owner or elements of another type.
impl<T: Plain> TryFrom<Tensor> for CudaSlice<T> {
    type Error = Tensor;

    fn try_from(tensor: Tensor) -> Result<Self, Tensor> {
        take_slice(tensor.0).map_err(Tensor)
    }
}

/// The stream that orders work on a tensor, if it was made from a CUDA slice: that of the slice. For a
/// per-thread stream it is the default stream, which waits for it.
#[must_use]
pub fn stream(tensor: &Tensor) -> Option<&Arc<CudaStream>> {
    producer(tensor)
}

/// Makes `stream` wait, by an event, for the work that was queued on a tensor that was made of a CUDA
/// slice. The work on other tensors was ordered when they were imported.
///
/// # Errors
///
/// [`Refused`](Error::Refused).
pub fn join_stream(tensor: &Tensor, stream: &CudaStream) -> Result<(), Error> {
    match producer(tensor) {
        Some(producer) => {
            let _current = current(stream)?;
            stream.join(producer).map_err(driver("waiting for the tensor's stream"))
        }
        None => Ok(()),
    }
}

/// Calls `call` with the elements as a CUDA slice on `stream`, without a copy. The stream waits for the
/// work that was queued on a tensor of cudarc, and otherwise for the default stream, on which tensors of
/// other producers are ready.
///
/// Work that `call` queues is ordered before later work: by an event if the stream of the tensor is
/// known; otherwise the host waits for `stream`.
///
/// # Errors
///
/// [`DTypeMismatch`](Error::DTypeMismatch), [`DeviceMismatch`](Error::DeviceMismatch),
/// [`NotContiguous`](Error::NotContiguous), [`Misaligned`](Error::Misaligned) or
/// [`Refused`](Error::Refused).
pub fn with_slice<T: Plain, R>(
    tensor: &Tensor,
    stream: &Arc<CudaStream>,
    call: impl FnOnce(&CudaSlice<T>) -> R,
) -> Result<R, Error> {
    super::cudarc_0_19_memory::with_slice(tensor, stream, call)
}

/// The same for writing, if no other code can reach the elements (class
/// [`Exclusive`](crate::Access::Exclusive)).
///
/// # Errors
///
/// [`SharedMemory`](Error::SharedMemory), [`ReadOnly`](Error::ReadOnly), and those of [`with_slice`].
pub fn with_view_mut<T: Plain, R>(
    tensor: &mut Tensor,
    stream: &Arc<CudaStream>,
    call: impl FnOnce(CudaViewMut<'_, T>) -> R,
) -> Result<R, Error> {
    super::cudarc_0_19_memory::with_view_mut(tensor, stream, call)
}

/// A CUDA slice over the memory of a tensor, without a copy, for kernels and copies of cudarc. When it is dropped, the tensor is released after the work that was queued on its stream.
///
/// ```no_run
/// use std::sync::Arc;
/// use cudarc::driver::CudaStream;
/// use dlbridge::cudarc_0_19::OwnedSlice;
/// use dlbridge::{Error, Tensor};
///
/// fn to_host(tensor: Tensor, stream: &Arc<CudaStream>) -> Result<Vec<f32>, Error> {
///     let slice = OwnedSlice::<f32>::new(tensor, stream)?;
///     Ok(stream.clone_dtoh(&*slice).expect("the copy is queued"))
/// }
/// ```
pub struct OwnedSlice<T>(Owned<T>);

impl<T: Plain> OwnedSlice<T> {
    /// Turns a tensor into a slice on `stream`, which waits as that of [`with_slice`].
    ///
    /// # Errors
    ///
    /// As for [`with_slice`].
    pub fn new(tensor: Tensor, stream: &Arc<CudaStream>) -> Result<Self, Error> {
        Owned::new(tensor, stream).map(Self)
    }

    /// The elements for writing, if no other code can reach them.
    ///
    /// # Errors
    ///
    /// [`SharedMemory`](Error::SharedMemory) or [`ReadOnly`](Error::ReadOnly).
    pub fn as_view_mut(&mut self) -> Result<CudaViewMut<'_, T>, Error> {
        self.0.view_mut()
    }
}

impl<T> OwnedSlice<T> {
    /// The tensor that owns the memory.
    #[must_use]
    pub fn tensor(&self) -> &Tensor {
        self.0.tensor()
    }
}

impl<T> Deref for OwnedSlice<T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        self.0.slice()
    }
}

impl<T> fmt::Debug for OwnedSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedSlice").field(self.tensor()).finish()
    }
}

/// Calls `call` with the context of a device current on this thread, and restores the former one. cudarc leaves the
/// context of its last call current, so that a framework would go on with another device.
///
/// ```no_run
/// use cudarc::driver::CudaStream;
/// use dlbridge::{Device, Error, Tensor, cudarc_0_19};
///
/// fn zeros(stream: &std::sync::Arc<CudaStream>, len: usize) -> Result<Tensor, Error> {
///     let device = Device::cuda(stream.context().ordinal() as i32);
///     cudarc_0_19::on_device(device, |_context| {
///         Tensor::try_from(stream.alloc_zeros::<f32>(len).expect("enough memory"))
///     })?
/// }
/// ```
///
/// # Errors
///
/// As for [`context`].
pub fn on_device<R>(device: Device, call: impl FnOnce(&Arc<CudaContext>) -> R) -> Result<R, Error> {
    let context = context(device)?;
    let _current = Current::new(&context).map_err(driver("making the device current"))?;
    Ok(call(&context))
}

/// The CUDA context of a device, which PyTorch, CuPy and JAX use as well.
///
/// ```
/// use dlbridge::{Device, cudarc_0_19};
///
/// match cudarc_0_19::context(Device::cuda(0)) {
///     Ok(context) => println!("{}", context.name().unwrap_or_default()),
///     Err(error) => println!("{error}"), // there is no driver, or no such device
/// }
/// assert!(cudarc_0_19::context(Device::CPU).is_err());
/// ```
///
/// # Errors
///
/// [`DeviceMismatch`](Error::DeviceMismatch) for other devices than CUDA's;
/// [`Refused`](Error::Refused) if there is no driver here, or no such device.
pub fn context(device: Device) -> Result<Arc<CudaContext>, Error> {
    let ordinal = match (device.kind, usize::try_from(device.id)) {
        (DeviceKind::CUDA, Ok(ordinal)) => ordinal,
        _ => return Err(Error::DeviceMismatch { found: device, expected: Device::cuda(0) }),
    };
    let doing = "opening the device";
    // Without a driver, or without a function of it, cudarc panics.
    library().map_err(driver(doing))?;
    match catch(|| undisturbed(|| CudaContext::new(ordinal))) {
        Ok(context) => context.map_err(driver(doing)),
        Err(panic) => Err(driver(doing)(panic.words())),
    }
}
