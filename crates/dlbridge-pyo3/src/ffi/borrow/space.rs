//! `Space`: the descriptor of an argument, in an allocation that its thread uses again, so that the argument needs no
//! header. A header is made when Rust keeps the tensor or Python gets it.
//! Invariant: a space belongs to the tensor that was made of it, or is unused in the list of one thread.

use std::cell::Cell;
use std::mem::{MaybeUninit, offset_of};
use std::ptr::NonNull;

use dlbridge::ffi::{borrowed, descriptor, from_owner_raw};
use dlbridge::sys::DLTensor;
use dlbridge::{Flags, Tensor};
use pyo3::Borrowed;
use pyo3::prelude::*;

use crate::Error;
use crate::release::Owner;

/// The axes that a space has room for.
const NDIM: usize = 4;

/// The unused spaces that a thread keeps.
const KEPT: usize = 32;

#[repr(C)]
struct Space {
    /// First, so that a space is found by it.
    descriptor: MaybeUninit<DLTensor>,
    shape: [i64; NDIM],
    strides: [i64; NDIM],
    /// What keeps the memory alive.
    object: Option<Owner<Py<PyAny>>>,
    /// Of unused spaces: the next one, and how many there are with this one.
    next: Option<NonNull<Self>>,
    count: usize,
}

thread_local! {
    /// Without a destructor, which each use would look at.
    static UNUSED: Cell<Option<NonNull<Space>>> = const { Cell::new(None) };
    static END: End = const { End };
}

/// Frees the unused spaces of a thread that ends.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        while UNUSED.get().is_some() {
            drop(Space::take());
        }
    }
}

impl Space {
    #[inline(always)]
    fn take() -> Box<Self> {
        let Some(space) = UNUSED.get() else { return Self::new() };
        // SAFETY: made of a box by `give_back`, and taken out of the list here (R7).
        let space = unsafe { Box::from_raw(space.as_ptr()) };
        UNUSED.set(space.next);
        space
    }

    #[cold]
    #[inline(never)]
    fn new() -> Box<Self> {
        let (descriptor, [shape, strides]) = (MaybeUninit::uninit(), [[0; NDIM]; 2]);
        Box::new(Self { descriptor, shape, strides, object: None, next: None, count: 0 })
    }

    #[inline(always)]
    fn give_back(mut self: Box<Self>) {
        let next = UNUSED.get();
        // SAFETY: a space in this thread's list, to which nothing else refers (R7).
        let count = next.map_or(0, |next| unsafe { next.as_ref() }.count);
        // A thread that ends frees its list, and has none any more.
        if count < KEPT && (count > 0 || END.try_with(|_| ()).is_ok()) {
            (self.next, self.count) = (next, count + 1);
            UNUSED.set(Some(NonNull::from(Box::leak(self))));
        }
    }
}

/// A tensor of an object's memory that no header keeps; `None` for a descriptor that is not ordinary, or of more axes
/// than a space has.
///
/// # Safety
///
/// As for [`from_owner_raw`] with the object as the owner, and for [`borrowed`]: only [`end`] or [`into_kept`] ends the tensor.
#[inline(never)]
pub(super) unsafe fn tensor(
    object: Borrowed<'_, '_, PyAny>,
    tensor: &DLTensor,
    flags: Flags,
) -> Option<Tensor> {
    let ndim = usize::try_from(tensor.ndim).ok().filter(|&ndim| ndim <= NDIM)?;
    if ndim != 0 && (tensor.shape.is_null() || tensor.strides.is_null()) {
        return None;
    }
    let mut space = Space::take();
    for axis in 0..ndim {
        // SAFETY: not null, so as many extents as axes (T2).
        space.shape[axis] = unsafe { tensor.shape.wrapping_add(axis).read() };
        // SAFETY: the same of strides (T2).
        space.strides[axis] = unsafe { tensor.strides.wrapping_add(axis).read() };
    }
    let space = Box::into_raw(space);
    let at = |offset| space.wrapping_byte_add(offset).cast();
    let (shape, strides) = (at(offset_of!(Space, shape)), at(offset_of!(Space, strides)));
    // SAFETY: a box that this function has (R7).
    unsafe { (*space).descriptor.write(DLTensor { shape, strides, ..*tensor }) };
    // SAFETY: of a box, so not null (R7).
    let at = unsafe { NonNull::new_unchecked(space) };
    // SAFETY: the space lives, and is not written, as long as the tensor; the memory by the caller's duty.
    let Some(tensor) = (unsafe { borrowed(at.cast(), flags) }) else {
        // SAFETY: the same box, of which no tensor was made (R7).
        unsafe { Box::from_raw(space) }.give_back();
        return None;
    };
    // SAFETY: the same box, by a pointer to it and not to the descriptor (R7).
    unsafe { (*space).object = Some(Owner::new(object.to_owned().unbind())) };
    Some(tensor)
}

/// # Safety
///
/// A tensor of a space, of which this is called once, and which is not used again.
#[inline(always)]
unsafe fn space_of(tensor: &Tensor) -> Box<Space> {
    // SAFETY: its descriptor is the first field, by a pointer to the whole space, which was made of a box (R7).
    unsafe { Box::from_raw(descriptor(tensor).cast::<Space>().cast_mut()) }
}

/// Ends a tensor of a space.
///
/// # Safety
///
/// It is called once, and the tensor is not used again.
#[inline]
pub(super) unsafe fn end(tensor: &Tensor) {
    // SAFETY: the caller's duty.
    let mut space = unsafe { space_of(tensor) };
    let object = space.object.take();
    space.give_back();
    // Last, since it may run Python code.
    drop(object);
}

/// The same memory with a header.
///
/// # Safety
///
/// As for [`end`].
#[inline(never)]
pub(super) unsafe fn into_kept(tensor: Tensor) -> Tensor {
    let (descriptor, flags) = (tensor.as_raw(), tensor.flags());
    // SAFETY: the caller's duty.
    let mut space = unsafe { space_of(&tensor) };
    let owner = space.object.take().expect("an object until the end");
    // SAFETY: the descriptor that was validated, whose lists the space still has; the memory by the duty of the caller
    // of `tensor`.
    let kept = unsafe { from_owner_raw(owner, &descriptor, flags) };
    space.give_back();
    kept.unwrap_or_else(|error| Error::from(error).impossible())
}
