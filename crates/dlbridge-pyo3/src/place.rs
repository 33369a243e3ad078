//! Where a descriptor lies while the memory that it describes is lent: on the stack.
//! Filling it belongs to `exchange` and `numpy`.
//! Invariant: a slot's type code can be read at any time; it is [`UNWRITTEN`] until there is a
//! descriptor.

use std::mem::MaybeUninit;

use dlbridge::sys::DLTensor;
use dlbridge::{LentTensor, MAX_RANK, TypeCode};

/// The code of no type. Where it stands, nobody has written a descriptor.
pub(crate) const UNWRITTEN: TypeCode = TypeCode(u8::MAX);

/// A place for a descriptor, and for the strides of one that counts them in another way.
pub(crate) struct Place {
    pub(crate) descriptor: Slot,
    pub(crate) strides: [MaybeUninit<i64>; MAX_RANK],
}

impl Place {
    #[inline(always)]
    pub(crate) const fn empty() -> Self {
        Self { descriptor: Slot::empty(), strides: LentTensor::NO_STRIDES }
    }
}

/// A place for a descriptor alone.
pub(crate) struct Slot(MaybeUninit<DLTensor>);

impl Slot {
    /// All of it but the type code is left as it is.
    #[inline(always)]
    const fn empty() -> Self {
        let mut descriptor = MaybeUninit::<DLTensor>::uninit();
        // SAFETY: within the descriptor's place (F9).
        let code = unsafe { &raw mut (*descriptor.as_mut_ptr()).dtype.code.0 };
        // SAFETY: the same.
        unsafe { code.write(UNWRITTEN.0) };
        Self(descriptor)
    }

    #[inline(always)]
    pub(crate) fn write(&mut self, descriptor: DLTensor) {
        self.0.write(descriptor);
    }

    /// For somebody to write a descriptor.
    #[inline(always)]
    pub(crate) fn as_mut_ptr(&mut self) -> *mut DLTensor {
        self.0.as_mut_ptr()
    }

    #[inline(always)]
    pub(crate) fn code(&self) -> TypeCode {
        // SAFETY: written from the start (F9).
        TypeCode(unsafe { (*self.0.as_ptr()).dtype.code.0 })
    }

    /// # Safety
    ///
    /// A descriptor was written.
    #[inline(always)]
    pub(crate) unsafe fn get(&mut self) -> &mut DLTensor {
        // SAFETY: the caller's duty.
        unsafe { self.0.assume_init_mut() }
    }
}
