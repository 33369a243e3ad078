//! The names of DLPack capsules.
//!
//! A capsule owns its tensor while it has an unused name. A consumer renames it, and owns the tensor
//! from then on.

use std::ffi::CStr;

use dlbridge_sys::{DLManagedTensor, DLManagedTensorVersioned};

use crate::ManagedTensor;

/// What a capsule holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// It owns a `DLManagedTensorVersioned`.
    Versioned,
    /// It owns a `DLManagedTensor`.
    Legacy,
    /// Its tensor belongs to the consumer that renamed it.
    Consumed,
}

impl Content {
    /// The content of the object whose name `has_name` compares; `None` if it is no DLPack capsule.
    #[inline]
    pub fn of(has_name: impl Fn(&CStr) -> bool) -> Option<Self> {
        if has_name(DLManagedTensorVersioned::UNUSED) {
            Some(Self::Versioned)
        } else if has_name(DLManagedTensor::UNUSED) {
            Some(Self::Legacy)
        } else {
            let used = [DLManagedTensorVersioned::USED, DLManagedTensor::USED];
            used.into_iter().any(has_name).then_some(Self::Consumed)
        }
    }
}

/// The message for a capsule that was consumed already.
pub const CONSUMED: &str = "capsule: expected an unused one, found one that was consumed already; \
                            ask its producer for another one";

/// The message for an object that is no DLPack capsule.
#[must_use]
pub fn expected(found: &str) -> String {
    format!("capsule: expected one named \"dltensor_versioned\" or \"dltensor\", found {found}")
}
