//! The two ABIs of a managed tensor, behind one sealed trait.

use dlbridge_sys::{DLManagedTensor, DLManagedTensorVersioned};

/// A managed tensor of DLPack in one of its two ABIs: [`DLManagedTensorVersioned`] of DLPack 1.x, or
/// the legacy [`DLManagedTensor`] before 1.0. Sealed: there are no others.
pub trait ManagedTensor: sealed::Sealed {}

impl ManagedTensor for DLManagedTensorVersioned {}

impl ManagedTensor for DLManagedTensor {}

pub(crate) mod sealed {
    use super::{DLManagedTensor, DLManagedTensorVersioned};

    pub trait Sealed {
        const IS_VERSIONED: bool;
    }

    impl Sealed for DLManagedTensorVersioned {
        const IS_VERSIONED: bool = true;
    }

    impl Sealed for DLManagedTensor {
        const IS_VERSIONED: bool = false;
    }
}
