//! The managed tensor of a producer, in either ABI, before and after validation.
//! Invariant: of another major version, only the version and the deleter are read.

use std::ptr::NonNull;

use dlbridge_sys::{DLManagedTensor, DLManagedTensorVersioned, DLTensor};

use super::header::{self, Header, TENSOR_AT};
use super::managed::ManagedTensor;
use crate::{DescriptorError, Error, Flags};

/// A managed tensor in either ABI, as exported by its producer.
#[derive(Clone, Copy)]
pub(crate) enum Foreign {
    Versioned(NonNull<DLManagedTensorVersioned>),
    Legacy(NonNull<DLManagedTensor>),
}

impl Foreign {
    /// A producer's pointer, if it is not null.
    #[inline(always)]
    pub(crate) fn new<A: ManagedTensor>(tensor: *mut A) -> Result<Self, Error> {
        match NonNull::new(tensor) {
            Some(tensor) if A::IS_VERSIONED => Ok(Self::Versioned(tensor.cast())),
            Some(tensor) => Ok(Self::Legacy(tensor.cast())),
            None => Err(DescriptorError::NullTensor.into()),
        }
    }

    /// The header of a tensor that was exported here, in either ABI.
    ///
    /// # Safety
    ///
    /// The pointer is valid.
    #[inline]
    pub(crate) unsafe fn own_header(self) -> Option<NonNull<Header>> {
        match self {
            // SAFETY: the caller's duty.
            Self::Versioned(tensor) => unsafe { header::of_export(tensor) },
            // SAFETY: the same.
            Self::Legacy(tensor) => unsafe { header::of_export(tensor) },
        }
    }

    /// Rejects versions whose layout is not known; returns the flags and the descriptor.
    ///
    /// # Safety
    ///
    /// The pointer is valid for reads.
    #[inline]
    pub(crate) unsafe fn open(self) -> Result<(Flags, NonNull<DLTensor>), Error> {
        match self {
            Self::Versioned(tensor) => {
                // SAFETY: the version comes first in every major version (DLPack 1.0; T1).
                let version = unsafe { (*tensor.as_ptr()).version };
                if version.major != dlbridge_sys::DLPACK_MAJOR_VERSION {
                    let (major, minor) = (version.major, version.minor);
                    return Err(DescriptorError::UnsupportedVersion { major, minor }.into());
                }
                // SAFETY: valid, and of a version whose layout is this one (T1).
                let flags = unsafe { (*tensor.as_ptr()).flags };
                // SAFETY: a field of the same struct (T1).
                let tensor = unsafe { tensor.byte_add(TENSOR_AT) };
                Ok((Flags(flags), tensor.cast()))
            }
            // Without flags, the memory counts as read-only.
            Self::Legacy(tensor) => Ok((Flags::READ_ONLY, tensor.cast())),
        }
    }

    /// Calls the deleter, if there is one.
    ///
    /// # Safety
    ///
    /// The tensor is owned by the caller, who forgets it.
    #[inline]
    pub(crate) unsafe fn delete(self) {
        match self {
            Self::Versioned(tensor) => {
                // SAFETY: the deleter keeps its place in every major version (DLPack 1.0; T1).
                if let Some(deleter) = unsafe { (*tensor.as_ptr()).deleter } {
                    // SAFETY: called once, with its own tensor (the caller's duty).
                    unsafe { deleter(tensor.as_ptr()) };
                }
            }
            Self::Legacy(tensor) => {
                // SAFETY: valid, by the caller's duty.
                if let Some(deleter) = unsafe { (*tensor.as_ptr()).deleter } {
                    // SAFETY: called once, with its own tensor (the caller's duty).
                    unsafe { deleter(tensor.as_ptr()) };
                }
            }
        }
    }

    /// The version, flags and byte offset of the descriptor, and whether it has strides and a deleter.
    ///
    /// # Safety
    ///
    /// The pointer is valid for reads, and of a version whose layout is known.
    pub(crate) unsafe fn raw_fields(self) -> RawFields {
        let (version, flags, has_deleter, tensor) = match self {
            Self::Versioned(tensor) => {
                // SAFETY: valid, by the caller's duty.
                let tensor = unsafe { tensor.as_ref() };
                let version = (tensor.version.major, tensor.version.minor);
                (Some(version), tensor.flags, tensor.deleter.is_some(), &tensor.dl_tensor)
            }
            Self::Legacy(tensor) => {
                // SAFETY: valid, by the caller's duty.
                let tensor = unsafe { tensor.as_ref() };
                (None, 0, tensor.deleter.is_some(), &tensor.dl_tensor)
            }
        };
        let (flags, byte_offset) = (Flags(flags), tensor.byte_offset);
        let has_strides = !tensor.strides.is_null();
        RawFields { version, flags, has_deleter, has_strides, byte_offset }
    }
}

/// The fields of a foreign descriptor before normalisation.
#[derive(Clone, Copy)]
pub(crate) struct RawFields {
    pub(crate) version: Option<(u32, u32)>,
    pub(crate) flags: Flags,
    pub(crate) has_deleter: bool,
    pub(crate) has_strides: bool,
    pub(crate) byte_offset: u64,
}
