//! Which types have a way in without a Python call, remembered for each type.
//! Going that way does not belong here (see `import` and `numpy`).
//! Invariant: a remembered way belongs to a type that is kept alive, so that no other type can
//! come to stand at its address.

use std::ffi::CStr;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use dlbridge::sys::{
    DLPACK_MAJOR_VERSION, DLPackExchangeAPI, DLPackExchangeAPIHeader, DLPackVersion,
};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyType};
use pyo3::{Borrowed, ffi, intern};

use crate::numpy;

/// The name of the capsule that a type's attribute holds.
pub(crate) const CAPSULE_NAME: &CStr = c"dlpack_exchange_api";

/// The name of that attribute.
pub(crate) const ATTRIBUTE: &str = "__dlpack_c_exchange_api__";

/// How many types with, and how many without a way are remembered. A program meets few.
const SLOTS: usize = 64;

/// A way into the objects of a type without a Python call.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    /// The exchange table that the type publishes. For NumPy's own array type, which publishes none,
    /// one without functions: tables need not be told from it before they are called.
    pub(crate) table: &'static DLPackExchangeAPI,
}

impl Way {
    const NUMPY: Self = Self { table: &NO_FUNCTIONS.0 };

    /// Whether the type is NumPy's own array type.
    pub(crate) fn is_numpy(self) -> bool {
        ptr::eq(self.table, Self::NUMPY.table)
    }
}

/// A table that may be shared between threads: its fields never change.
pub(super) struct Table(pub(super) DLPackExchangeAPI);

// SAFETY: immutable, and its functions may be called from any attached thread (F6).
unsafe impl Sync for Table {}

static NO_FUNCTIONS: Table = Table(DLPackExchangeAPI {
    header: DLPackExchangeAPIHeader { version: DLPackVersion::CURRENT, prev_api: ptr::null_mut() },
    managed_tensor_allocator: None,
    managed_tensor_from_py_object_no_sync: None,
    managed_tensor_to_py_object_no_sync: None,
    dltensor_from_py_object_no_sync: None,
    current_work_stream: None,
});

/// A type and its way. Never freed: the type is kept alive with it.
struct Entry {
    kind: *mut ffi::PyTypeObject,
    way: Way,
}

// SAFETY: it is not written after it was made, and its type may be read by all (F6).
unsafe impl Sync for Entry {}

/// Types with a way, at the slot of their address.
static WITH: [AtomicPtr<Entry>; SLOTS] =
    [const { AtomicPtr::new((&raw const NOBODY).cast_mut()) }; SLOTS];

/// In a slot that is free: the entry of no type.
static NOBODY: Entry = Entry { kind: ptr::null_mut(), way: Way::NUMPY };

/// Types without one. They are not kept alive: a new type at an old one's address is at worst
/// asked the slower way.
static WITHOUT: [AtomicPtr<ffi::PyTypeObject>; SLOTS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS];

/// Guards the writing of `WITH`, and thereby bounds it: a slot is written once.
static WRITING: Mutex<()> = Mutex::new(());

/// The slot of a type, by the golden ratio, which spreads addresses of any alignment.
#[inline]
fn slot(kind: *mut ffi::PyTypeObject) -> usize {
    const SHIFT: u32 = u32::BITS - SLOTS.ilog2();
    ((kind.addr() as u32).wrapping_mul(0x9e37_79b9) >> SHIFT) as usize
}

/// The way into an object that its type has.
#[inline]
pub(crate) fn way_of(object: Borrowed<'_, '_, PyAny>) -> Option<Way> {
    // SAFETY: any object has a type (F1).
    let kind = unsafe { ffi::Py_TYPE(object.as_ptr()) };
    let slot = slot(kind);
    // SAFETY: an entry that is never freed (F6).
    let entry = unsafe { &*WITH[slot].load(Ordering::Acquire) };
    if entry.kind == kind {
        Some(entry.way)
    } else if WITHOUT[slot].load(Ordering::Relaxed) == kind {
        None
    } else {
        look_up(&object.get_type(), slot)
    }
}

/// The exchange table of an object's type.
pub(crate) fn table_of(object: Borrowed<'_, '_, PyAny>) -> Option<&'static DLPackExchangeAPI> {
    way_of(object).filter(|way| !way.is_numpy()).map(|way| way.table)
}

/// Asks the type, and remembers the answer if there is room.
#[cold]
fn look_up(kind: &Bound<'_, PyType>, slot: usize) -> Option<Way> {
    let array = || numpy::is_array_type(kind).then_some(Way::NUMPY);
    let Some(way) = ask(kind).map(|table| Way { table }).or_else(array) else {
        WITHOUT[slot].store(kind.as_type_ptr(), Ordering::Relaxed);
        return None;
    };
    let writing = WRITING.lock();
    if writing.is_ok() && ptr::eq(WITH[slot].load(Ordering::Relaxed), &NOBODY) {
        // The reference is never given back, which keeps the type at its address.
        let kind = kind.clone().unbind().into_ptr().cast();
        let entry = Box::into_raw(Box::new(Entry { kind, way }));
        WITH[slot].store(entry, Ordering::Release);
    }
    Some(way)
}

/// The table that a type's attribute holds, in a version that we can call.
fn ask(kind: &Bound<'_, PyType>) -> Option<&'static DLPackExchangeAPI> {
    let capsule = kind.getattr(intern!(kind.py(), ATTRIBUTE)).ok()?;
    let capsule = capsule.cast::<PyCapsule>().ok()?;
    let header = capsule.pointer_checked(Some(CAPSULE_NAME)).ok()?;
    usable(header.as_ptr().cast())
}

/// How many tables of a chain are looked at: one that runs in a circle has no end.
const MOST_TABLES: usize = 16;

/// The newest table of our major version in the chain of older ones.
fn usable(mut header: *mut DLPackExchangeAPIHeader) -> Option<&'static DLPackExchangeAPI> {
    for _ in 0..MOST_TABLES {
        // SAFETY: a table that a type publishes is static, and starts with its header in every
        // version (DLPack 1.2, DLPackExchangeAPIHeader); null ends the chain (F5, F6).
        let found = unsafe { header.as_ref() }?;
        if found.version.major == DLPACK_MAJOR_VERSION {
            // SAFETY: a table of this major version has this layout (F5).
            return Some(unsafe { &*header.cast::<DLPackExchangeAPI>() });
        }
        header = found.prev_api;
    }
    None
}
