//! A checked description of borrowed memory, which brings its own shape and strides.
//! Owning memory does not belong here (see `managed`).
//! Invariants: R1 and R2 of this folder.

use std::marker::PhantomData;

use dlbridge_sys::DLTensor;

use super::Parts;
use super::header::Memory;
use super::parse::parse;
use crate::dims::Dims;
use crate::{Access, DType, Device, Error, Flags};

/// Describes memory that is borrowed for `'a`. No heap up to rank 8.
pub(crate) struct Borrowed<'a> {
    data: *mut u8,
    byte_offset: u64,
    dtype: DType,
    device: Device,
    flags: Flags,
    access: Access,
    shape: Dims,
    strides: Dims,
    memory: PhantomData<&'a ()>,
}

// SAFETY: it lends what a slice of plain elements lends (R9).
unsafe impl Send for Borrowed<'_> {}
// SAFETY: the same.
unsafe impl Sync for Borrowed<'_> {}

impl<'a> Borrowed<'a> {
    /// # Safety
    ///
    /// For `'a`, what `memory` says and `describe` writes satisfies R1 and R4.
    #[inline]
    pub(super) unsafe fn new(
        memory: Memory,
        rank: usize,
        describe: impl FnOnce(&mut [i64], &mut [i64]),
    ) -> Self {
        let Memory { data, byte_offset, dtype, device, flags, access } = memory;
        let (mut shape, mut strides) = (Dims::zeros(rank), Dims::zeros(rank));
        describe(&mut shape, &mut strides);
        let memory = PhantomData;
        Self { data, byte_offset, dtype, device, flags, access, shape, strides, memory }
    }

    /// The same memory as `parts`, borrowed as long.
    pub(crate) fn of(parts: Parts<'a>) -> Self {
        // SAFETY: borrowed for `'a` (R2).
        unsafe { Self::copied(parts) }
    }

    /// The same memory as `parts`, without their shape and strides.
    ///
    /// # Safety
    ///
    /// The elements of `parts` are borrowed for `'a`.
    unsafe fn copied(parts: Parts<'_>) -> Self {
        let Parts { data, byte_offset, dtype, device, flags, access, .. } = parts;
        let (shape, strides) = (Dims::from(parts.shape), Dims::from(parts.strides));
        let memory = PhantomData;
        Self { data, byte_offset, dtype, device, flags, access, shape, strides, memory }
    }

    /// Passes a foreign descriptor through the gate, without owning it.
    ///
    /// # Safety
    ///
    /// `tensor` satisfies `SAFETY.md`'s list of trust for `'a`.
    pub(super) unsafe fn import(tensor: &DLTensor) -> Result<Self, Error> {
        // SAFETY: the caller's duty.
        let passed = unsafe { parse(tensor, Flags::NONE) }?;
        // SAFETY: the gate let it through just now; the rest is the caller's duty.
        let parts = unsafe { passed.parts(tensor, Flags::NONE) };
        // SAFETY: the caller's duty.
        Ok(unsafe { Self::copied(parts) })
    }

    #[inline]
    pub(crate) fn parts(&self) -> Parts<'_> {
        Parts {
            data: self.data,
            byte_offset: self.byte_offset,
            dtype: self.dtype,
            device: self.device,
            flags: self.flags,
            access: self.access,
            shape: &self.shape,
            strides: &self.strides,
        }
    }
}
