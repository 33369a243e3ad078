//! Stack space for the descriptor of borrowed memory, and the order of writing and using it.
//! Filling it belongs to `exchange` and `numpy`.
//! Invariant: a slot's type code can be read at any time. It is [`UNWRITTEN`] until a descriptor is
//! written, and again before an object's Python code runs. A [`Described`] keeps the space
//! borrowed, and calling an object needs a [`Forgotten`]. So no Python code of an object runs
//! between the writing of its descriptor and the last use of it.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use dlbridge::ffi::BorrowedTensor;
use dlbridge::sys::DLTensor;
use dlbridge::{Flags, MAX_RANK, Tensor, TypeCode};

use crate::Result;

/// The code of no type. Marks an unwritten descriptor.
pub(crate) const UNWRITTEN: TypeCode = TypeCode(u8::MAX);

/// Space for a descriptor, and for strides that are converted to elements.
pub(crate) struct DescriptorSpace {
    pub(crate) descriptor: DescriptorSlot,
    pub(crate) strides: [MaybeUninit<i64>; MAX_RANK],
}

impl DescriptorSpace {
    #[inline(always)]
    pub(crate) const fn empty() -> Self {
        Self { descriptor: DescriptorSlot::empty(), strides: BorrowedTensor::NO_STRIDES }
    }

    /// The descriptor, if one was written.
    #[inline(always)]
    pub(crate) fn described(&mut self, flags: Flags) -> Option<Described<'_>> {
        (self.descriptor.code() != UNWRITTEN).then_some(Described { space: self, flags })
    }
}

/// A descriptor that was written, with the flags of its memory.
pub(crate) struct Described<'p> {
    space: &'p mut DescriptorSpace,
    flags: Flags,
}

impl<'p> Described<'p> {
    /// Validates the descriptor and borrows its memory. `strides` is space for the strides of a
    /// descriptor without strides.
    ///
    /// # Safety
    ///
    /// The descriptor satisfies `SAFETY.md`'s list of trust as long as the tensor is used.
    #[inline(always)]
    pub(crate) unsafe fn tensor(
        self,
        strides: &'p mut [MaybeUninit<i64>; MAX_RANK],
    ) -> Result<BorrowedTensor<'p>> {
        // SAFETY: a `Described` is made of a written descriptor (F9).
        let descriptor = unsafe { self.space.descriptor.get() };
        // SAFETY: the caller's duty.
        Ok(unsafe { BorrowedTensor::from_raw(descriptor, strides, self.flags) }?)
    }
}

/// Proof that no descriptor of an object's memory is in use, so that its Python code may run, which
/// could move or free that memory.
pub(crate) struct Forgotten<'p>(PhantomData<&'p mut DescriptorSpace>);

impl<'p> Forgotten<'p> {
    pub(crate) fn space(space: &'p mut DescriptorSpace) -> Self {
        space.descriptor = DescriptorSlot::empty();
        Self(PhantomData)
    }

    pub(crate) fn tensor(tensor: Tensor) -> Self {
        drop(tensor);
        Self(PhantomData)
    }
}

/// Space for a descriptor alone.
pub(crate) struct DescriptorSlot(MaybeUninit<DLTensor>);

impl DescriptorSlot {
    /// Initialises only the type code.
    #[inline(always)]
    const fn empty() -> Self {
        let mut descriptor = MaybeUninit::<DLTensor>::uninit();
        // SAFETY: within the space of the descriptor (F9).
        let code = unsafe { &raw mut (*descriptor.as_mut_ptr()).dtype.code.0 };
        // SAFETY: the same.
        unsafe { code.write(UNWRITTEN.0) };
        Self(descriptor)
    }

    #[inline(always)]
    pub(crate) fn write(&mut self, descriptor: DLTensor) {
        self.0.write(descriptor);
    }

    /// The address for a descriptor.
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
