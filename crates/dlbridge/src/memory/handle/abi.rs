//! The two ABIs of a managed tensor, behind one sealed trait.
//! Invariant: of another major version, only the version and the deleter are read.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use dlbridge_sys::{DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor};

use crate::memory::unwind::{Unwinds, stopping};
use crate::{DescriptorError, Error, Flags};

/// A managed tensor of DLPack in one of its two ABIs: [`DLManagedTensorVersioned`] of DLPack 1.x, or
/// the legacy [`DLManagedTensor`] before 1.0. Sealed: there are no others.
pub trait ManagedTensor: Abi {
    /// The name of a Python capsule that owns its tensor.
    #[doc(hidden)]
    const UNUSED: &'static CStr;
    /// The name of a Python capsule whose tensor was consumed.
    #[doc(hidden)]
    const USED: &'static CStr;
}

impl ManagedTensor for DLManagedTensorVersioned {
    const UNUSED: &'static CStr = c"dltensor_versioned";
    const USED: &'static CStr = c"used_dltensor_versioned";
}

impl ManagedTensor for DLManagedTensor {
    const UNUSED: &'static CStr = c"dltensor";
    const USED: &'static CStr = c"used_dltensor";
}

/// The deleter of a managed tensor.
pub(crate) type Deleter<A> = unsafe extern "C" fn(*mut A);

/// The deleters of every export of this library, one for each ABI.
pub(crate) type Own = (Deleter<DLManagedTensorVersioned>, Deleter<DLManagedTensor>);

pub(crate) use sealed::Abi;

pub(crate) mod sealed {
    use super::{DLTensor, Deleter, Error, Flags, NonNull, Own, RawFields, c_void};

    /// The layout of a managed tensor. Its methods are private to the crate.
    pub trait Abi: Sized + 'static {
        /// Whether the ABI has a version and flags.
        const IS_VERSIONED: bool;
        /// The offset of the descriptor in bytes.
        const TENSOR_AT: usize;

        #[doc(hidden)]
        fn new(context: *mut c_void, own: Own, flags: Flags, tensor: DLTensor) -> Self;

        /// This ABI's deleter of every export of this library.
        #[doc(hidden)]
        fn own_deleter(own: Own) -> Deleter<Self>;

        /// The deleter, if there is one. It keeps its place in every version.
        ///
        /// # Safety
        ///
        /// The pointer is valid for reads.
        #[doc(hidden)]
        unsafe fn deleter(this: NonNull<Self>) -> Option<Deleter<Self>>;

        /// Rejects versions whose layout is not known; returns the flags and the descriptor.
        ///
        /// # Safety
        ///
        /// The pointer is valid for reads.
        #[doc(hidden)]
        unsafe fn open(this: NonNull<Self>) -> Result<(Flags, NonNull<DLTensor>), Error>;

        /// The fields before normalisation. The version is one whose layout is known.
        #[doc(hidden)]
        fn raw_fields(&self) -> RawFields;
    }
}

impl Abi for DLManagedTensorVersioned {
    const IS_VERSIONED: bool = true;
    const TENSOR_AT: usize = std::mem::offset_of!(Self, dl_tensor);

    fn new(manager_ctx: *mut c_void, own: Own, flags: Flags, dl_tensor: DLTensor) -> Self {
        let (version, deleter) = (DLPackVersion::CURRENT, Some(own.0));
        Self { version, manager_ctx, deleter, flags: flags.0, dl_tensor }
    }

    fn own_deleter(own: Own) -> Deleter<Self> {
        own.0
    }

    #[inline(always)]
    unsafe fn deleter(this: NonNull<Self>) -> Option<Deleter<Self>> {
        // SAFETY: the deleter keeps its place in every major version (DLPack 1.0; T1).
        unsafe { (*this.as_ptr()).deleter }
    }

    #[inline(always)]
    unsafe fn open(this: NonNull<Self>) -> Result<(Flags, NonNull<DLTensor>), Error> {
        // SAFETY: the version comes first in every major version (DLPack 1.0; T1).
        let version = unsafe { (*this.as_ptr()).version };
        if version.major != dlbridge_sys::DLPACK_MAJOR_VERSION {
            let (major, minor) = (version.major, version.minor);
            return Err(DescriptorError::UnsupportedVersion { major, minor }.into());
        }
        // SAFETY: valid, and of a version whose layout is this one (T1).
        let flags = unsafe { (*this.as_ptr()).flags };
        // SAFETY: a field of the same struct (T1).
        let tensor = unsafe { this.byte_add(Self::TENSOR_AT) };
        Ok((Flags(flags), tensor.cast()))
    }

    fn raw_fields(&self) -> RawFields {
        RawFields {
            version: Some((self.version.major, self.version.minor)),
            flags: Flags(self.flags),
            has_deleter: self.deleter.is_some(),
            has_strides: !self.dl_tensor.strides.is_null(),
            byte_offset: self.dl_tensor.byte_offset,
        }
    }
}

impl Abi for DLManagedTensor {
    const IS_VERSIONED: bool = false;
    const TENSOR_AT: usize = std::mem::offset_of!(Self, dl_tensor);

    fn new(manager_ctx: *mut c_void, own: Own, _: Flags, dl_tensor: DLTensor) -> Self {
        Self { dl_tensor, manager_ctx, deleter: Some(own.1) }
    }

    fn own_deleter(own: Own) -> Deleter<Self> {
        own.1
    }

    #[inline(always)]
    unsafe fn deleter(this: NonNull<Self>) -> Option<Deleter<Self>> {
        // SAFETY: the deleter keeps its place in every major version (DLPack 1.0; T1).
        unsafe { (*this.as_ptr()).deleter }
    }

    /// Without flags, the memory counts as read-only.
    #[inline(always)]
    unsafe fn open(this: NonNull<Self>) -> Result<(Flags, NonNull<DLTensor>), Error> {
        const { assert!(Self::TENSOR_AT == 0) };
        Ok((Flags::READ_ONLY, this.cast()))
    }

    fn raw_fields(&self) -> RawFields {
        RawFields {
            version: None,
            flags: Flags::NONE,
            has_deleter: self.deleter.is_some(),
            has_strides: !self.dl_tensor.strides.is_null(),
            byte_offset: self.dl_tensor.byte_offset,
        }
    }
}

/// A producer's pointer, if it is not null.
#[inline(always)]
pub(crate) fn not_null<A>(tensor: *mut A) -> Result<NonNull<A>, Error> {
    NonNull::new(tensor).ok_or_else(|| DescriptorError::NullTensor.into())
}

/// Calls the deleter, if there is one.
///
/// # Safety
///
/// The tensor is owned by the caller, who forgets it.
#[inline]
pub(crate) unsafe fn delete<A: Abi>(tensor: NonNull<A>) {
    // SAFETY: valid (the caller's duty).
    if let Some(deleter) = unsafe { A::deleter(tensor) } {
        // SAFETY: called once, with its own tensor (the caller's duty).
        stopping(|| unsafe { deleter.unwinding()(tensor.as_ptr()) });
    }
}

/// The fields of a producer's descriptor before normalisation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RawFields {
    /// Major and minor version; `None` for the legacy ABI.
    pub version: Option<(u32, u32)>,
    /// The flags; none in the legacy ABI.
    pub flags: Flags,
    /// Whether there is a deleter.
    pub has_deleter: bool,
    /// Whether strides were given, rather than a null pointer.
    pub has_strides: bool,
    /// The byte offset in front of the first element, which a tensor applies to its address.
    pub byte_offset: u64,
}
