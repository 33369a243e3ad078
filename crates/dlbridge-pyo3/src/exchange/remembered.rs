//! Per-type cache of fast import paths.
//! Finding a type's path belongs to `table`.
//! Invariants: a slot is read whole, as one writer wrote it. A slot with a path keeps its type alive;
//! a slot without one is cleared when its type is freed. So no type inherits a path by its address.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use dlbridge::sys::DLPackExchangeAPI;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyType, PyWeakrefReference};
use pyo3::{Borrowed, ffi};

use super::table::{Way, find};

/// How many types are remembered, with a path or without one. A program meets few.
const COUNT: usize = 128;

/// Where a type may stand: at the slot of its address, or at that slot's neighbour.
static SLOTS: [Slot; COUNT] = [const { Slot::empty() }; COUNT];

/// What belongs to each slot: a reference to a type with a path, a weak one to a type without. Locked
/// by writers.
static GUARDS: Mutex<[Option<Py<PyAny>>; COUNT]> = Mutex::new([const { None }; COUNT]);

/// A type and its path, read without a lock.
struct Slot {
    /// Odd while the slot is written.
    version: AtomicUsize,
    kind: AtomicPtr<ffi::PyTypeObject>,
    /// The path's table; null for a type without a path.
    table: AtomicPtr<DLPackExchangeAPI>,
}

impl Slot {
    const fn empty() -> Self {
        Self {
            version: AtomicUsize::new(0),
            kind: AtomicPtr::new(ptr::null_mut()),
            table: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// What is remembered of a type here.
    #[inline(always)]
    fn get(&self, kind: *mut ffi::PyTypeObject) -> Option<Option<Way>> {
        let version = self.version.load(Ordering::Acquire);
        if self.kind.load(Ordering::Relaxed) != kind {
            return None;
        }
        let table = self.table.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_whole = version & 1 == 0 && self.version.load(Ordering::Relaxed) == version;
        // SAFETY: null, or a table that lives as long as the process (F6).
        is_whole.then(|| unsafe { table.as_ref() }.map(|table| Way { table }))
    }

    /// Writers hold the lock of `GUARDS`.
    fn set(&self, kind: *mut ffi::PyTypeObject, way: Option<Way>) {
        let table = way.map_or(ptr::null_mut(), |way| ptr::from_ref(way.table).cast_mut());
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.kind.store(kind, Ordering::Relaxed);
        self.table.store(table, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    fn is_of(&self, kind: *mut ffi::PyTypeObject) -> bool {
        self.kind.load(Ordering::Relaxed) == kind
    }
}

/// The slot of a type, by the golden ratio, which spreads addresses of any alignment.
#[inline(always)]
fn slot_of(kind: *mut ffi::PyTypeObject) -> usize {
    const SHIFT: u32 = u32::BITS - COUNT.ilog2();
    ((kind.addr() as u32).wrapping_mul(0x9e37_79b9) >> SHIFT) as usize
}

/// The fast path into an object, if its type has one.
#[inline(always)]
pub(crate) fn way_of(object: Borrowed<'_, '_, PyAny>) -> Option<Way> {
    // SAFETY: any object has a type (F1), which it keeps alive.
    let kind = unsafe { ffi::Py_TYPE(object.as_ptr()) };
    let home = slot_of(kind);
    match SLOTS[home].get(kind) {
        Some(way) => way,
        None => look_further(object, home),
    }
}

#[cold]
#[inline(never)]
fn look_further(object: Borrowed<'_, '_, PyAny>, home: usize) -> Option<Way> {
    let kind = object.get_type();
    if let Some(way) = SLOTS[home ^ 1].get(kind.as_type_ptr()) {
        return way;
    }
    let way = find(&kind);
    remember(&kind, home, way);
    way
}

/// Remembers a type, in place of another one if there is no room.
fn remember(kind: &Bound<'_, PyType>, home: usize, way: Option<Way>) {
    let guard = match way {
        Some(_) => kind.clone().into_any().unbind(),
        None => match watched(kind) {
            Ok(guard) => guard,
            // Out of memory: asked again next time.
            Err(_) => return,
        },
    };
    let kind = kind.as_type_ptr();
    let replaced = {
        let mut guards = GUARDS.lock().unwrap_or_else(PoisonError::into_inner);
        let both = [home, home ^ 1];
        let find = |kind| both.into_iter().find(|&at| SLOTS[at].is_of(kind));
        let at = find(kind).or_else(|| find(ptr::null_mut())).unwrap_or_else(|| {
            // In turn: each write changes the sum.
            let writes: usize =
                both.map(|at| SLOTS[at].version.load(Ordering::Relaxed) / 2).into_iter().sum();
            both[writes % 2]
        });
        SLOTS[at].set(kind, way);
        guards[at].replace(guard)
    };
    // Freeing a type may run Python code: not under the lock.
    drop(replaced);
}

/// A weak reference whose callback clears the type's slot.
fn watched(kind: &Bound<'_, PyType>) -> PyResult<Py<PyAny>> {
    static CALLBACK: PyOnceLock<Py<PyCFunction>> = PyOnceLock::new();
    let py = kind.py();
    let callback = CALLBACK
        .get_or_try_init(py, || Ok::<_, PyErr>(wrap_pyfunction!(type_is_freed, py)?.unbind()))?;
    Ok(PyWeakrefReference::new_with(kind, callback.bind(py))?.into_any().unbind())
}

#[pyfunction]
fn type_is_freed(reference: &Bound<'_, PyAny>) {
    let mut guards = GUARDS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_this = |guard: &Option<Py<PyAny>>| guard.as_ref().is_some_and(|it| it.is(reference));
    let Some(at) = guards.iter().position(is_this) else { return };
    SLOTS[at].set(ptr::null_mut(), None);
    let guard = guards[at].take();
    drop(guards);
    drop(guard);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;
    use crate::exchange::table::Way;

    /// A reader never sees the type of one write with the table of another.
    #[test]
    fn a_slot_is_read_whole() {
        let (slot, is_done) = (Slot::empty(), AtomicBool::new(false));
        let kind = |number: usize| ptr::without_provenance_mut::<ffi::PyTypeObject>(64 * number);
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    slot.set(kind(1), Some(Way::NUMPY));
                    slot.set(kind(2), None);
                }
                is_done.store(true, Ordering::Relaxed);
            });
            while !is_done.load(Ordering::Relaxed) {
                assert!(slot.get(kind(1)).is_none_or(|way| way.is_some_and(Way::is_numpy)));
                assert!(slot.get(kind(2)).is_none_or(|way| way.is_none()));
            }
        });
    }
}
