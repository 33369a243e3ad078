//! `Borrowed`: a tensor and the borrow of its memory, which together prove what safe code may do.
//! Invariant: the borrow is of this tensor's memory, and lives as long.

use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::{ptr, slice};

use dlbridge::{Access, Element, Tensor, TensorMut, TensorRef, ViewMut};

use super::promise::Promised;
use super::table::WITHOUT_SLOT;
use super::{refusal, table};
use crate::{Error, Result};

/// A tensor whose memory is borrowed, until this is dropped.
#[derive(Debug)]
pub(crate) struct Borrowed {
    /// The number of the borrow, with `WRITES` if it is one to write; or `NONE`.
    borrow: u32,
    tensor: Tensor,
}

/// No borrow is necessary, or none is wanted.
const NONE: u32 = u32::MAX;
const WRITES: u32 = 1 << 31;

impl Drop for Borrowed {
    /// Ends the borrow before the tensor is dropped, since the table has the address of the tensor's
    /// descriptor, and a deleter may run Python code that borrows the memory.
    #[inline]
    fn drop(&mut self) {
        self.end_borrow();
    }
}

impl Borrowed {
    /// Borrows the memory of a tensor to read. Only memory of class `Shared` may have writers.
    #[inline]
    pub(crate) fn read(tensor: Tensor) -> Result<Self> {
        if tensor.access() != Access::Shared {
            return Ok(Self::unborrowed(tensor));
        }
        // SAFETY: `Borrowed` ends the borrow before it gives the tensor up (F11).
        match unsafe { table().read(&tensor) } {
            Ok(borrow) => Ok(Self { borrow, tensor }),
            Err(conflict) => Err(refusal(&tensor, conflict)),
        }
    }

    /// Borrows the memory of a tensor to write.
    pub(crate) fn write(tensor: Tensor) -> Result<Self> {
        if tensor.access() != Access::Shared {
            return Ok(Self::unborrowed(tensor));
        }
        // SAFETY: as above (F11).
        match unsafe { table().write(&tensor) } {
            Ok(number) => {
                Ok(Self { borrow: number.map_or(NONE, |number| number | WRITES), tensor })
            }
            Err(conflict) => Err(refusal(&tensor, conflict)),
        }
    }

    /// A tensor whose memory is not borrowed.
    #[inline]
    pub(crate) fn unborrowed(tensor: Tensor) -> Self {
        Self { borrow: NONE, tensor }
    }

    #[inline]
    pub(crate) fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Ends the borrow, since the tensor may be replaced.
    pub(crate) fn tensor_mut(&mut self) -> &mut Tensor {
        self.end_borrow();
        &mut self.tensor
    }

    /// Ends the borrow.
    #[inline]
    pub(crate) fn into_inner(mut self) -> Tensor {
        self.end_borrow();
        let this = ManuallyDrop::new(self);
        // SAFETY: taken once, from a value that is forgotten (R7).
        unsafe { ptr::read(&raw const this.tensor) }
    }

    #[inline]
    fn end_borrow(&mut self) {
        let borrow = mem::replace(&mut self.borrow, NONE);
        // One comparison for all that is no borrow to read with a slot.
        if borrow < WITHOUT_SLOT {
            table().release_read(borrow, &self.tensor);
        } else if borrow != NONE {
            self.end_other(borrow);
        }
    }

    #[cold]
    fn end_other(&self, borrow: u32) {
        match borrow & WRITES {
            0 => table().release_without_slot(),
            _ => table().release_write(borrow & !WRITES, &self.tensor),
        }
    }

    /// Whether no other borrow of the memory exists.
    fn writes(&self) -> bool {
        self.borrow & WRITES != 0
    }

    /// A view to write, for any thread.
    ///
    /// # Panics
    ///
    /// If the memory is borrowed to read.
    pub(crate) fn view_mut<T: Element>(&mut self) -> Result<ViewMut<'_, T>> {
        assert!(self.writes(), "borrowed to write, or no borrow is necessary");
        // SAFETY: no other argument, slice or view has the memory while the borrow lives, and this one
        // is borrowed mutably (F11); other code does not access it meanwhile (T6, T8).
        Ok(unsafe { dlbridge::ffi::view_mut_unchecked(&self.tensor) }?)
    }

    /// The memory as if no code could write it.
    pub(crate) fn frozen<P: Promised>(&self, _: PhantomData<P>) -> TensorRef<'_> {
        // SAFETY: no Rust code writes, because of the borrow (F11); no other code, by the duty of
        // `StableArguments`.
        unsafe { self.tensor.assume_frozen() }
    }

    /// The memory as if no other code could access it.
    ///
    /// # Panics
    ///
    /// If the memory is borrowed to read.
    pub(crate) fn exclusive<P: Promised>(&mut self, _: PhantomData<P>) -> Result<TensorMut<'_>> {
        assert!(self.writes(), "borrowed to write, or no borrow is necessary");
        // SAFETY: no Rust code accesses the memory, because of the borrow (F11); no other code, by the duty
        // of `StableArguments`.
        Ok(unsafe { self.tensor.assume_exclusive() }?)
    }

    /// The elements as booleans, each of which was checked.
    pub(crate) fn bools<P: Promised>(&self, promise: PhantomData<P>) -> Result<&[bool]> {
        let frozen = self.frozen(promise);
        let bytes = frozen.as_bytes()?;
        match bytes.iter().find(|&&byte| byte > 1) {
            // SAFETY: as long and as aligned as bytes; 0 or 1, which no code changes, as long as `self` is
            // borrowed (R5, and the duty of `StableArguments`).
            None => Ok(unsafe { slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }),
            Some(byte) => Err(Error::buffer(format!(
                "expected booleans of 0 or 1, found {byte}; pass x.astype(\"uint8\") != 0"
            ))),
        }
    }
}
