//! Copies elements of any type, as bytes, to contiguous row-major memory.

use super::buffer::Buffer;
use super::strided::{copy_strided, copy_strided_bytes};
use crate::layout::{self, Blocks};
use crate::raw::Checked;
use crate::{Error, Flags, ShapeField};

impl Checked<'_> {
    /// A contiguous copy of the elements, in row-major order.
    pub(crate) fn to_buffer(self) -> Result<Buffer, Error> {
        self.check_host()?;
        let write = |target| {
            // SAFETY: host memory (checked), and fresh memory for as many bytes (R7).
            unsafe { self.copy_bytes_to(target) }
        };
        // SAFETY: it writes all bytes of the tensor (R1).
        unsafe { Buffer::written(self.nbytes(), write) }
    }

    /// Copies the elements, in row-major order, to a slice of their size.
    pub(crate) fn copy_to_bytes(self, target: &mut [u8]) -> Result<(), Error> {
        self.check_host()?;
        let (expected, found) = (self.nbytes(), target.len());
        if expected != found {
            return Err(Error::ShapeMismatch { field: ShapeField::Size, expected, found });
        }
        // SAFETY: host memory (checked), and a unique borrow of as many bytes (R2).
        unsafe { self.copy_bytes_to(target.as_mut_ptr()) }
    }

    /// Copies contiguous elements to `block`, one part after the other, and passes each to `function`.
    pub(crate) fn copy_by_blocks<E: From<Error>>(
        self,
        block: &mut [u8],
        mut function: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check_host()?;
        self.check_contiguous()?;
        let (size, mut done) = (self.nbytes(), 0);
        while done < size {
            let part = block.len().min(size - done);
            let source = self.data.wrapping_add(done);
            // SAFETY: so many bytes are contiguous from there on (R1, R2), and the block is borrowed
            // mutably and has as many.
            unsafe { source.copy_to_nonoverlapping(block.as_mut_ptr(), part) };
            function(&block[..part])?;
            done += part;
        }
        Ok(())
    }

    /// Writes [`nbytes`](Self::nbytes) bytes to `target`, unless it returns an error.
    ///
    /// # Safety
    ///
    /// The elements are in host memory; `target` is valid for writes of as many bytes.
    unsafe fn copy_bytes_to(&self, target: *mut u8) -> Result<(), Error> {
        if self.is_contiguous() {
            // SAFETY: so many bytes are contiguous from `data` on (R1, R2), and the target is other
            // memory (the caller's duty).
            unsafe { self.data.copy_to_nonoverlapping(target, self.nbytes()) };
            return Ok(());
        }
        if self.dtype().itemsize().is_none() && !self.flags.contains(Flags::SUBBYTE_PADDED) {
            return Err(Error::SubByte { padded: false, dtype: self.dtype() });
        }
        let size = layout::nbytes(1, self.dtype(), self.flags)?;
        let blocks = Blocks::new(self.shape(), self.strides());
        let copy = match size {
            1 => copy_strided::<u8>,
            2 => copy_strided::<u16>,
            4 => copy_strided::<u32>,
            8 => copy_strided::<u64>,
            16 => copy_strided::<u128>,
            _ => {
                // SAFETY: elements of this size (R1, R2), and a target for all of them.
                unsafe { copy_strided_bytes(self.data, target, &blocks, size) };
                return Ok(());
            }
        };
        // SAFETY: elements of this size (R1, R2), read as integers, and a target for all of them.
        unsafe { copy(self.data, target, &blocks) };
        Ok(())
    }
}
