//! Where a tensor's elements lie. An exported storage is locked for reading, which keeps Candle from
//! writing to it.
#![allow(unsafe_code)]

use std::mem;
use std::ptr::NonNull;

use candle_core::{CpuStorage, Storage};
use parking_lot::{RwLock, RwLockReadGuard};

use crate::layout::Placement;
use crate::memory::Handle;
use crate::memory::owner::export_within;
use crate::{Access, Error, Flags};

/// A tensor whose storage is locked for reading. Candle's tensors share storages, and an operation
/// in place may not only write to one, but put another in its place.
pub(crate) struct Locked {
    /// In the storage that `tensor` keeps alive, on which this value has a read lock.
    lock: NonNull<RwLock<Storage>>,
    tensor: candle_core::Tensor,
}

// SAFETY: a tensor is `Send`, and a reader's share is counted, whichever thread gives it back (R9).
unsafe impl Send for Locked {}

impl Locked {
    /// Waits until no code writes.
    ///
    /// # Errors
    ///
    /// [`Error::NotConvertible`] for a variable, or a tensor computed from one: `Var::set` would wait for as
    /// long as the storage is locked.
    pub(crate) fn new(tensor: candle_core::Tensor) -> Result<Self, Error> {
        if tensor.track_op() {
            let found =
                if tensor.is_variable() { "a variable" } else { "one computed from a variable" };
            return Err(Error::NotConvertible {
                what: "tensor",
                found: found.to_owned(),
                expected: "one without gradients; copy a variable, which nothing could set while its \
                           memory is shared, with copy()?.detach(), or pass detach()",
            });
        }
        let (guard, _) = tensor.storage_and_layout();
        let lock = NonNull::from(RwLockReadGuard::rwlock(&guard));
        mem::forget(guard);
        Ok(Self { lock, tensor })
    }

    pub(crate) fn tensor(&self) -> &candle_core::Tensor {
        &self.tensor
    }

    pub(crate) fn storage(&self) -> &Storage {
        // SAFETY: the tensor keeps the lock alive, at the same place (R2).
        let storage = unsafe { self.lock.as_ref() }.data_ptr();
        // SAFETY: locked for reading while `self` lives, so no code writes (R4).
        unsafe { &*storage }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: the tensor is dropped after this (R2).
        let lock = unsafe { self.lock.as_ref() };
        // SAFETY: the guard was forgotten in `new`, and `self` stands for it (R7).
        unsafe { lock.force_unlock_read() };
    }
}

/// Exports a part of a storage on the CPU, read-only.
pub(crate) fn export_locked(owner: Locked, placement: &Placement<'_>) -> Result<Handle, Error> {
    // SAFETY: a vector of the storage, which is locked for reading as long as the owner lives (R4).
    unsafe {
        export_within(owner, placement, Flags::READ_ONLY, Access::Frozen, |owner| {
            let Storage::Cpu(storage) = owner.storage() else { return (std::ptr::null_mut(), 0) };
            let (start, size) = bytes(storage);
            (start.cast_mut(), size)
        })
    }
}

macro_rules! variants {
    ($($variant:ident)*) => {
        fn bytes(storage: &CpuStorage) -> (*const u8, usize) {
            match storage {
                $(CpuStorage::$variant(values) => {
                    (values.as_ptr().cast(), size_of_val(&values[..]))
                })*
            }
        }
    };
}

variants! { U8 U32 I16 I32 I64 BF16 F16 F32 F64 F8E4M3 F6E2M3 F6E3M2 F4 F8E8M0 }
