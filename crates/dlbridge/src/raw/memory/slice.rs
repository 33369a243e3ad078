//! Checked parts to Rust slices.
//! Strided access does not belong here (see `elements` and `write`).
//! Invariant: R5 of this folder.

use std::slice;

use crate::raw::Parts;
use crate::{Access, Error, Plain};

impl<'a> Parts<'a> {
    /// The elements as a slice, if nobody can write them meanwhile.
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

    /// The bytes of all elements, if nobody can write them meanwhile. Any type, any address.
    pub(crate) fn bytes(self) -> Result<&'a [u8], Error> {
        self.check_host()?;
        self.check_unwritten()?;
        self.check_contiguous()?;
        if self.len() == 0 {
            return Ok(&[]);
        }
        // SAFETY: host memory, `nbytes` bytes side by side (checked above; R1, R2), initialised
        // (T3, `Element`'s duty), and nobody writes them (R4).
        Ok(unsafe { slice::from_raw_parts(self.data, self.nbytes()) })
    }

    /// Refuses memory that another language may write meanwhile.
    #[inline]
    pub(crate) fn check_unwritten(&self) -> Result<(), Error> {
        match self.access {
            Access::Exclusive | Access::Frozen => Ok(()),
            Access::Shared => Err(Error::SharedMemory),
        }
    }

    /// Refuses memory that anybody else can reach, or that must not be written.
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

    /// The first element's address: host memory of this dtype, aligned, never null.
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
