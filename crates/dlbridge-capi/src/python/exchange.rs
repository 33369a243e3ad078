//! DLPack's C exchange API: tensors from types that publish a table, without a Python call.
//! `__dlpack__` does not belong here (see `import`).
//! Invariant: a table is used only for objects of the very type that it was found on.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use dlbridge::sys::{DLPACK_MAJOR_VERSION, DLPackExchangeAPI, DLPackExchangeAPIHeader};
use dlbridge::{Tensor, TypeCode};

use super::api::PyObject;
use super::exception::Exception;
use super::object::Object;
use crate::error::{Error, Result};
use crate::publish::Place;

const CAPSULE_NAME: &std::ffi::CStr = c"dlpack_exchange_api";

/// How many tables of a chain are looked at: one that runs in a circle has no end.
const MOST_TABLES: usize = 16;

/// How many types with, and how many without a table are remembered. A program meets few.
const SLOTS: usize = 64;

/// A type and its table. Never freed: the type is kept alive with it.
struct Entry {
    kind: *mut PyObject,
    table: *const DLPackExchangeAPI,
}

// SAFETY: addresses of a type and of its table (R9).
unsafe impl Sync for Entry {}

/// Types with a table, at the slot of their address.
static WITH: [Place<Entry>; SLOTS] = [const { Place::new() }; SLOTS];

/// Types without one. They are not kept alive: a new type at an old one's address is at worst
/// asked the slower way.
static WITHOUT: [AtomicPtr<PyObject>; SLOTS] = [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS];

/// Types are aligned to 16 bytes and far larger.
fn slot(kind: &Object) -> usize {
    let address = kind.as_ptr().addr();
    (address >> 4 ^ address >> 10) % SLOTS
}

/// Takes an object's memory through the table of its type; `None` if `__dlpack__` must be asked.
pub(super) fn import(object: &Object) -> Option<Result<Tensor>> {
    let kind = object.kind().ok()?;
    let slot = slot(&kind);
    if WITHOUT[slot].load(Ordering::Relaxed) == kind.as_ptr() {
        return None;
    }
    let table = match WITH[slot].get() {
        Some(entry) if entry.kind == kind.as_ptr() => entry.table,
        _ => look_up(kind, slot)?,
    };
    // SAFETY: a table that a type publishes is static (DLPack 1.2, DLPackExchangeAPI; F5, F6).
    let from_object = unsafe { &*table }.managed_tensor_from_py_object_no_sync?;
    let mut tensor = ptr::null_mut();
    // SAFETY: the object is of the type that published the table (F5), the thread attached (F1).
    let status = unsafe { from_object(object.as_ptr().cast(), &raw mut tensor) };
    if status != 0 {
        return Some(Err(Error::Python(Exception::take(object.python()))));
    }
    // SAFETY: given to us by the table, whose producer is trusted (T1 to T9).
    match unsafe { Tensor::from_raw(tensor) } {
        Ok(tensor) => resolved(object, tensor),
        Err(error) => Some(Err(error.into())),
    }
}

/// Asks the type, and remembers the answer if there is room.
#[cold]
fn look_up(kind: Object, slot: usize) -> Option<*const DLPackExchangeAPI> {
    let Some(table) = ask(&kind) else {
        WITHOUT[slot].store(kind.as_ptr(), Ordering::Relaxed);
        return None;
    };
    // The reference is never given back, which keeps the type at its address.
    let entry = Entry { kind: kind.into_raw(), table };
    // Where another type has the slot, this one's stays all the same, as the few others here.
    let _ = WITH[slot].publish(Box::new(entry));
    Some(table)
}

/// The newest table of our major version that a type's attribute holds.
fn ask(kind: &Object) -> Option<*const DLPackExchangeAPI> {
    let python = kind.python();
    let capsule = kind.attribute(python.constants().ok()?.exchange).ok()?;
    let name = CAPSULE_NAME.as_ptr();
    // SAFETY: any object may be asked; no exception is set (F1).
    if unsafe { (python.api.PyCapsule_IsValid)(capsule.as_ptr(), name) } != 1 {
        return None;
    }
    // SAFETY: a capsule of this name (F4).
    let pointer = unsafe { (python.api.PyCapsule_GetPointer)(capsule.as_ptr(), name) };
    let mut header: *mut DLPackExchangeAPIHeader = pointer.cast();
    for _ in 0..MOST_TABLES {
        // SAFETY: a table starts with its header in every version (DLPack 1.2,
        // DLPackExchangeAPIHeader); null ends the chain (F5, F6).
        let found = unsafe { header.as_ref() }?;
        if found.version.major == DLPACK_MAJOR_VERSION {
            return Some(header.cast());
        }
        header = found.prev_api;
    }
    None
}

/// Refuses a tensor whose numbers are not those of its object: PyTorch conjugates lazily, and its
/// table hands out the numbers before that. An object that does not answer is left to `__dlpack__`.
fn resolved(object: &Object, tensor: Tensor) -> Option<Result<Tensor>> {
    let is_complex = matches!(tensor.dtype().code, TypeCode::COMPLEX | TypeCode::BCOMPLEX);
    if !is_complex {
        return Some(Ok(tensor));
    }
    match is_conjugated(object) {
        Ok(false) => Some(Ok(tensor)),
        Ok(true) => Some(Err(Error::Unsupported(
            "the tensor is conjugated lazily, wanted one whose memory holds its values; \
             call resolve_conj() first"
                .to_owned(),
        ))),
        Err(error) if error.is_a(|api| api.PyExc_Exception) => None,
        Err(error) => Some(Err(Error::Python(error))),
    }
}

#[cold]
fn is_conjugated(object: &Object) -> Result<bool, Exception> {
    let name = object.python().constants()?.is_conj;
    if !object.has_attribute(name) {
        return Ok(false);
    }
    object.call(name, [], ptr::null_mut())?.is_true()
}
