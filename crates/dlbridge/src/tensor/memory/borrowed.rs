//! `BorrowedTensor`: a `Tensor` over a plain descriptor of memory that it does not own (R1, R2).
//! Invariant: the handle inside is never exported.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::ptr::NonNull;

use dlbridge_sys::DLTensor;

use crate::layout::Layout;
use crate::memory::checked::Memory;
use crate::memory::descriptor::validate::{is_ordinary, validate_any};
use crate::memory::handle::metadata::Metadata;
use crate::memory::read::Elements;
use crate::memory::write::ElementsMut;
use crate::memory::{Checked, Handle};
use crate::{Access, DType, Device, Element, Error, Flags, MAX_RANK, Tensor, View, ViewMut};

/// A [`Tensor`] over a plain descriptor, which owns nothing: no allocation, and no deleter.
///
/// ```
/// use dlbridge::ffi::BorrowedTensor;
/// use dlbridge::{Flags, Tensor};
///
/// let tensor = Tensor::from(vec![1.5_f32, 2.5]);
/// let mut descriptor = tensor.as_raw();
/// let mut strides = BorrowedTensor::NO_STRIDES;
/// // SAFETY: the descriptor of `tensor`, which outlives `borrowed`.
/// let borrowed =
///     unsafe { BorrowedTensor::from_raw(&mut descriptor, &mut strides, Flags::READ_ONLY) }?;
/// assert_eq!(borrowed.view::<f32>()?.to_vec(), [1.5, 2.5]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
#[derive(Debug)]
pub struct BorrowedTensor<'a> {
    tensor: ManuallyDrop<Tensor>,
    descriptor: PhantomData<&'a mut DLTensor>,
}

impl<'a> BorrowedTensor<'a> {
    /// Space for the strides of a descriptor that has none.
    pub const NO_STRIDES: [MaybeUninit<i64>; MAX_RANK] =
        [const { MaybeUninit::uninit() }; MAX_RANK];

    /// Validates a plain descriptor. A descriptor without strides gets contiguous ones, stored in
    /// `strides`.
    ///
    /// # Safety
    ///
    /// `tensor` satisfies the list of [`Tensor::from_raw`], and its memory is neither freed nor moved,
    /// for `'a`.
    ///
    /// # Errors
    ///
    /// As for [`Tensor::from_raw`], less the version.
    #[inline(always)]
    pub unsafe fn from_raw(
        tensor: &'a mut DLTensor,
        strides: &'a mut [MaybeUninit<i64>; MAX_RANK],
        flags: Flags,
    ) -> Result<Self, Error> {
        // SAFETY: the caller's duty.
        if !unsafe { is_ordinary(tensor) } {
            // SAFETY: the same.
            unsafe { validate_unusual(tensor, strides, flags) }?;
        }
        let metadata = Metadata::new(flags, Access::IMPORTED);
        // SAFETY: validated just now, and it has strides (R1); the handle is never exported.
        let handle = unsafe { Handle::borrowed(NonNull::from(tensor), metadata) };
        Ok(Self { tensor: ManuallyDrop::new(Tensor(handle)), descriptor: PhantomData })
    }
}

/// # Safety
///
/// As for [`validate_any`].
#[cold]
#[inline(never)]
unsafe fn validate_unusual(
    tensor: &mut DLTensor,
    room: &mut [MaybeUninit<i64>; MAX_RANK],
    flags: Flags,
) -> Result<(), Error> {
    let mut added = None;
    // SAFETY: the caller's duty.
    unsafe { validate_any(tensor, flags, &mut added) }?;
    if let Some(strides) = added {
        for (place, &stride) in room.iter_mut().zip(strides.iter()) {
            place.write(stride);
        }
        tensor.strides = room.as_mut_ptr().cast();
    }
    Ok(())
}

impl Deref for BorrowedTensor<'_> {
    type Target = Tensor;

    #[inline(always)]
    fn deref(&self) -> &Tensor {
        &self.tensor
    }
}

// `RowLayout`: a layout that is measured once, for elements at many addresses.
// Invariant: the layout was measured (R1); whose elements an address has is each caller's duty.

/// The shape, strides and dtype of the rows of host memory: measured once, so that a row is a pointer.
#[derive(Clone, Copy, Debug)]
pub struct RowLayout<'l>(Layout<'l>);

impl<'l> RowLayout<'l> {
    /// Measures the layout of a row. Strides count elements.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::from_raw`](crate::Tensor::from_raw) for a shape and strides.
    #[inline]
    pub fn measure(shape: &'l [i64], strides: &'l [i64], dtype: DType) -> Result<Self, Error> {
        Layout::measure(shape, strides, dtype, Flags::NONE).map(Self)
    }

    /// The rows of one element type; `None` if the elements are of another one.
    #[inline]
    #[must_use]
    pub fn of<T: Element>(self) -> Option<TypedRow<'l, T>> {
        let is_typed = self.0.dtype() == T::DTYPE;
        is_typed.then_some(TypedRow { layout: self.0, element: PhantomData })
    }
}

/// A [`RowLayout`] of one element type, so that no row is checked.
/// Invariant: the layout was measured for `T`'s dtype.
#[derive(Clone, Copy, Debug)]
pub struct TypedRow<'l, T> {
    layout: Layout<'l>,
    element: PhantomData<T>,
}

impl<'l, T: Element> TypedRow<'l, T> {
    /// The row at an address, to read.
    ///
    /// # Safety
    ///
    /// For `'l`, every element that the layout reaches from `data` on is alive, and no other thread writes it during a
    /// call of the view.
    #[inline(always)]
    pub unsafe fn view(self, data: *mut c_void) -> View<'l, T> {
        // SAFETY: the caller's duty.
        View::from_elements(unsafe { self.elements(data) })
    }

    /// The row at an address, to write.
    ///
    /// # Safety
    ///
    /// As for [`view`](Self::view). For `'l`, no reference to an element exists, and no other code accesses it.
    #[inline(always)]
    pub unsafe fn view_mut(self, data: *mut c_void) -> ViewMut<'l, T> {
        // SAFETY: the caller's duty.
        let elements = unsafe { self.elements(data) };
        // SAFETY: the caller's duty.
        ViewMut::from_elements(unsafe { ElementsMut::of_elements(elements) })
    }

    /// # Safety
    ///
    /// As for [`view`](Self::view).
    #[inline(always)]
    unsafe fn elements(self, data: *mut c_void) -> Elements<'l, T> {
        let memory = Memory {
            data: data.cast(),
            byte_offset: 0,
            device: Device::CPU,
            flags: Flags::NONE,
            access: Access::Shared,
        };
        // SAFETY: measured for this dtype (this type's invariant; R1).
        let layout = unsafe {
            Layout::again(self.layout.shape(), self.layout.strides(), T::DTYPE, Flags::NONE)
        };
        // SAFETY: measured; the elements are the caller's duty (R1, R2, R4).
        let checked = unsafe { Checked::new(layout, memory) };
        // SAFETY: `T`'s dtype on the host, as it says just above (R1).
        unsafe { Elements::typed(checked) }
    }
}
