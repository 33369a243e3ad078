//! Host memory that is allocated here, aligned to 64 bytes, and tensors that it fills.
//! Invariant: `data` owns `size` initialised bytes, or dangles if `size` is 0. They were allocated `skipped`
//! bytes before `data`, and the first `ROOM` of these are for the header of a tensor.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::ptr::{self, NonNull};
use std::slice;

use crate::layout::{Layout as Measured, Lists};
use crate::memory::Handle;
use crate::memory::checked::Memory;
use crate::memory::handle::header::{self, Header, Owns};
use crate::{Access, DType, Device, Error, Flags};

/// JAX copies memory that is aligned to less than this many bytes.
pub(crate) const ALIGN: usize = 64;

/// An alignment that every allocation has. The system's allocator is quick for no larger one: it finds a free piece in
/// a few instructions for eight hundred, and gets large zeroed pieces from the kernel without writing them, so that
/// `zeros` of 16 MB takes microseconds for milliseconds.
const SMALL_ALIGN: usize = 8;

/// With the room for its alignment, the largest size that glibc keeps in lists for each thread. `malloc` takes from
/// them and `calloc` does not: `zeros` of 32 bytes takes 200 instructions of 1,934 less by `malloc` and a fill.
const LISTED: usize = 960;

/// Bytes at an address that is a multiple of [`ALIGN`].
pub(crate) struct Buffer {
    data: NonNull<u8>,
    size: usize,
    skipped: usize,
}

// SAFETY: it owns its bytes, like a `Box<[u8]>` (R9).
unsafe impl Send for Buffer {}
// SAFETY: the same.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// # Errors
    ///
    /// [`OutOfMemory`](Error::OutOfMemory): callers choose the size, so that a lack of memory must not
    /// end the process.
    pub(crate) fn zeroed(size: usize) -> Result<Self, Error> {
        if size <= LISTED {
            let write = |target: *mut u8| {
                // SAFETY: fresh memory for as many bytes (R7).
                unsafe { target.write_bytes(0, size) };
                Ok(())
            };
            // SAFETY: it initialises all of them (R7).
            return unsafe { Self::written(size, write) };
        }
        // SAFETY: zeroed bytes are initialised (R7).
        unsafe { Self::allocated(size, alloc_zeroed) }
    }

    /// A buffer whose bytes `write` initialises, given the address of the first.
    ///
    /// # Safety
    ///
    /// Unless it returns an error, `write` has initialised `size` bytes.
    pub(crate) unsafe fn written(
        size: usize,
        write: impl FnOnce(*mut u8) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        // SAFETY: initialised below, before anything can read it (the caller's duty).
        let buffer = unsafe { Self::allocated(size, alloc) }?;
        write(buffer.data.as_ptr())?;
        Ok(buffer)
    }

    /// A copy of some bytes.
    pub(crate) fn copy_of(bytes: &[u8]) -> Result<Self, Error> {
        let write = |target: *mut u8| {
            // SAFETY: fresh memory for as many bytes (R7).
            unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            Ok(())
        };
        // SAFETY: it initialises all of them (R7).
        unsafe { Self::written(bytes.len(), write) }
    }

    /// # Safety
    ///
    /// `allocate` is a function of the global allocator. Bytes that it leaves uninitialised are
    /// written before they are read.
    unsafe fn allocated(
        size: usize,
        allocate: unsafe fn(Layout) -> *mut u8,
    ) -> Result<Self, Error> {
        if size == 0 {
            let dangling = ptr::without_provenance_mut(ALIGN);
            let data = NonNull::new(dangling).expect("64 is not null");
            return Ok(Self { data, size, skipped: 0 });
        }
        let none = || Error::OutOfMemory { size };
        let layout = padded(size).ok_or_else(none)?;
        // SAFETY: the size is not zero (R7).
        let base = NonNull::new(unsafe { allocate(layout) }).ok_or_else(none)?;
        let skipped = ROOM + (base.addr().get() + ROOM).wrapping_neg() % ALIGN;
        // SAFETY: fewer than the bytes that were allocated in addition (R7).
        let data = unsafe { base.add(skipped) };
        prefer_huge_pages(data, size);
        Ok(Self { data, size, skipped })
    }

    /// Where `ROOM` bytes are unused, as long as the buffer lives; `None` without bytes.
    fn room(&self) -> Option<NonNull<u8>> {
        // SAFETY: the start of its allocation (this type's invariant; R7).
        (self.size != 0).then(|| unsafe { self.data.sub(self.skipped) })
    }
}

/// The layout of an allocation in which `size` aligned bytes find room.
fn padded(size: usize) -> Option<Layout> {
    let size = size.checked_add(ROOM + ALIGN - SMALL_ALIGN)?;
    Layout::from_size_align(size, SMALL_ALIGN).ok()
}

/// Requests huge pages for a large buffer, as NumPy does for its arrays: filling 16 MB then takes two
/// thirds of the time, since there are few page faults. The request may fail without harm.
#[cfg(all(target_os = "linux", not(miri)))]
fn prefer_huge_pages(data: NonNull<u8>, size: usize) {
    use std::ffi::{c_int, c_void};
    const FROM: usize = 4 << 20;
    const PAGE: usize = 4096;
    const MADV_HUGEPAGE: c_int = 14;
    unsafe extern "C" {
        fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int;
    }
    if size >= FROM {
        let skipped = data.as_ptr().align_offset(PAGE);
        let first = data.as_ptr().wrapping_add(skipped);
        // SAFETY: a hint on whole pages inside the buffer, which changes nothing in them (R7).
        let _ = unsafe { madvise(first.cast(), size - skipped, MADV_HUGEPAGE) };
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn prefer_huge_pages(_: NonNull<u8>, _: usize) {}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(base) = self.room() else { return };
        // SAFETY: allocated there with this layout by `allocated`, freed here once (R7).
        unsafe { dealloc(base.as_ptr(), padded(self.size).expect("as it was allocated")) };
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: this type's invariant (R7).
        unsafe { slice::from_raw_parts(self.data.as_ptr(), self.size) }
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: this type's invariant, and the borrow is unique (R7).
        unsafe { slice::from_raw_parts_mut(self.data.as_ptr(), self.size) }
    }
}

/// The owner of elements in a buffer. Only this file names it, so that it is never taken out of the header, which
/// may lie in the buffer's own memory.
struct Filled(Buffer);

/// The axes for which a buffer has room.
const NDIM: usize = 4;

/// The bytes that a buffer has for a header: one allocation less, a third of what making a small tensor takes.
const ROOM: usize = {
    assert!(align_of::<Header>() <= SMALL_ALIGN && align_of::<Filled>() <= SMALL_ALIGN);
    header::room::<Filled>(NDIM)
};

/// Exports contiguous elements that fill a buffer of this crate.
pub(crate) fn export_buffer(
    buffer: Buffer,
    dtype: DType,
    shape: &[i64],
    flags: Flags,
) -> Result<Handle, Error> {
    let room = buffer.room().filter(|_| shape.len() <= NDIM);
    let (owner, ndim) = (Filled(buffer), shape.len());
    match room {
        // SAFETY: a buffer of this crate's own, which no other code has (R7), with all elements of the layout
        // that was measured (R1). It has `ROOM` bytes at this place, and is not taken out (`Filled`'s duty).
        Some(place) => unsafe {
            Handle::export_within(place, owner, ndim, |owner, lists| {
                owner.described(lists, dtype, shape, flags)
            })
        },
        // SAFETY: the same buffer and elements.
        None => unsafe {
            Handle::export(owner, Owns::Elements, ndim, |owner, lists| {
                owner.described(lists, dtype, shape, flags)
            })
        },
    }
}

impl Filled {
    #[inline(always)]
    fn described<'l>(
        &mut self,
        lists: Lists<'l>,
        dtype: DType,
        shape: &[i64],
        flags: Flags,
    ) -> Result<(Measured<'l>, Memory), Error> {
        let (layout, bytes) = (lists.contiguous(shape, dtype, flags)?, self.0.as_mut());
        let (size, found) = (layout.nbytes(), bytes.len());
        if found < size {
            return Err(Error::OutOfBounds { low: 0, high: size as isize, size: found });
        }
        let (device, access) = (Device::CPU, Access::Exclusive);
        Ok((layout, Memory { data: bytes.as_mut_ptr(), byte_offset: 0, device, flags, access }))
    }
}
