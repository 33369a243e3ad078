//! Slices over checked memory: class, type, device, layout and alignment are verified first (R5).

use std::slice;

use super::write::ElementsMut;
use crate::memory::descriptor::Borrowed;
use crate::memory::{Checked, Element, Handle};
use crate::{Access, DType, Error, Plain, TypeCode};

impl<'a> Checked<'a> {
    /// The elements as a slice, if no code can write them.
    #[inline]
    pub(crate) fn slice<T: Plain>(self) -> Result<&'a [T], Error> {
        self.check_dtype(T::DTYPE)?;
        self.check_unwritten()?;
        let data = self.contiguous_data::<T>()?;
        // SAFETY: aligned, host memory, `len` contiguous elements (checked above; R1, R2), every
        // bit pattern a value (R5), and no code writes them (R4).
        Ok(unsafe { slice::from_raw_parts(data, self.len()) })
    }

    /// The elements as a mutable slice.
    ///
    /// # Safety
    ///
    /// `self` was borrowed mutably for `'a` from its owner.
    #[inline]
    pub(crate) unsafe fn slice_mut<T: Plain>(self) -> Result<&'a mut [T], Error> {
        self.check_dtype(T::DTYPE)?;
        self.check_exclusive()?;
        let data = self.contiguous_data::<T>()?;
        // SAFETY: as in `slice`; no other code can reach the elements (R4, and the caller's duty).
        Ok(unsafe { slice::from_raw_parts_mut(data, self.len()) })
    }

    /// The bytes of all elements, if no code can write them. Any type, any address.
    pub(crate) fn bytes(self) -> Result<&'a [u8], Error> {
        self.check_host()?;
        self.check_unwritten()?;
        self.check_contiguous()?;
        if self.len() == 0 {
            return Ok(&[]);
        }
        // SAFETY: host memory, `nbytes` contiguous bytes (checked above; R1, R2), initialised
        // (T3, `Element`'s duty), and no code writes them (R4).
        Ok(unsafe { slice::from_raw_parts(self.data, self.nbytes()) })
    }

    /// The bytes of all elements, to be written. Any type but `bool`, any address.
    ///
    /// # Safety
    ///
    /// `self` was borrowed mutably for `'a` from its owner.
    pub(crate) unsafe fn bytes_mut(self) -> Result<&'a mut [u8], Error> {
        // Their owner may be a `Vec<bool>`, which must not hold other bytes than 0 and 1.
        if self.dtype().code == TypeCode::BOOL {
            return Err(Error::DTypeMismatch { found: self.dtype(), expected: DType::U8 });
        }
        self.check_host()?;
        self.check_exclusive()?;
        self.check_contiguous()?;
        if self.len() == 0 {
            return Ok(&mut []);
        }
        // SAFETY: as in `bytes`; no other code can reach the elements (R4, and the caller's duty), and
        // every bit pattern is a value of a type other than `bool` (R8).
        Ok(unsafe { slice::from_raw_parts_mut(self.data, self.nbytes()) })
    }

    /// Rejects memory that another language may write.
    #[inline]
    pub(crate) fn check_unwritten(&self) -> Result<(), Error> {
        match self.access {
            Access::Exclusive | Access::Frozen => Ok(()),
            Access::Shared => Err(Error::SharedMemory),
        }
    }

    /// Rejects memory that other code can reach, or that must not be written.
    #[inline]
    pub(crate) fn check_exclusive(&self) -> Result<(), Error> {
        match self.access {
            Access::Exclusive => self.check_writable(),
            Access::Frozen => Err(Error::ReadOnly),
            Access::Shared => Err(Error::SharedMemory),
        }
    }

    #[inline]
    fn contiguous_data<T: Plain>(&self) -> Result<*mut T, Error> {
        self.check_contiguous()?;
        self.typed_data()
    }

    /// The address of the first element: host memory of this dtype, aligned, never null.
    #[inline]
    pub(crate) fn typed_data<T: Plain>(&self) -> Result<*mut T, Error> {
        self.check_dtype(T::DTYPE)?;
        self.check_host()?;
        let data = self.data.cast::<T>();
        if self.len() == 0 {
            return Ok(std::ptr::dangling_mut());
        }
        if !data.is_aligned() {
            let (address, align) = (self.data.addr(), align_of::<T>());
            return Err(Error::Misaligned { address, align });
        }
        Ok(data)
    }
}

// Mutable access to elements through a unique borrow of the handle or description that has them.
// Access to memory of another class belongs to `tensor/memory/mod.rs`.

/// A description of memory that can be borrowed mutably.
pub(crate) trait Described {
    fn described(&self) -> Checked<'_>;
}

impl Described for Handle {
    fn described(&self) -> Checked<'_> {
        self.checked()
    }
}

impl Described for Borrowed<'_> {
    fn described(&self) -> Checked<'_> {
        self.checked()
    }
}

pub(crate) fn slice_mut<T: Plain>(memory: &mut impl Described) -> Result<&mut [T], Error> {
    // SAFETY: `memory` is borrowed mutably as long as the slice (R2).
    unsafe { memory.described().slice_mut() }
}

pub(crate) fn bytes_mut(memory: &mut impl Described) -> Result<&mut [u8], Error> {
    // SAFETY: `memory` is borrowed mutably as long as the bytes (R2).
    unsafe { memory.described().bytes_mut() }
}

pub(crate) fn elements_mut<T: Element>(
    memory: &mut impl Described,
) -> Result<ElementsMut<'_, T>, Error> {
    let checked = memory.described();
    checked.check_exclusive()?;
    // SAFETY: `memory` is borrowed mutably as long, and no other code can reach the elements (R4).
    unsafe { ElementsMut::new(checked) }
}
