//! Stack space for the descriptor of borrowed memory, and the order of writing and using it.
//! Filling it belongs to `published` and `numpy`.
//! Invariant: the type code is [`UNWRITTEN`] until a descriptor is written, and again before an object's
//! Python code runs. A [`Described`] keeps the space borrowed, and calling an object needs a [`Forgotten`].
//! So no Python code of an object runs between the writing of its descriptor and the last use of it.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

use dlbridge::ffi::BorrowedTensor;
use dlbridge::sys::{DLDataType, DLDataTypeCode, DLTensor};
use dlbridge::{Device, Flags, MAX_RANK, Tensor, TypeCode};

/// The code of no type. Marks an unwritten descriptor.
pub(crate) const UNWRITTEN: TypeCode = TypeCode(u8::MAX);

/// Space for a descriptor, and for strides that are converted to elements.
pub(crate) struct DescriptorSpace {
    pub(crate) descriptor: DLTensor,
    pub(crate) strides: [MaybeUninit<i64>; MAX_RANK],
}

impl DescriptorSpace {
    #[inline(always)]
    pub(crate) fn empty() -> Self {
        Self { descriptor: unwritten(), strides: BorrowedTensor::NO_STRIDES }
    }

    #[inline(always)]
    pub(crate) fn code(&self) -> TypeCode {
        TypeCode(self.descriptor.dtype.code.0)
    }

    /// The descriptor, if one was written.
    #[inline(always)]
    pub(crate) fn described(&mut self, flags: Flags) -> Option<Described<'_>> {
        (self.code() != UNWRITTEN).then_some(Described { descriptor: &mut self.descriptor, flags })
    }
}

#[inline(always)]
fn unwritten() -> DLTensor {
    DLTensor {
        data: ptr::null_mut(),
        device: Device::CPU.into(),
        ndim: 0,
        dtype: DLDataType { code: DLDataTypeCode(UNWRITTEN.0), bits: 0, lanes: 0 },
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    }
}

/// A descriptor that was written, with the flags of its memory.
pub(crate) struct Described<'p> {
    descriptor: &'p mut DLTensor,
    flags: Flags,
}

impl<'p> Described<'p> {
    #[inline(always)]
    pub(crate) fn parts(self) -> (&'p mut DLTensor, Flags) {
        (self.descriptor, self.flags)
    }
}

/// Proof that no descriptor of an object's memory is in use, so that its Python code may run, which
/// could move or free that memory.
pub(crate) struct Forgotten<'p>(PhantomData<&'p mut DescriptorSpace>);

impl<'p> Forgotten<'p> {
    pub(crate) fn space(space: &'p mut DescriptorSpace) -> Self {
        space.descriptor = unwritten();
        Self(PhantomData)
    }

    pub(crate) fn tensor(tensor: Tensor) -> Self {
        drop(tensor);
        Self(PhantomData)
    }
}
