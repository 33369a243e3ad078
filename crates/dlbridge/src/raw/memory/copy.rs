//! Copies elements of any type, as bytes, to compact row-major memory.
//! Typed reading does not belong here (see `elements`).
//! Invariant: reads only where the layout has elements, writes only the target given.

use crate::layout::{self, Runs};
use crate::raw::Parts;
use crate::{Error, Flags};

impl Parts<'_> {
    /// Copies the elements to `target`, which must have [`nbytes`](Self::nbytes) bytes.
    pub(crate) fn copy_bytes_to(&self, target: &mut [u8]) -> Result<(), Error> {
        self.check_host()?;
        assert_eq!(target.len(), self.nbytes(), "the target has the tensor's size");
        if self.is_contiguous() {
            // SAFETY: `nbytes` bytes lie side by side from `data` on (R1, R2), and the target is
            // a unique borrow of as many.
            unsafe { self.data.copy_to_nonoverlapping(target.as_mut_ptr(), target.len()) };
            return Ok(());
        }
        if self.dtype().itemsize().is_none() && !self.flags.contains(Flags::SUBBYTE_PADDED) {
            return Err(Error::PackedElements { dtype: self.dtype() });
        }
        let size = layout::nbytes(1, self.dtype(), self.flags)?;
        let mut target = target.chunks_exact_mut(size);
        for run in Runs::new(self.shape(), self.strides(), self.len()) {
            for i in 0..run.len as isize {
                let offset = (run.start + i * run.step) * size as isize;
                let to = target.next().expect("a chunk for each element").as_mut_ptr();
                let from = self.data.wrapping_offset(offset);
                // SAFETY: the layout has an element of `size` bytes at this offset (R1), and the
                // target is other memory.
                unsafe { from.copy_to_nonoverlapping(to, size) };
            }
        }
        Ok(())
    }
}
