//! Converts tensors of TVM-FFI's Rust crate without a copy, both ways, by TVM-FFI's own DLPack functions.

use std::ffi::c_void;
use std::ptr;

use dlbridge::sys::{DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED};
use dlbridge::{Access, Error, Tensor};
use tvm_ffi::object::ObjectRefCore;
use tvm_ffi::tvm_ffi_sys::{TVMFFITensorFromDLPackVersioned, TVMFFITensorToDLPackVersioned};
use tvm_ffi::{ObjectArc, Tensor as TvmTensor};

/// A tensor over the memory of a TVM-FFI tensor, of class [`Access::Shared`]: clones of the TVM-FFI tensor write it.
///
/// # Safety
///
/// The allocator of the TVM-FFI tensor frees its memory on any thread. (`NDAllocator` does not require `Send`;
/// `Tensor::from_slice` and tensors of Python satisfy it.)
///
/// # Errors
///
/// Those of [`Tensor::from_raw`].
pub unsafe fn from_tvm(tensor: &TvmTensor) -> Result<Tensor, Error> {
    let mut exported = ptr::null_mut();
    // SAFETY: a live object, of which the managed tensor keeps a reference; the caller's duty about its thread.
    unsafe {
        let object = ObjectArc::as_raw(TvmTensor::data(tensor));
        if TVMFFITensorToDLPackVersioned(object.cast_mut().cast(), &raw mut exported) != 0 {
            return Err(raised());
        }
        Tensor::from_raw(exported.cast::<DLManagedTensorVersioned>())
    }
}

/// A TVM-FFI tensor over the memory of a tensor, which it keeps alive.
///
/// # Errors
///
/// [`Error::ReadOnly`] and [`Error::SharedMemory`], because safe calls read and write any TVM-FFI tensor: only exclusive
/// memory is taken.
/// [`Error::Misaligned`], because TVM-FFI makes slices without a check, and [`Error::NotConvertible`] for padded
/// elements, which it refuses, for tensors without axes, and for empty ones at the null address: TVM-FFI makes slices of
/// their null pointers.
pub fn into_tvm(tensor: Tensor) -> Result<TvmTensor, Error> {
    match tensor.access() {
        Access::Exclusive => {}
        Access::Shared if !tensor.is_read_only() => return Err(Error::SharedMemory),
        _ => return Err(Error::ReadOnly),
    }
    let (address, dtype) = (tensor.data_ptr().addr(), tensor.dtype());
    let align = (usize::from(dtype.bits).div_ceil(8)).next_power_of_two().min(16);
    if address % align != 0 {
        return Err(Error::Misaligned { address, align });
    }
    if tensor.ndim() == 0 || address == 0 {
        let (found, expected) =
            (format!("{tensor:?}"), "at least one axis, and memory; reshape(&[1])");
        return Err(Error::NotConvertible { what: "the tensor", found, expected });
    }
    let managed = tensor.into_raw();
    let mut object: *mut c_void = ptr::null_mut();
    // SAFETY: a managed tensor of this program's own, consumed by exactly one of the two branches; the object is a new
    // reference to a tensor.
    unsafe {
        if (*managed).flags & DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED == 0
            && TVMFFITensorFromDLPackVersioned(managed.cast(), 0, 0, (&raw mut object).cast()) == 0
        {
            return Ok(TvmTensor::from_data(ObjectArc::from_raw(object.cast())));
        }
        drop(Tensor::from_raw(managed));
    }
    let (found, expected) = (dtype.to_string(), "elements that TVM-FFI has");
    Err(Error::NotConvertible { what: "elements", found, expected })
}

/// The error that a function of TVM-FFI raised.
fn raised() -> Error {
    let (found, expected) = (tvm_ffi::Error::from_raised().to_string(), "a tensor");
    Error::NotConvertible { what: "TVM-FFI", found, expected }
}
