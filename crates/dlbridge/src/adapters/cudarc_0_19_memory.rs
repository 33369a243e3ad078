//! Where a slice's memory lies, and slices over tensors. Memory that a tensor owns is never freed by
//! cudarc, and is in use by none of its streams when the tensor may free it.
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt::Display;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::{Arc, Mutex};

use cudarc::driver::{CudaSlice, CudaStream, CudaViewMut, DevicePtr};

use super::cudarc_0_19_free_memory::{Current, OrderedOwner};
use crate::layout::Placement;
use crate::memory::owner::export_on;
use crate::memory::{Checked, Handle, Plain};
use crate::{Access, Device, Error, Flags, Tensor};

/// The owner of every exported slice, whatever its elements, so that it can be found again.
type Owner = OrderedOwner<CudaSlice<u8>>;

/// The owner of every exported slice that it borrows, of whatever type.
type Borrower = OrderedOwner<Mutex<Box<dyn Any + Send>>>;

/// The handle that means the default stream of whichever thread uses it.
const PER_THREAD: usize = 2;

/// The same stream, or for one of a single thread the default one, which waits for it: a tensor goes
/// to any thread.
fn of_all_threads(stream: &Arc<CudaStream>) -> Arc<CudaStream> {
    if stream.cu_stream().addr() != PER_THREAD {
        return Arc::clone(stream);
    }
    let default = stream.context().default_stream();
    stream.context().record_err(default.join(stream));
    default
}

/// The same memory as elements of another type.
fn retyped<T, U>(slice: CudaSlice<T>) -> CudaSlice<U> {
    let (stream, len) = (Arc::clone(slice.stream()), slice.num_bytes() / size_of::<U>());
    // Makes the stream wait for all work on the slice.
    let data = slice.leak();
    let stream = of_all_threads(&stream);
    // SAFETY: an allocation of `len` such elements, which `leak` gave up (R7).
    unsafe { stream.upgrade_device_ptr(data, len) }
}

/// Exports a slice's memory.
pub(crate) fn export_slice<T: Plain>(
    slice: CudaSlice<T>,
    placement: &Placement<'_>,
) -> Result<Handle, Error> {
    let device = Device::cuda(slice.ordinal() as i32);
    let _current = current(slice.stream())?;
    let slice = retyped(slice);
    let owner: Owner = OrderedOwner::new(Arc::clone(slice.stream()), slice);
    // SAFETY: the allocation of a slice that moved in (R4).
    unsafe {
        export_on(device, owner, placement, Flags::NONE, Access::Exclusive, |owner| {
            let slice = owner.owner();
            let (data, _recorded) = slice.device_ptr(slice.stream());
            (ptr::without_provenance_mut(data as usize), slice.num_bytes())
        })
    }
}

/// Exports a slice that an owner borrows, read-only.
pub(crate) fn export_borrowed<O: Send + 'static, T: Plain>(
    owner: O,
    placement: &Placement<'_>,
    slice: impl FnOnce(&O) -> Result<&CudaSlice<T>, Error>,
) -> Result<Handle, Error> {
    // The slice stays in place when the box is moved.
    let owner = Box::new(owner);
    let slice = slice(&owner)?;
    let (device, size) = (Device::cuda(slice.ordinal() as i32), slice.num_bytes());
    let _current = current(slice.stream())?;
    // Makes the stream wait for writes on other streams.
    let (data, recorded) = slice.device_ptr(slice.stream());
    drop(recorded);
    let stream = of_all_threads(slice.stream());
    let data = ptr::without_provenance_mut(data as usize);
    // Never locked; a mutex makes the owner `Sync`.
    let owner: Borrower = OrderedOwner::new(stream, Mutex::new(owner));
    let memory = |_: &mut Borrower| (data, size);
    // SAFETY: the slice of `owner`, which no code writes while `owner` lives (R4).
    unsafe { export_on(device, owner, placement, Flags::READ_ONLY, Access::Frozen, memory) }
}

/// The slice of an export, if its memory is a number of elements of this type.
pub(crate) fn take_slice<T: Plain>(handle: Handle) -> Result<CudaSlice<T>, Handle> {
    let size = handle.owner::<Owner>().map_or(1, |owner| owner.owner().num_bytes());
    if handle.checked().dtype() != T::DTYPE || size % size_of::<T>() != 0 {
        return Err(handle);
    }
    handle.into_owner::<Owner>().map(|owner| retyped(owner.into_owner()))
}

/// The stream on which all work on an exported slice is ordered.
pub(crate) fn producer(tensor: &Tensor) -> Option<&Arc<CudaStream>> {
    let mut handle = &tensor.0;
    while let Some(inner) = handle.inner() {
        handle = inner;
    }
    let owner = handle.owner::<Owner>().map(OrderedOwner::stream);
    owner.or_else(|| handle.owner::<Borrower>().map(OrderedOwner::stream))
}

/// Declares that code in other languages may queue work on a tensor's memory, if it is that of a slice.
pub(crate) fn leave(tensor: &Tensor) {
    let mut handle = &tensor.0;
    while let Some(inner) = handle.inner() {
        handle = inner;
    }
    if let Some(owner) = handle.owner::<Owner>() {
        owner.leave();
    } else if let Some(owner) = handle.owner::<Borrower>() {
        owner.leave();
    }
}

/// Rejects memory that cannot be a slice on the device of a stream.
pub(crate) fn check_slice<T: Plain>(checked: Checked<'_>, expected: Device) -> Result<(), Error> {
    checked.check_dtype(T::DTYPE)?;
    let found = checked.device();
    if found != expected {
        return Err(Error::DeviceMismatch { found, expected });
    }
    checked.check_contiguous()?;
    let (address, align) = (checked.data().addr(), align_of::<T>());
    if checked.len() > 0 && address % align != 0 {
        return Err(Error::Misaligned { address, align });
    }
    Ok(())
}

/// How the work queued on a borrowed slice ends before the memory may be freed.
enum End {
    /// The memory is freed in the order of the same stream.
    Ordered,
    /// The memory's own stream waits.
    Event(Arc<CudaStream>),
    /// The stream that uses the memory next is unknown, so the host waits.
    Wait,
}

/// A slice over a tensor's memory. When it is dropped, none of cudarc's streams uses the memory.
struct BorrowedSlice<T> {
    slice: ManuallyDrop<CudaSlice<T>>,
    end: End,
}

impl<T: Plain> BorrowedSlice<T> {
    /// Orders what `stream` does next after what was queued on the memory's own stream.
    ///
    /// # Safety
    ///
    /// The memory outlives this value, which is dropped.
    unsafe fn new(tensor: &Tensor, stream: &Arc<CudaStream>) -> Result<Self, Error> {
        let _current = current(stream)?;
        let checked = tensor.checked();
        check_slice::<T>(checked, Device::cuda(stream.context().ordinal() as i32))?;
        let end = match producer(tensor) {
            None => {
                // A tensor of another producer is ready on the default stream.
                let default = stream.context().default_stream();
                stream.join(&default).map_err(driver("waiting for the default stream"))?;
                End::Wait
            }
            Some(producer) if producer == stream => End::Ordered,
            Some(producer) => {
                stream.join(producer).map_err(driver("waiting for the tensor's stream"))?;
                End::Event(Arc::clone(producer))
            }
        };
        let data = checked.data().addr() as u64;
        // SAFETY: memory of the stream's device, of as many elements (R1, checked above), which
        // is not freed through this slice: `drop` leaks it.
        let slice = unsafe { stream.upgrade_device_ptr(data, checked.len()) };
        Ok(Self { slice: ManuallyDrop::new(slice), end })
    }
}

impl<T> Drop for BorrowedSlice<T> {
    fn drop(&mut self) {
        // SAFETY: taken once, here (R7).
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        let stream = Arc::clone(slice.stream());
        let _current = current(&stream);
        // Makes the stream wait for views that other streams used; frees nothing.
        slice.leak();
        let ended = match &self.end {
            End::Ordered => Ok(()),
            End::Event(producer) => producer.join(&stream),
            End::Wait => stream.synchronize(),
        };
        stream.context().record_err(ended);
    }
}

/// A slice and the tensor that owns its memory, dropped in this order.
pub(crate) struct Owned<T> {
    borrowed: BorrowedSlice<T>,
    tensor: Tensor,
}

impl<T: Plain> Owned<T> {
    pub(crate) fn new(tensor: Tensor, stream: &Arc<CudaStream>) -> Result<Self, Error> {
        // SAFETY: the tensor is dropped after the slice, and forgotten if that is (R2).
        let borrowed = unsafe { BorrowedSlice::new(&tensor, stream) }?;
        Ok(Self { borrowed, tensor })
    }

    pub(crate) fn view_mut(&mut self) -> Result<CudaViewMut<'_, T>, Error> {
        self.tensor.checked().check_exclusive()?;
        Ok(self.borrowed.slice.as_view_mut())
    }
}

impl<T> Owned<T> {
    pub(crate) fn slice(&self) -> &CudaSlice<T> {
        &self.borrowed.slice
    }

    pub(crate) fn tensor(&self) -> &Tensor {
        &self.tensor
    }
}

/// Calls `call` with a slice. A value that the caller could forget would leave work in the queue of a
/// stream when the tensor is dropped.
pub(crate) fn with_slice<T: Plain, R>(
    tensor: &Tensor,
    stream: &Arc<CudaStream>,
    call: impl FnOnce(&CudaSlice<T>) -> R,
) -> Result<R, Error> {
    let _current = current(stream)?;
    // SAFETY: the tensor is borrowed until this value is dropped, which happens here (R2).
    let borrowed = unsafe { BorrowedSlice::new(tensor, stream) }?;
    Ok(call(&borrowed.slice))
}

/// The same, to be written.
pub(crate) fn with_view_mut<T: Plain, R>(
    tensor: &mut Tensor,
    stream: &Arc<CudaStream>,
    call: impl FnOnce(CudaViewMut<'_, T>) -> R,
) -> Result<R, Error> {
    tensor.checked().check_exclusive()?;
    let _current = current(stream)?;
    // SAFETY: as above.
    let mut borrowed = unsafe { BorrowedSlice::new(tensor, stream) }?;
    Ok(call(borrowed.slice.as_view_mut()))
}

/// Makes the context of a stream current for the calls of cudarc, which would leave it current.
pub(crate) fn current(stream: &CudaStream) -> Result<Current, Error> {
    Current::new(stream.context()).map_err(driver("making the device current"))
}

/// Adds the attempted operation to an error of the driver.
pub(crate) fn driver<E: Display>(doing: &'static str) -> impl FnOnce(E) -> Error {
    move |error| Error::Refused { by: "driver", reason: format!("{doing}: {error}") }
}

#[cfg(test)]
mod tests {
    use super::check_slice;
    use crate::{Access, Device, Error, Tensor, ffi};
    use dlbridge_sys::DLDeviceType;
    use dlbridge_testing::Foreign;

    fn import(foreign: Foreign) -> Tensor {
        let descriptor = foreign.into_versioned();
        // SAFETY: a descriptor of the test's own (R7).
        let fields = unsafe { &mut *descriptor };
        fields.dl_tensor.device.device_type = DLDeviceType::CUDA;
        fields.dl_tensor.device.device_id = 1;
        // SAFETY: nobody reads what is said to lie on a device (T7).
        let tensor = unsafe { Tensor::from_raw(descriptor) }.expect("legal");
        // SAFETY: a descriptor of the test's own (R4).
        unsafe { ffi::assume_class(tensor, Access::Exclusive) }
    }

    #[test]
    fn only_memory_of_the_streams_device_is_a_slice() {
        let check = |foreign: Foreign, ordinal| {
            check_slice::<i32>(import(foreign).checked(), Device::cuda(ordinal))
        };
        let of = |shape: &[i64]| Foreign::new(shape, &[1_i32, 2, 3, 4]);
        assert_eq!(check(of(&[4]), 1), Ok(()));
        assert_eq!(check(of(&[2, 2]), 1), Ok(()));
        assert_eq!(check(of(&[]), 1), Ok(()));
        assert_eq!(check(of(&[0, 9]).data(std::ptr::null_mut()), 1), Ok(()));
        let (found, expected) = (Device::cuda(1), Device::cuda(0));
        assert_eq!(check(of(&[4]), 0), Err(Error::DeviceMismatch { found, expected }));
        let gap = Error::NotContiguous { axis: 0, stride: 2, expected: 1 };
        assert_eq!(check(of(&[2]).strides(&[2]), 1), Err(gap));
        assert!(matches!(check(of(&[2]).data_at(2), 1), Err(Error::Misaligned { .. })));
        let other = check_slice::<f32>(import(of(&[4])).checked(), Device::cuda(1));
        assert!(matches!(other, Err(Error::DTypeMismatch { .. })));
    }
}
