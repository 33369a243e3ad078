//! The header of an export: descriptor, owner, shape and strides in one allocation, which may be the owner's (R3, R6).

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::any::{Any, TypeId};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use dlbridge_sys::{DLManagedTensor, DLManagedTensorVersioned, DLTensor};

use super::abi::{Abi, Own};
use super::metadata::{Metadata, Origin};
use crate::layout::{Layout as Measured, Lists};
use crate::memory::descriptor::checked::{self, Checked, Memory};
use crate::memory::release::header_in_turn;
use crate::memory::unwind::catch;
use crate::{Error, Flags};

/// The part of a header that does not depend on the owner's type.
///
/// Consumers get a pointer to `descriptor`, which is also the address of the header.
#[repr(C)]
pub(crate) struct Header {
    /// Initialised as versioned; exported in place, where only `flags` is updated, or rewritten for the
    /// legacy ABI. After an export nothing relies on it, since a consumer may change it.
    descriptor: MaybeUninit<Descriptor>,
    /// The export of a header that other handles share, for one consumer at a time: only `export::lend` writes
    /// it, and only the consumer uses it.
    pub(super) lent: UnsafeCell<MaybeUninit<Lent>>,
    /// Drops the owner and frees the header.
    destroy: DestroyFn,
    owner_type: TypeId,
    ndim: u32,
    /// The number of handles. An exported one counts until its deleter is called.
    handles: AtomicU32,
    /// Whether a consumer has `lent`.
    pub(super) is_lent: AtomicBool,
}

type DestroyFn = unsafe fn(NonNull<u8>);

/// What an owner owns, which decides how its header is destroyed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owns {
    /// No tensor, for all that Rust knows: it is dropped in place.
    Elements,
    /// May own tensors: dropped through `in_turn`, which loops.
    Anything,
}

impl Owns {
    #[inline]
    fn destroys<O: 'static>(self) -> DestroyFn {
        match self {
            Self::Elements => destroy::<O>,
            Self::Anything => destroy_in_turn::<O>,
        }
    }
}

#[repr(C)]
union Descriptor {
    versioned: ManuallyDrop<DLManagedTensorVersioned>,
    legacy: ManuallyDrop<DLManagedTensor>,
}

/// A header with its owner; shape and strides follow it in the same allocation.
#[repr(C)]
struct Owned<O> {
    header: Header,
    owner: O,
}

/// Where shape and strides start, and the layout of the whole.
fn allocation<O>(ndim: usize) -> (Layout, usize) {
    let numbers = Layout::array::<i64>(2 * ndim).expect("ndim is small");
    Layout::new::<Owned<O>>().extend(numbers).expect("headers are small")
}

/// Moves `owner` into a header, which exports what `describe` returns. `describe` gets the owner at
/// its final address, and zeroed lists for shape and strides.
///
/// # Safety
///
/// The memory that `describe` returns has the elements of the layout that it returns, of this class
/// (R1, R4), while the owner lives and no other code uses it; the owner may be dropped on
/// any thread.
#[inline]
pub(crate) unsafe fn allocate<O: Send + 'static>(
    owner: O,
    owns: Owns,
    ndim: usize,
    describe: impl for<'l> FnOnce(&mut O, Lists<'l>) -> Result<(Measured<'l>, Memory), Error>,
) -> Result<(NonNull<Header>, Metadata), Error> {
    let (layout, _) = allocation::<O>(ndim);
    // SAFETY: a header is never of size 0 (R7).
    let start = unsafe { alloc(layout) };
    let Some(header) = NonNull::new(start.cast::<Header>()) else { handle_alloc_error(layout) };
    // SAFETY: fresh memory of this layout, which `destroy` frees (R7); the rest is the caller's duty.
    unsafe { fill(header, owner, owns.destroys::<O>(), ndim, describe) }
}

/// The bytes of a header for an owner of type `O`, with its lists.
#[must_use]
pub const fn room<O>(ndim: usize) -> usize {
    size_of::<Owned<O>>().next_multiple_of(align_of::<i64>()) + 2 * ndim * size_of::<i64>()
}

/// As [`allocate`], in memory of the owner's own.
///
/// # Safety
///
/// As for [`allocate`]. The owner has `place`, wherever it is moved: [`room`] bytes, aligned, used by no other code, and
/// freed when it is dropped. It is never taken out of the header.
#[inline]
pub(crate) unsafe fn within<O: Send + 'static>(
    place: NonNull<u8>,
    owner: O,
    ndim: usize,
    describe: impl for<'l> FnOnce(&mut O, Lists<'l>) -> Result<(Measured<'l>, Memory), Error>,
) -> Result<(NonNull<Header>, Metadata), Error> {
    // SAFETY: memory of this layout, which the owner frees (the caller's duty).
    unsafe { fill(place.cast(), owner, destroy_within::<O>, ndim, describe) }
}

/// # Safety
///
/// As for [`allocate`]; `header` is memory of the layout for `O` and this ndim, which `destroy` frees.
#[inline(always)]
unsafe fn fill<O: Send + 'static>(
    header: NonNull<Header>,
    owner: O,
    destroy: DestroyFn,
    ndim: usize,
    describe: impl for<'l> FnOnce(&mut O, Lists<'l>) -> Result<(Measured<'l>, Memory), Error>,
) -> Result<(NonNull<Header>, Metadata), Error> {
    let (start, (_, numbers_at)) = (header.as_ptr().cast::<u8>(), allocation::<O>(ndim));
    let content = Owned {
        header: Header {
            descriptor: MaybeUninit::uninit(),
            lent: UnsafeCell::new(MaybeUninit::uninit()),
            destroy,
            owner_type: TypeId::of::<O>(),
            ndim: ndim as u32,
            handles: AtomicU32::new(1),
            is_lent: AtomicBool::new(false),
        },
        owner,
    };
    let owned = start.cast::<Owned<O>>();
    // SAFETY: memory of this layout (the caller's duty; R7).
    unsafe { owned.write(content) };
    // From here on, an error or a panic drops the owner and frees the header.
    let guard = Guard(header);
    // SAFETY: the lists' place within the allocation, as `allocation` laid it out (R7).
    let shape_at = unsafe { start.add(numbers_at) }.cast::<i64>();
    // SAFETY: `2 * ndim` numbers fit there (R7).
    unsafe { shape_at.write_bytes(0, 2 * ndim) };
    // SAFETY: the same.
    let strides_at = unsafe { shape_at.add(ndim) };
    // SAFETY: written just now, and not shared (R7).
    let numbers = unsafe { slice::from_raw_parts_mut(shape_at, 2 * ndim) };
    let (shape, strides) = numbers.split_at_mut(ndim);
    // SAFETY: written above; this borrow is the only one (R7).
    let owner = unsafe { &mut *owner_of::<O>(header) };
    let (measured, memory) = describe(owner, Lists::new(shape, strides))?;
    std::mem::forget(guard);
    // SAFETY: the caller's duty. The lists are the header's own.
    let checked = unsafe { Checked::new(measured, memory) };
    debug_assert_eq!(checked.shape().as_ptr(), shape_at, "measured in the header");
    debug_assert_eq!(checked.strides().as_ptr(), strides_at, "measured in the header");
    // A consumer may write the lists: by these pointers, and not by the references that were measured.
    let tensor = DLTensor { shape: shape_at, strides: strides_at, ..checked::describe(&checked) };
    // SAFETY: the header was not exported, and this is what it exports (R3).
    unsafe { write::<DLManagedTensorVersioned>(header, checked.flags, tensor) };
    Ok((header, Metadata::new(checked.flags, checked.access).with_origin(Origin::Header)))
}

/// The descriptor inside a header that was not exported.
#[inline]
pub(crate) fn tensor_of(header: NonNull<Header>) -> NonNull<DLTensor> {
    let descriptor = header.as_ptr().cast::<DLManagedTensorVersioned>();
    let tensor = descriptor.wrapping_byte_add(DLManagedTensorVersioned::TENSOR_AT).cast();
    // SAFETY: inside the header's allocation (R6).
    unsafe { NonNull::new_unchecked(tensor) }
}

/// Destroys a header that was not finished.
struct Guard(NonNull<Header>);

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: the header is whole and has no other handle (R3).
        unsafe { drop_owner(self.0) };
    }
}

/// Drops the owner of a header and frees it.
///
/// # Safety
///
/// `header` was made for an owner of type `O`, and is not used again.
unsafe fn destroy<O: 'static>(header: NonNull<u8>) {
    let free = Free::<O>(header.cast());
    // SAFETY: the owner is alive, and dropped here once (the caller's duty). Should it panic,
    // `free` still frees the header.
    unsafe { owner_of::<O>(header.cast()).drop_in_place() };
    drop(free);
}

/// The same for an owner that may own tensors. A chain of owners uses no more stack than a few of them.
///
/// # Safety
///
/// As for [`destroy`].
#[inline(never)]
unsafe fn destroy_in_turn<O: 'static>(header: NonNull<u8>) {
    // SAFETY: the caller's duty; it is called once, with this header (R3).
    let destroy: fn(NonNull<u8>) = |header| unsafe { destroy::<O>(header) };
    header_in_turn(header, destroy);
}

/// # Safety
///
/// As for [`destroy`]; the header was made by [`within`].
unsafe fn destroy_within<O: 'static>(header: NonNull<u8>) {
    // SAFETY: alive, and read once; its drop frees the header (the caller's duty; R3).
    drop(unsafe { owner_of::<O>(header.cast()).read() });
}

/// The address of the owner in a header made for one of type `O`.
fn owner_of<O>(header: NonNull<Header>) -> *mut O {
    header.as_ptr().wrapping_byte_add(std::mem::offset_of!(Owned<O>, owner)).cast()
}

/// Frees a header whose owner is gone.
struct Free<O>(NonNull<Owned<O>>);

impl<O> Drop for Free<O> {
    fn drop(&mut self) {
        // SAFETY: the header is alive until this line; no reference is made to the owner (R6).
        let ndim = unsafe { (*self.0.as_ptr()).header.ndim };
        let (layout, _) = allocation::<O>(ndim as usize);
        // SAFETY: allocated with this layout: `ndim` is out of a consumer's reach (R6).
        unsafe { dealloc(self.0.as_ptr().cast(), layout) };
    }
}

/// Whether the caller has the only handle of a header. No other code can make one then.
///
/// # Safety
///
/// The caller has a handle.
#[inline]
pub(crate) unsafe fn is_unique(header: NonNull<Header>) -> bool {
    // SAFETY: alive, by the caller's duty; no consumer writes the count (R6). Acquire: all uses through
    // other handles, which were dropped, happened before.
    unsafe { &(*header.as_ptr()).handles }.load(Ordering::Acquire) == 1
}

/// Counts another handle.
///
/// # Safety
///
/// The caller has a handle.
#[inline]
pub(crate) unsafe fn retain(header: NonNull<Header>) {
    // SAFETY: alive, by the caller's duty (R6).
    let before = unsafe { &(*header.as_ptr()).handles }.fetch_add(1, Ordering::Relaxed);
    // Only handles that are forgotten in a loop reach this; a count that wraps would free too early. As `Arc` does:
    if before > u32::MAX / 2 {
        std::process::abort();
    }
}

/// Drops a handle, and with the last one the header.
///
/// # Safety
///
/// The caller has a handle, and forgets it.
#[inline]
pub(crate) unsafe fn drop_handle(header: NonNull<Header>) {
    // SAFETY: the caller's duty.
    if !unsafe { is_unique(header) } {
        // SAFETY: alive until the count is reduced, in this line (R6).
        let before = unsafe { &(*header.as_ptr()).handles }.fetch_sub(1, Ordering::Release);
        if before != 1 {
            return;
        }
        fence(Ordering::Acquire);
    }
    // SAFETY: this was the last handle (R3).
    unsafe { drop_owner(header) };
}

/// Drops the owner of a header and frees it.
///
/// # Safety
///
/// The caller has the only handle, and forgets it.
unsafe fn drop_owner(header: NonNull<Header>) {
    // SAFETY: alive, by the caller's duty.
    let destroy = unsafe { header.as_ref() }.destroy;
    // SAFETY: made for this header's owner, and called once (R3).
    unsafe { destroy(header.cast()) };
}

/// Whether the owner of a header is one of type `O`.
///
/// # Safety
///
/// The header is alive.
#[inline]
pub(crate) unsafe fn has_owner<O: Any>(header: NonNull<Header>) -> bool {
    // SAFETY: alive, by the caller's duty; no reference to the descriptor, which a consumer may write (R6).
    unsafe { (*header.as_ptr()).owner_type == TypeId::of::<O>() }
}

/// The owner of a header, if it is one of type `O`.
///
/// # Safety
///
/// The header is alive for `'a`, and its owner is only read as long.
pub(crate) unsafe fn owner<'a, O: Any>(header: NonNull<Header>) -> Option<&'a O> {
    // SAFETY: alive, by the caller's duty.
    if !unsafe { has_owner::<O>(header) } {
        return None;
    }
    // SAFETY: the owner is of this type, and no code writes it (the caller's duty).
    Some(unsafe { &*owner_of::<O>(header) })
}

/// Takes the owner out of a header and frees the rest; returns the header if its owner is of another
/// type.
///
/// # Safety
///
/// The header is owned by the caller, and no borrow of it is left.
pub(crate) unsafe fn take_owner<O: Any>(header: NonNull<Header>) -> Result<O, NonNull<Header>> {
    // SAFETY: alive, by the caller's duty.
    if !unsafe { has_owner::<O>(header) } {
        return Err(header);
    }
    // SAFETY: of this type, alive, and read once: the header is freed without it (the caller's duty; R3).
    let owner = unsafe { owner_of::<O>(header).read() };
    drop(Free::<O>(header.cast()));
    Ok(owner)
}

/// A static: a generic function may have an address in each crate, and exports are recognised by it.
pub(super) static OWN: Own = (delete::<DLManagedTensorVersioned>, delete::<DLManagedTensor>);

/// Exports the header as a versioned managed tensor, which it was initialised as.
///
/// # Safety
///
/// The header is owned by the caller, and `flags` are its current flags.
#[inline]
pub(crate) unsafe fn expose(
    header: NonNull<Header>,
    flags: Flags,
) -> NonNull<DLManagedTensorVersioned> {
    let descriptor = header.cast::<DLManagedTensorVersioned>();
    // SAFETY: the descriptor is a header's first field, and was written by `allocate` (R6).
    unsafe { (*descriptor.as_ptr()).flags = flags.0 };
    descriptor
}

/// Exports the header as a legacy managed tensor, rewritten as such.
///
/// # Safety
///
/// The header is owned by the caller.
pub(crate) unsafe fn expose_legacy(header: NonNull<Header>) -> NonNull<DLManagedTensor> {
    // SAFETY: written by `allocate`, and not exported (R6).
    let tensor = unsafe { tensor_of(header).read() };
    // SAFETY: the caller's duty.
    unsafe { write(header, Flags::NONE, tensor) }
}

/// Writes the managed tensor, in one of the ABIs, and returns its address.
///
/// # Safety
///
/// The header is owned by the caller; `tensor` is what it was made with.
#[inline]
unsafe fn write<A: Abi>(header: NonNull<Header>, flags: Flags, tensor: DLTensor) -> NonNull<A> {
    const { assert!(size_of::<A>() <= size_of::<Descriptor>()) };
    const { assert!(std::mem::offset_of!(Header, descriptor) == 0) };
    let context = header.as_ptr().cast::<c_void>();
    let descriptor = header.cast::<A>();
    // SAFETY: the descriptor is a header's first field, and large enough for either ABI (R6).
    unsafe { descriptor.write(A::new(context, OWN, flags, tensor)) };
    descriptor
}

/// The header of a managed tensor that this library exported, recognised by its deleter, and whether
/// the tensor was lent.
///
/// # Safety
///
/// `tensor` is valid.
pub(crate) unsafe fn of_export<A: Abi>(tensor: NonNull<A>) -> Option<(NonNull<Header>, bool)> {
    // SAFETY: valid (the caller's duty).
    let found = unsafe { A::deleter(tensor) }?;
    let is = |own| std::ptr::fn_addr_eq(found, A::own_deleter(own));
    if is(OWN) {
        return Some((tensor.cast(), false));
    }
    // SAFETY: a field of a header, as its deleter says (R3).
    is(LENT).then(|| (unsafe { tensor.byte_sub(LENT_AT) }.cast(), true))
}

/// The deleter of every export, in either ABI. A panic in the drop of the owner stops here: it must
/// not cross into C.
///
/// # Safety
///
/// `tensor` came from [`expose`] or [`expose_legacy`] and is deleted once.
pub(super) unsafe extern "C" fn delete<A: Abi>(tensor: *mut A) {
    let Some(header) = NonNull::new(tensor.cast::<Header>()) else { return };
    // SAFETY: `expose` returned the header's own address, and the consumer, which calls this once, owned
    // a handle (R3, C2).
    let _ = catch(|| unsafe { drop_handle(header) });
}

/// A descriptor with lists of its own.
#[repr(C)]
pub(super) struct Lent {
    pub(super) managed: DLManagedTensorVersioned,
    pub(super) shape: [i64; LENT_NDIM],
    pub(super) strides: [i64; LENT_NDIM],
}

/// The highest ndim of a descriptor that is lent.
pub(super) const LENT_NDIM: usize = 4;

/// The offset of [`Header::lent`].
pub(super) const LENT_AT: usize = std::mem::offset_of!(Header, lent);

/// The deleters of what `export::lend` exports: a static, as those of all exports are.
pub(super) static LENT: Own = (take_back, delete::<DLManagedTensor>);

/// The deleter of what `export::lend` exports.
///
/// # Safety
///
/// `tensor` came from `export::lend` and is deleted once.
unsafe extern "C" fn take_back(tensor: *mut DLManagedTensorVersioned) {
    let Some(tensor) = NonNull::new(tensor) else { return };
    // SAFETY: `lend` returned this field of a header, and the consumer owned a handle (R3, C2).
    let header: NonNull<Header> = unsafe { tensor.byte_sub(LENT_AT) }.cast();
    // Release: the consumer had done with it before the next `lend`.
    // SAFETY: alive as long as the consumer's handle counts; no consumer writes the mark (R6).
    unsafe { &(*header.as_ptr()).is_lent }.store(false, Ordering::Release);
    // SAFETY: the consumer's handle, which ends here, once (R3, C2).
    let _ = catch(|| unsafe { drop_handle(header) });
}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::sync::atomic::Ordering;

    use crate::Tensor;

    #[test]
    fn too_many_handles_end_the_process() {
        const CHILD: &str = "DLBRIDGE_TEST_TOO_MANY_HANDLES";
        if std::env::var_os(CHILD).is_some() {
            let shared = Tensor::from(vec![1]).into_frozen();
            let header = shared.0.header().expect("made with one");
            // SAFETY: alive as long as `shared`; leaked handles reach such a count (R3).
            unsafe { &(*header.as_ptr()).handles }.store(u32::MAX / 2 + 1, Ordering::Relaxed);
            std::mem::forget((shared.clone(), shared));
            return;
        }
        let name = "memory::handle::header::tests::too_many_handles_end_the_process";
        let mut program = Command::new(std::env::current_exe().expect("a test program"));
        let output = program.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output();
        let output = output.expect("it runs");
        assert_eq!(output.status.signal(), Some(6), "SIGABRT");
    }
}
