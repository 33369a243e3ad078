//! Items that only language bindings need.

use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;

use dlbridge_sys::{DLManagedTensorVersioned, DLTensor};

use super::export_at;
use crate::layout::Placement;
pub use crate::layout::{Bytes, Comb, Place};
use crate::memory::Handle;
use crate::memory::descriptor::validate::{is_ordinary, validate};
pub use crate::memory::handle::KeepAlive;
use crate::memory::handle::ManagedTensor;
pub use crate::memory::handle::abi::RawFields;
use crate::memory::handle::abi::{self, not_null};
use crate::memory::handle::header::Owns;
pub use crate::memory::handle::header::room;
pub use crate::memory::handle::lease::Kept;
use crate::memory::handle::metadata::{Metadata, Origin};
use crate::memory::release::keep;
pub use crate::memory::release::{
    Binding, DeferredDrop, has_queued_releases, in_turn, queue_release, run_queued_releases,
};
pub use crate::memory::unwind::stopping_first;
pub use crate::memory::unwind::{Panic, Unwinds, catch, on_unwind, stopping};
use crate::memory::write::ElementsMut;
use crate::{Access, ArcTensor, DType, Device, Element, Error, Flags, Plain, Tensor, ViewMut};

/// As [`Tensor::from_raw`], but the binding decides when the deleter of the producer is called after
/// the last handle of the memory is dropped. This holds for all handles of the memory and their exports.
///
/// A process has one binding, the first. `binding` is called before its first tensor is imported.
///
/// # Safety
///
/// As for [`Tensor::from_raw`].
///
/// # Errors
///
/// As for [`Tensor::from_raw`].
#[inline(always)]
pub unsafe fn try_from_raw_bound<A: ManagedTensor>(
    tensor: *mut A,
    binding: fn() -> &'static Binding,
) -> Result<Tensor, Error> {
    keep(binding);
    // SAFETY: the caller's duty.
    unsafe { Handle::import(not_null(tensor)?, true) }.map(Tensor)
}

/// Calls the deleter of a managed tensor, in either ABI, that is not imported. The descriptor is
/// not validated.
///
/// # Safety
///
/// `tensor` is null or a tensor whose ownership the caller passes on.
#[inline]
pub unsafe fn release_raw<A: ManagedTensor>(tensor: *mut A) {
    if let Ok(tensor) = not_null(tensor) {
        // SAFETY: the caller's duty.
        unsafe { abi::delete(tensor) };
    }
}

/// Exports a tensor to code that keeps it alive: it calls the deleter once ([`release_raw`]), and
/// neither writes to the descriptor nor gives it to a consumer. Unlike [`Tensor::into_raw`], it may
/// share a header with other handles, so that nothing is allocated for it.
#[must_use = "the memory leaks unless the deleter is called"]
#[inline]
pub fn into_keeper(tensor: Tensor) -> *mut DLManagedTensorVersioned {
    tensor.0.into_keeper().as_ptr()
}

/// Keeps the memory of a tensor alive, without the tensor; of a part, the memory of the whole.
#[must_use]
pub fn keep_alive(tensor: &ArcTensor) -> Option<KeepAlive> {
    let tensor: &Tensor = tensor;
    KeepAlive::of_handle(&tensor.0)
}

/// The owner of a tensor's memory, if it is of type `O` and no other handle shares it.
///
/// # Safety
///
/// A reference to an `O` does not reach the elements of the tensor, as one to a vector does.
#[must_use]
pub unsafe fn sole_owner<O: Any + Sync>(tensor: &ArcTensor) -> Option<&O> {
    let tensor: &Tensor = tensor;
    if tensor.0.is_unique() { tensor.0.owner() } else { None }
}

/// Whether the owner of a tensor's memory is of type `O`. It stays so.
#[must_use]
#[inline]
pub fn has_owner<O: Any>(tensor: &ArcTensor) -> bool {
    let tensor: &Tensor = tensor;
    tensor.0.has_owner::<O>()
}

/// Exports memory that a plain descriptor describes and `owner` keeps alive. The shape and the
/// strides are copied; the descriptor is not used again. The class is [`Shared`](Access::Shared). The owner
/// is dropped in place, as an object of another language is, whose drops that language nests: for one that may
/// drop tensors, use [`from_holder_raw`]. For a chosen shape, [`Builder::build_raw`](crate::Builder::build_raw)
/// does the same.
///
/// # Safety
///
/// `tensor` is valid for reads, with lists of `ndim` numbers where they are not null. While
/// `owner` lives, also after it is moved, the elements satisfy the list of
/// [`Tensor::from_raw`] (T3, T6 to T9). The owner may be dropped on any thread.
///
/// # Errors
///
/// As for [`Tensor::from_raw`], less the version. The owner is dropped then.
#[inline]
pub unsafe fn from_owner_raw<O: Send + 'static>(
    owner: O,
    tensor: &DLTensor,
    flags: Flags,
) -> Result<Tensor, Error> {
    // SAFETY: the caller's duty.
    unsafe { from_raw_of(|| owner, Owns::Elements, tensor, flags) }
}

/// As [`Builder::build_raw`](crate::Builder::build_raw), with lists that are not copied before they are measured: a builder
/// of each owner's type is much code.
///
/// # Safety
///
/// As for `build_raw`.
///
/// # Errors
///
/// As for `build_raw`.
pub unsafe fn from_owner_at<O: Send + 'static>(
    owner: O,
    (dtype, shape, strides): (DType, &[i64], &[i64]),
    (data, device): (*mut c_void, Device),
    flags: Flags,
) -> Result<Tensor, Error> {
    let placement = Placement::new(dtype, shape, strides, 0, flags)?;
    // SAFETY: the caller's duty.
    unsafe { export_at(owner, &placement, data, device, flags) }.map(Tensor)
}

/// As [`from_owner_raw`], for an owner that may drop tensors, which may be of such owners as well: a chain of
/// them is dropped in a loop. `owner` is called once the descriptor was found to be valid, so that an error drops no owner.
///
/// # Safety
///
/// As for [`from_owner_raw`]. `owner` leaves the descriptor, its lists and the elements as they are.
///
/// # Errors
///
/// As for [`from_owner_raw`].
pub unsafe fn from_holder_raw<O: Send + 'static>(
    owner: impl FnOnce() -> O,
    tensor: &DLTensor,
    flags: Flags,
) -> Result<Tensor, Error> {
    // SAFETY: the caller's duty.
    unsafe { from_raw_of(owner, Owns::Anything, tensor, flags) }
}

/// # Safety
///
/// As for [`from_owner_raw`].
#[inline]
unsafe fn from_raw_of<O: Send + 'static>(
    owner: impl FnOnce() -> O,
    owns: Owns,
    tensor: &DLTensor,
    flags: Flags,
) -> Result<Tensor, Error> {
    let mut room = None;
    // SAFETY: the caller's duty.
    let checked = unsafe { validate(tensor, flags, &mut room) }?;
    // SAFETY: checked just now, and the owner keeps it alive (the caller's duty).
    unsafe { Handle::of_owner(owner(), owns, checked) }.map(Tensor)
}

/// A tensor over a descriptor that owns nothing: for a binding that keeps both until it ends them. `None` if the descriptor is not an ordinary one: strides that are there and not negative, host memory, whole
/// bytes, numbers of few bits.
///
/// # Safety
///
/// The descriptor satisfies the list of [`Tensor::from_raw`]; it is neither moved nor written, and its memory is not freed,
/// as long as the tensor is used. No other code gets the tensor itself: dropping it does nothing, and what is made of it by
/// value would own nothing.
#[must_use]
#[inline(always)]
pub unsafe fn borrowed(tensor: NonNull<DLTensor>, flags: Flags) -> Option<Tensor> {
    // SAFETY: alive, and not written (the caller's duty).
    let fields = unsafe { tensor.as_ref() };
    // SAFETY: the caller's duty.
    let is_ordinary = unsafe { is_ordinary(fields) };
    let metadata = Metadata::new(flags, Access::IMPORTED);
    // SAFETY: validated just now, and it has strides (R1); never exported (the caller's duty).
    is_ordinary.then(|| Tensor(unsafe { Handle::borrowed(tensor, metadata) }))
}

/// Whether a tensor is a [`borrowed`] one.
#[must_use]
#[inline(always)]
pub fn is_borrowed(tensor: &Tensor) -> bool {
    tensor.0.origin() == Origin::Borrowed
}

/// As [`from_owner_raw`], with the header of the tensor in memory of the owner's own: nothing is
/// allocated.
///
/// # Safety
///
/// As for [`from_owner_raw`]. The owner has `place`, wherever it is moved: [`room`] bytes for the
/// tensor's ndim, aligned as a `u64`, used by no other code, and freed when it is dropped. It is
/// never taken out ([`Tensor::into_owner`]).
///
/// # Errors
///
/// As for [`from_owner_raw`].
#[inline]
pub unsafe fn from_owner_within<O: Send + 'static>(
    place: NonNull<u8>,
    owner: O,
    tensor: &DLTensor,
    flags: Flags,
) -> Result<Tensor, Error> {
    const { assert!(align_of::<O>() <= align_of::<u64>()) };
    let mut room = None;
    // SAFETY: the caller's duty.
    let checked = unsafe { validate(tensor, flags, &mut room) }?;
    let (layout, memory) = (checked.layout(), checked.memory());
    // SAFETY: checked just now, and the owner keeps it alive (the caller's duty).
    let handle = unsafe {
        Handle::export_within(place, owner, layout.shape().len(), |_, lists| {
            Ok((lists.copy(layout), memory))
        })
    };
    handle.map(Tensor)
}

/// The fields of the producer's descriptor before normalisation; `None` for memory that Rust owns.
#[must_use]
pub fn raw_fields(tensor: &Tensor) -> Option<RawFields> {
    tensor.0.raw_fields()
}

/// Whether the memory was imported from a producer, whose deleter is called when the last tensor over
/// it is dropped.
#[must_use]
#[inline]
pub fn is_foreign(tensor: &Tensor) -> bool {
    tensor.0.is_foreign()
}

/// Whether [`Tensor::into_raw_legacy`] would succeed, which drops the tensor otherwise.
///
/// # Errors
///
/// As for [`Tensor::into_raw_legacy`].
pub fn check_legacy(tensor: &Tensor) -> Result<(), Error> {
    tensor.check_legacy()
}

/// A typed view to write through, for memory of any class. It takes a shared reference, because an
/// argument of a Python function need not be `mut`.
///
/// # Safety
///
/// While the view lives, no reference to an element exists; while one of its methods runs, no
/// other thread reads or writes the elements.
///
/// # Errors
///
/// [`ReadOnly`](Error::ReadOnly), [`DTypeMismatch`](Error::DTypeMismatch) or
/// [`NotHostAccessible`](Error::NotHostAccessible).
pub unsafe fn view_mut_unchecked<T: Element>(tensor: &Tensor) -> Result<ViewMut<'_, T>, Error> {
    // SAFETY: the caller's duty.
    unsafe { ElementsMut::new(tensor.checked()) }.map(ViewMut::from_elements)
}

/// The only element; `None` for another number of them, another type, or memory that the host cannot read.
#[must_use]
#[inline]
pub fn only<T: Element>(tensor: &Tensor) -> Option<T> {
    let checked = tensor.checked();
    let is_read =
        checked.dtype().word() == T::DTYPE.word() && checked.device().is_host_accessible();
    let is_one = checked.shape().iter().all(|&extent| extent == 1);
    // SAFETY: the element at index 0 of each axis, of a type and a device that were checked (R1, R2).
    (is_read && is_one).then(|| unsafe { T::read(checked.data()) })
}

/// The elements as a slice, for memory of any class: what [`Tensor::assume_frozen`] makes of them, without a copy of the
/// shape and strides.
///
/// # Safety
///
/// No code, in whatever language, writes the elements while the slice lives.
///
/// # Errors
///
/// Those of [`Tensor::as_slice`], but for the class.
#[inline]
pub unsafe fn slice_unchecked<T: Plain>(tensor: &Tensor) -> Result<&[T], Error> {
    let mut checked = tensor.checked();
    // True by the caller's duty (R4).
    checked.access = Access::Frozen;
    checked.slice()
}

/// The bytes of all elements, for memory of any class; see [`slice_unchecked`].
///
/// # Safety
///
/// No code, in whatever language, writes the elements while the slice lives.
///
/// # Errors
///
/// Those of [`Tensor::as_bytes`], but for the class.
pub unsafe fn bytes_unchecked(tensor: &Tensor) -> Result<&[u8], Error> {
    let mut checked = tensor.checked();
    // True by the caller's duty (R4).
    checked.access = Access::Frozen;
    checked.bytes()
}

/// The elements as a mutable slice, for memory of any class; see [`slice_unchecked`].
///
/// # Safety
///
/// No other code, in whatever language, reads or writes the elements while the slice lives.
///
/// # Errors
///
/// Those of [`Tensor::as_slice_mut`], but for the class.
#[inline]
pub unsafe fn slice_mut_unchecked<T: Plain>(tensor: &mut Tensor) -> Result<&mut [T], Error> {
    let mut checked = tensor.checked();
    // True by the caller's duty (R4).
    checked.access = Access::Exclusive;
    // SAFETY: the tensor is borrowed mutably for as long as the slice; nothing else uses the elements, by the caller's
    // duty (R5).
    unsafe { checked.slice_mut() }
}

/// The tensor with another class.
///
/// # Safety
///
/// The class is true of the elements for as long as there are tensors over them (`SAFETY.md`, access
/// classes).
#[must_use]
pub unsafe fn assume_class(mut tensor: Tensor, access: Access) -> Tensor {
    // SAFETY: the caller's duty (R4).
    unsafe { tensor.0.set_access(access) };
    tensor
}

/// The tensor as the legacy ABI would have carried it, which has no read-only flag: by that ABI it can be exported
/// again ([`Tensor::is_legacy_read_only`]).
///
/// # Safety
///
/// The producer exports this memory by the legacy ABI itself, whose consumers know that it must not be written.
#[must_use]
pub unsafe fn assume_legacy(mut tensor: Tensor) -> Tensor {
    tensor.0.set_legacy_read_only();
    tensor
}

/// The tensor's descriptor, which is validated and has explicit strides. It neither moves nor changes
/// before the tensor is dropped, moved into another one, or borrowed mutably.
#[must_use]
#[inline]
pub fn descriptor(tensor: &Tensor) -> *const DLTensor {
    tensor.0.descriptor()
}

/// The bytes of a tensor in memory that the host can access; `None` without elements.
#[must_use]
#[inline(always)]
pub fn bytes(tensor: &Tensor) -> Option<Bytes> {
    tensor.0.bytes()
}

/// A tensor of class [`Shared`](Access::Shared) that Rust keeps, with a borrow of its memory, which ends when the
/// last handle in Rust is dropped or [given](give) away.
///
/// # Safety
///
/// Until `borrow` is dropped, no code in Rust writes the tensor's memory.
///
/// # Panics
///
/// If the tensor is of another class.
#[must_use]
pub unsafe fn keep_borrowed(tensor: Tensor, borrow: Kept) -> Tensor {
    Tensor(tensor.0.kept(borrow))
}

/// The tensor for code outside Rust. If handles in Rust share its memory, `borrow` borrows it to read until
/// the last of them is dropped.
///
/// # Safety
///
/// Rust accesses the elements of the result only while the binding borrows them: the borrow that the tensor had
/// has ended. Until the value that `borrow` returns is dropped, no code in Rust writes these bytes.
#[must_use]
#[inline]
pub unsafe fn give(tensor: Tensor, borrow: fn(&Bytes) -> Kept) -> Tensor {
    Tensor(tensor.0.given(Some(borrow)))
}

/// As [`give`], for an object that code outside Rust shares. The class is no longer `Exclusive`.
///
/// # Safety
///
/// As for [`give`].
#[must_use]
#[inline]
pub unsafe fn give_shared(tensor: Tensor, borrow: fn(&Bytes) -> Kept) -> ArcTensor {
    tensor.into_given(borrow)
}

impl From<DeferredDrop> for Tensor {
    fn from(tensor: DeferredDrop) -> Self {
        Self(tensor.into_handle())
    }
}
