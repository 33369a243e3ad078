//! `RowLayout`: a layout that is measured once, for elements at many addresses.
//! Invariant: the layout was measured (R1); whose elements an address has is each caller's duty.

use std::ffi::c_void;

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

    /// The row at an address, to read; `None` if its elements are of another type. An `Option` stays in registers, where a
    /// `Result` goes through memory.
    ///
    /// # Safety
    ///
    /// For `'l`, every element that the layout reaches from `data` on is alive, and no other thread writes it during a
    /// call of the view.
    #[inline(always)]
    pub unsafe fn view<T: Element>(self, data: *mut c_void) -> Option<View<'l, T>> {
        // SAFETY: the caller's duty.
        let checked = unsafe { self.checked(data) };
        Elements::of_host(checked).map(View::from_elements)
    }

    /// The row at an address, to write; `None` if its elements are of another type.
    ///
    /// # Safety
    ///
    /// As for [`view`](Self::view). For `'l`, no reference to an element exists, and no other code accesses it.
    #[inline(always)]
    pub unsafe fn view_mut<T: Element>(self, data: *mut c_void) -> Option<ViewMut<'l, T>> {
        // SAFETY: the caller's duty.
        let checked = unsafe { self.checked(data) };
        // SAFETY: the caller's duty.
        unsafe { ElementsMut::of_host(checked) }.map(ViewMut::from_elements)
    }

    /// # Safety
    ///
    /// As for [`view`](Self::view).
    #[inline(always)]
    unsafe fn checked(self, data: *mut c_void) -> Checked<'l> {
        let memory = Memory {
            data: data.cast(),
            byte_offset: 0,
            device: Device::CPU,
            flags: Flags::NONE,
            access: Access::Shared,
        };
        // SAFETY: measured (this type's invariant); the elements are the caller's duty (R1, R2, R4).
        unsafe { Checked::new(self.0, memory) }
    }
}
