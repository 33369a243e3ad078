//! Sealed tensors: memory that other processes read (Linux).
//! Making tensors to be filled in place does not belong here: that is for Rust and Python.
//! Invariant: C gets no read-only page. A consumer that ignores `DLB_FLAG_READ_ONLY` writes to a copy.

use std::ffi::{CString, c_char, c_int};
#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

use dlbridge::Tensor;
use dlbridge_sealed::{SealedTensors, seal};

use crate::entry::{c_text, contained, write_out};
use crate::error::{Error, Result, Status};
use crate::handle::{Origin, TensorHandle};
use crate::info::text;

const NULL_SEALED: Error = Error::Invalid("sealed: expected sealed tensors, found a null pointer");

/// Named tensors in sealed memory, which no process can change. Opaque to C.
#[derive(Debug)]
pub struct SealedHandle {
    sealed: SealedTensors,
    names: Vec<CString>,
}

fn into_raw(sealed: SealedTensors) -> *mut SealedHandle {
    let names = sealed.names().map(c_text).collect();
    Box::into_raw(Box::new(SealedHandle { sealed, names }))
}

/// Opens a sealed memory file from any process, which need not be trusted. The descriptor stays the
/// caller's to close. On Linux only: elsewhere, this fails with `DLB_STATUS_REFUSED`.
///
/// # Safety
///
/// `out` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_sealed_open(descriptor: c_int, out: *mut *mut SealedHandle) -> Status {
    // SAFETY: the caller's duty.
    unsafe { write_out(out, || open(descriptor).map(into_raw)) }
}

#[cfg(unix)]
fn open(descriptor: c_int) -> Result<SealedTensors> {
    if descriptor < 0 {
        return Err(Error::Invalid("descriptor: expected one, found a negative number"));
    }
    // SAFETY: a call of the system, which refuses a number that is no descriptor (F10).
    let callers = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let own = callers.try_clone_to_owned().map_err(|error| dlbridge::Error::Refused {
        by: "descriptor",
        reason: error.to_string(),
    })?;
    Ok(SealedTensors::try_from(own)?)
}

#[cfg(not(unix))]
fn open(_descriptor: c_int) -> Result<SealedTensors> {
    // The error that names Linux.
    Ok(seal([] as [(&str, &Tensor); 0])?)
}

/// Copies `count` tensors of host memory, under their names in UTF-8, into a memory file, and seals it.
/// The tensors stay the caller's.
///
/// # Safety
///
/// `names` and `tensors` are null or have `count` elements: texts, and live tensors. `out` is null or
/// can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_sealed_copy(
    names: *const *const c_char,
    tensors: *const *const TensorHandle,
    count: usize,
    out: *mut *mut SealedHandle,
) -> Status {
    let open = || {
        if count != 0 && (names.is_null() || tensors.is_null()) {
            return Err(Error::Invalid("names, tensors: expected arrays, found a null pointer"));
        }
        let named = (0..count).map(|index| {
            // SAFETY: the caller's duty.
            let name = unsafe { names.wrapping_add(index).read() };
            // SAFETY: the same.
            let tensor = unsafe { tensors.wrapping_add(index).read() };
            // SAFETY: the same.
            let name = unsafe { text(name) }?;
            // SAFETY: the same.
            Ok((name, unsafe { TensorHandle::borrow(tensor) }?.tensor()))
        });
        Ok(into_raw(seal(named.collect::<Result<Vec<_>>>()?)?))
    };
    // SAFETY: the caller's duty.
    unsafe { write_out(out, open) }
}

/// The number of tensors; 0 for null.
///
/// # Safety
///
/// `sealed` is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_sealed_count(sealed: *const SealedHandle) -> usize {
    // SAFETY: the caller's duty.
    unsafe { sealed.as_ref() }.map_or(0, |sealed| sealed.names.len())
}

/// The name of a tensor, in UTF-8, in the order of the file; null if there is none. It is valid until
/// `sealed` is closed. A zero byte in a name is escaped: such a tensor cannot be asked for.
///
/// # Safety
///
/// `sealed` is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_sealed_name(
    sealed: *const SealedHandle,
    index: usize,
) -> *const c_char {
    // SAFETY: the caller's duty.
    let name = unsafe { sealed.as_ref() }.and_then(|sealed| sealed.names.get(index));
    name.map_or(ptr::null(), |name| name.as_ptr())
}

/// A tensor over the sealed memory, read-only. It outlives `sealed`, and has to be released. A write to
/// it, which its flag forbids, changes no other tensor.
///
/// # Safety
///
/// `sealed` is null or live, `name` is null or a text in UTF-8, `out` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_sealed_tensor(
    sealed: *const SealedHandle,
    name: *const c_char,
    out: *mut *mut TensorHandle,
) -> Status {
    let import = || {
        // SAFETY: the caller's duty.
        let private = unsafe { private(sealed, name) }?;
        // Shared with consumers that ignore the flag, so not `Frozen`.
        let shared = Tensor::from(private.into_shared()).into_frozen();
        Ok(TensorHandle::into_raw(shared.into(), Origin::C, None))
    };
    // SAFETY: the caller's duty.
    unsafe { write_out(out, import) }
}

/// A writable tensor with the same values. The first write to a page copies it; the sealed values do
/// not change. Otherwise as `dlb_sealed_tensor`.
///
/// # Safety
///
/// As for `dlb_sealed_tensor`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_sealed_private(
    sealed: *const SealedHandle,
    name: *const c_char,
    out: *mut *mut TensorHandle,
) -> Status {
    // SAFETY: the caller's duty.
    let private = || unsafe { private(sealed, name) };
    let import = || Ok(TensorHandle::into_raw(private()?, Origin::C, None));
    // SAFETY: the caller's duty.
    unsafe { write_out(out, import) }
}

/// The file's descriptor, to be sent; -1 for null. It is closed with `sealed`.
///
/// # Safety
///
/// `sealed` is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_sealed_descriptor(sealed: *const SealedHandle) -> c_int {
    // SAFETY: the caller's duty.
    unsafe { sealed.as_ref() }.map_or(-1, number)
}

#[cfg(unix)]
fn number(sealed: &SealedHandle) -> c_int {
    sealed.sealed.as_fd().as_raw_fd()
}

#[cfg(not(unix))]
fn number(_sealed: &SealedHandle) -> c_int {
    -1
}

/// Closes the descriptor. The tensors stay valid. Does nothing for null.
///
/// # Safety
///
/// `sealed` is null or live, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_sealed_close(sealed: *mut SealedHandle) {
    if !sealed.is_null() {
        // SAFETY: made by `into_raw`, and given up (R7; the caller's duty).
        contained((), || drop(unsafe { Box::from_raw(sealed) }));
    }
}

/// # Safety
///
/// As for [`dlb_sealed_tensor`].
unsafe fn private(sealed: *const SealedHandle, name: *const c_char) -> Result<Tensor> {
    // SAFETY: the caller's duty.
    let sealed = unsafe { sealed.as_ref() }.ok_or(NULL_SEALED)?;
    // SAFETY: the caller's duty.
    let name = unsafe { text(name) }?;
    Ok(sealed.sealed.private(name)?)
}
