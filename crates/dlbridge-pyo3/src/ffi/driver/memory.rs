//! Memory of CUDA devices: copies to the host, copies on the device, and new memory.
//! When a copy is made belongs to `stream`.
//! Invariant: a copy is complete when its function returns, so that the caller may drop both sides.

use std::ffi::{c_int, c_void};
use std::ptr;

use dlbridge::ffi::{assume_class, from_owner_at, raw_fields};
use dlbridge::{Access, DType, Device, Flags, Tensor, layout};

use pyo3::exceptions::PyMemoryError;

use super::{Context, Driver, handle};
use crate::Result;
use crate::error::error_of;
use crate::ffi::stream::Stream;

/// The stream of the copies, behind which no other thread queues work: the per-thread default stream.
pub(crate) const STREAM: Stream = Stream::PER_THREAD;
const STREAM_NUMBER: i64 = 2;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: c_int = 2;

/// A tensor's elements, in the form that `from_owner_at` takes them.
struct Elements<'a> {
    tensor: &'a Tensor,
    flags: Flags,
    /// The bytes from the lowest element to the start of the first one.
    below: usize,
    /// The bytes from the lowest element to the end of the highest one.
    size: usize,
}

impl<'a> Elements<'a> {
    fn of(tensor: &'a Tensor) -> Result<Self> {
        let dtype = tensor.dtype();
        if dtype.itemsize().is_none() && !tensor.is_contiguous() {
            return Err(dlbridge::Error::SubByte { padded: false, dtype }.into());
        }
        let flags = raw_fields(tensor).map_or(Flags::NONE, |raw| raw.flags);
        let flags = Flags(flags.0 & Flags::SUBBYTE_PADDED.0 | Flags::IS_COPIED.0);
        let span = layout::span(tensor.shape(), tensor.strides())?;
        let bytes = |count| layout::nbytes(count, dtype, flags);
        let (below, size) = (bytes(span.low.unsigned_abs())?, bytes(span.extent())?);
        Ok(Self { tensor, flags, below, size })
    }

    /// The address of the lowest element.
    fn start(&self) -> u64 {
        self.tensor.data_ptr().addr().wrapping_sub(self.below) as u64
    }

    /// A tensor of the same layout over a copy of the bytes, whose lowest element is at `start`.
    ///
    /// # Safety
    ///
    /// `owner` keeps `size` bytes from `start` on, which no other code accesses.
    unsafe fn over<O: Send + 'static>(
        &self,
        owner: O,
        start: *mut c_void,
        device: Device,
    ) -> Result<Tensor> {
        let layout = (self.tensor.dtype(), self.tensor.shape(), self.tensor.strides());
        let memory = (start.wrapping_byte_add(self.below), device);
        // SAFETY: the caller's duty: the elements are where they are in the original (R1).
        let copy = unsafe { from_owner_at(owner, layout, memory, self.flags) }?;
        // SAFETY: the caller's duty.
        Ok(unsafe { assume_class(copy, Access::Exclusive) })
    }
}

/// A copy of a tensor's elements in host memory, contiguous and exclusive. [`STREAM`] waits for the work that writes
/// the tensor.
pub(crate) fn to_host(tensor: &Tensor) -> Result<Tensor> {
    let elements = Elements::of(tensor)?;
    let bytes = Tensor::zeros(DType::U8, [elements.size as i64])?;
    let start = bytes.data_ptr().cast::<c_void>();
    Driver::get()?.copy(tensor.device(), elements.size, |driver| {
        // SAFETY: as many bytes of new memory, and the memory of the tensor, gaps included (T3).
        let status = unsafe {
            (driver.call.to_host)(start, elements.start(), elements.size, handle(STREAM_NUMBER))
        };
        driver.check("cuMemcpyDtoHAsync", status)
    })?;
    // SAFETY: the bytes from `start` on, which nothing else has (R7).
    let copy = unsafe { elements.over(bytes, start, Device::CPU) }?;
    if copy.is_contiguous() { Ok(copy) } else { Ok(copy.to_contiguous()?) }
}

/// A copy of a tensor's elements in new memory of its device, contiguous and exclusive. [`STREAM`] waits for the work
/// that writes the tensor. Elements with gaps take the way over the host.
pub(crate) fn on_device(tensor: &Tensor) -> Result<Tensor> {
    let device = tensor.device();
    let host = if tensor.is_contiguous() { None } else { Some(to_host(tensor)?) };
    let elements = Elements::of(host.as_ref().unwrap_or(tensor))?;
    let memory = DeviceMemory::new(device, elements.size)?;
    Driver::get()?.copy(device, elements.size, |driver| {
        let (to, size, stream) = (memory.address, elements.size, handle(STREAM_NUMBER));
        if host.is_some() {
            let from = ptr::with_exposed_provenance(elements.start() as usize);
            // SAFETY: as many bytes of new memory, and those of the copy on the host (R1).
            let status = unsafe { (driver.call.to_device)(to, from, size, stream) };
            return driver.check("cuMemcpyHtoDAsync", status);
        }
        // SAFETY: as many bytes of new memory, and the memory of the tensor (T3).
        let status = unsafe { (driver.call.on_device)(to, elements.start(), size, stream) };
        driver.check("cuMemcpyDtoDAsync", status)
    })?;
    let start = ptr::without_provenance_mut(memory.address as usize);
    // SAFETY: the bytes from `start` on, which nothing else has (R7).
    unsafe { elements.over(memory, start, device) }
}

/// New memory of a device for a contiguous tensor: exclusive, not initialised.
pub(crate) fn allocate(dtype: DType, shape: &[i64], device: Device) -> Result<Tensor> {
    let mut strides = vec![0; shape.len()];
    layout::contiguous_strides(shape, &mut strides);
    let memory = DeviceMemory::new(device, dtype.contiguous_nbytes(shape)?)?;
    let start = ptr::without_provenance_mut(memory.address as usize);
    let (layout, at) = ((dtype, shape, &*strides), (start, device));
    // SAFETY: the bytes from `start` on, which nothing else has (R7).
    let tensor = unsafe { from_owner_at(memory, layout, at, Flags::NONE) }?;
    // SAFETY: the same.
    Ok(unsafe { assume_class(tensor, Access::Exclusive) })
}

impl Driver {
    /// Queues a copy on [`STREAM`], and waits for it.
    fn copy(
        &self,
        device: Device,
        size: usize,
        queue: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        self.relaxed_within(self.primary_context(device)?, || {
            queue(self)?;
            // SAFETY: a stream of every thread (F7).
            let status = unsafe { (self.call.finish)(handle(STREAM_NUMBER)) };
            self.check("cuStreamSynchronize", status)
        })
    }

    fn relaxed_within<T>(&self, context: Context, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.within(context, || self.relaxed(work))
    }
}

/// Memory of a device. Freeing it waits for all work of its context, unlike memory of `cuMemAllocAsync`.
struct DeviceMemory {
    address: u64,
    context: Context,
}

// SAFETY: the driver's functions may be called with a context on any thread (F7, R9).
unsafe impl Send for DeviceMemory {}

impl DeviceMemory {
    fn new(device: Device, size: usize) -> Result<Self> {
        let driver = Driver::get()?;
        let context = driver.primary_context(device)?;
        let mut address = 0;
        driver.relaxed_within(context, || {
            // SAFETY: a place for the answer; the driver refuses 0 bytes (F7).
            let status = unsafe { (driver.call.allocate)(&raw mut address, size.max(1)) };
            if status == OUT_OF_MEMORY {
                let message = format!("cannot allocate {size} bytes on {device}");
                return Err(error_of::<PyMemoryError>(message).into());
            }
            driver.check("cuMemAlloc", status)
        })?;
        Ok(Self { address, context })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let Ok(driver) = Driver::get() else { return };
        // An error here cannot be answered for; at exit, the driver may have gone first.
        let _ = driver.relaxed_within(self.context, || {
            // SAFETY: allocated in `new`, and not used again (F7).
            let _ = unsafe { (driver.call.free)(self.address) };
            Ok(())
        });
    }
}
