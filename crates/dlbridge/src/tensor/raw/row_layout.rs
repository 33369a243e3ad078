//! `RowLayout`: a layout that is measured once, for elements at many addresses.
//! Invariant: the layout was measured (R1); whose elements an address has is each caller's duty.

use std::ffi::c_void;
use std::marker::PhantomData;

use crate::layout::Layout;
use crate::raw::Checked;
use crate::raw::checked::Memory;
use crate::raw::elements::Elements;
use crate::raw::write::ElementsMut;
use crate::{Access, DType, Device, Element, Error, Flags, View, ViewMut};

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
