//! The cache of facts about Python types, by the type's address.
//! Invariants: a slot is read whole, as one writer wrote it. Slots of NumPy, JAX, PyTorch, masked and table types hold
//! their type. Others hold a weak reference whose callback empties the slot, so that a new type at a freed address gets
//! no stale path. A slot whose path depends on attributes of a type that can change has the type's version, and is
//! ignored once the type has another one.
#![allow(unsafe_code, reason = "it pairs an object with what its type was found to have")]

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{mem, ptr};

use dlbridge::sys::DLPackExchangeAPI;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyType, PyWeakrefReference};
use pyo3::{Borrowed, ffi};

use super::framework::Framework;
use super::path::{Found, Path, TypePath, find};
use crate::ffi::numpy::Array;
use crate::ffi::published::Published;
use crate::ffi::torch::TorchTensor;
use crate::ffi::{table, type_version};
use crate::interpreter::Once;
use crate::interpreter::through_pyo3;
use crate::{Result, TensorObject};

/// The number of cached types. A program uses few.
const COUNT: usize = 128;

/// The possible places of a type: the slot of its address, and that slot's neighbour.
static SLOTS: [Slot; COUNT] = [const { Slot::empty() }; COUNT];

/// The rarely used fields of a slot. Locked by writers; no Python code runs under the lock.
static DETAILS: Mutex<[Option<Details>; COUNT]> = Mutex::new([const { None }; COUNT]);

struct Details {
    /// A reference to a type with a path, a weak one to a type whose slot is cleared when it is freed.
    guard: Py<PyAny>,
    /// The `__dlpack__` that the class with the exchange table had at the first sight. While it has another one, that
    /// one is called.
    method: Option<Py<PyAny>>,
}

fn details() -> MutexGuard<'static, [Option<Details>; COUNT]> {
    DETAILS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A type and its path, read without a lock.
struct Slot {
    /// Odd while the slot is written.
    version: AtomicUsize,
    kind: AtomicPtr<ffi::PyTypeObject>,
    /// The version of the type that has this path.
    of: AtomicU32,
    /// The path, as [`encoded`].
    path: AtomicPtr<DLPackExchangeAPI>,
    /// Null before the framework is looked up.
    framework: AtomicPtr<Framework>,
    /// The `from_dlpack` that makes arrays of this type, if it is the framework's own and was looked up. It has a reference,
    /// which is never dropped: the framework keeps its function as well.
    importer: AtomicPtr<ffi::PyObject>,
}

/// The paths without a table, which their numbers encode as addresses. No table is at these addresses.
const PLAIN: [Option<TypePath>; 10] = [
    None,
    Some(TypePath::NumPy),
    Some(TypePath::Own),
    Some(TypePath::Masked),
    Some(TypePath::TorchSubclass),
    Some(TypePath::Buffer),
    Some(TypePath::Jax),
    Some(TypePath::NumPySubclass),
    Some(TypePath::DerivedNumPy),
    Some(TypePath::Torch),
];

fn encoded(path: Option<TypePath>) -> *mut DLPackExchangeAPI {
    if let Some(TypePath::Table(table)) = path {
        return ptr::from_ref(table).cast_mut();
    }
    let kind = |path: &Option<TypePath>| path.as_ref().map(mem::discriminant);
    let number = PLAIN.iter().position(|plain| kind(plain) == kind(&path));
    ptr::without_provenance_mut(number.expect("a path without a table"))
}

/// # Safety
///
/// `path` was [`encoded`].
#[inline(always)]
unsafe fn decoded(path: *mut DLPackExchangeAPI) -> Option<TypePath> {
    match PLAIN.get(path.addr()) {
        Some(plain) => *plain,
        // SAFETY: made of a table, which lives as long as the process (F6).
        None => Some(TypePath::Table(unsafe { &*path })),
    }
}

impl Slot {
    const fn empty() -> Self {
        Self {
            version: AtomicUsize::new(0),
            kind: AtomicPtr::new(ptr::null_mut()),
            of: AtomicU32::new(type_version::ANY),
            path: AtomicPtr::new(ptr::null_mut()),
            framework: AtomicPtr::new(ptr::null_mut()),
            importer: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The cached path of a type in this slot.
    #[inline(always)]
    fn get(&self, kind: *mut ffi::PyTypeObject) -> Option<Option<TypePath>> {
        let version = self.version.load(Ordering::Acquire);
        if self.kind.load(Ordering::Relaxed) != kind {
            return None;
        }
        let of = self.of.load(Ordering::Relaxed);
        let path = self.path.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_whole = version & 1 == 0 && self.version.load(Ordering::Relaxed) == version;
        let is_valid = is_whole && type_version::is_unchanged(kind, of);
        // SAFETY: written by `set` (F6).
        is_valid.then(|| unsafe { decoded(path) })
    }

    /// The framework of a type in this slot, and its importer.
    fn known(
        &self,
        kind: *mut ffi::PyTypeObject,
    ) -> Option<(&'static Framework, *mut ffi::PyObject)> {
        let version = self.version.load(Ordering::Acquire);
        let is_of = self.is_of(kind);
        let framework = self.framework.load(Ordering::Relaxed);
        let importer = self.importer.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_whole = version & 1 == 0 && self.version.load(Ordering::Relaxed) == version;
        // SAFETY: null, or a static (`remember_known`; F6).
        let framework = if is_of && is_whole { unsafe { framework.as_ref() } } else { None };
        framework.map(|framework| (framework, importer))
    }

    /// Writers hold the lock of `DETAILS`.
    fn set(&self, kind: *mut ffi::PyTypeObject, of: u32, path: Option<TypePath>) {
        self.write(|| {
            self.kind.store(kind, Ordering::Relaxed);
            self.of.store(of, Ordering::Relaxed);
            self.path.store(encoded(path), Ordering::Relaxed);
            self.framework.store(ptr::null_mut(), Ordering::Relaxed);
            self.importer.store(ptr::null_mut(), Ordering::Relaxed);
        });
    }

    fn write(&self, stores: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        stores();
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    fn is_of(&self, kind: *mut ffi::PyTypeObject) -> bool {
        self.kind.load(Ordering::Relaxed) == kind
    }
}

/// The slot of a type, by a hash with the golden ratio, which spreads addresses of any alignment.
#[inline(always)]
fn slot_of(kind: *mut ffi::PyTypeObject) -> usize {
    const SHIFT: u32 = u32::BITS - COUNT.ilog2();
    ((kind.addr() as u32).wrapping_mul(0x9e37_79b9) >> SHIFT) as usize
}

/// The fast path for an object, if its type has one.
#[inline(always)]
pub(crate) fn path_of<'a, 'py>(object: Borrowed<'a, 'py, PyAny>) -> Result<Option<Path<'a, 'py>>> {
    // SAFETY: any object has a type (F1), which it keeps alive.
    let kind = unsafe { ffi::Py_TYPE(object.as_ptr()) };
    let home = slot_of(kind);
    let path = match SLOTS[home].get(kind) {
        Some(path) => path,
        None => look_further(object, home)?,
    };
    let Some(path) = path else { return Ok(None) };
    Ok(Some(match path {
        // SAFETY: the path of the object's own type, for which `find` asked `is_array_type` (F5).
        TypePath::NumPy => Path::NumPy(unsafe { Array::new(object) }),
        TypePath::Masked => Path::Masked,
        // SAFETY: the same, of a class from which the type is derived; the slot has its version (F5).
        TypePath::DerivedNumPy => Path::DerivedNumPy(unsafe { Array::new(object) }),
        TypePath::NumPySubclass => Path::NumPySubclass,
        TypePath::TorchSubclass => Path::TorchSubclass,
        // SAFETY: the path of the object's own type, which goes by this table (`find`; F5).
        TypePath::Own => Path::Own(unsafe { Published::new(object, table::of::<TensorObject>()) }),
        // SAFETY: the same.
        TypePath::Table(table) => Path::Table(unsafe { Published::new(object, table) }),
        // SAFETY: the same, of the class for which `find` asked `torch::prepare`.
        TypePath::Torch => Path::Torch(unsafe { TorchTensor::new(object) }),
        TypePath::Buffer => Path::Buffer,
        TypePath::Jax => Path::Jax,
    }))
}

/// An object with the exchange table of its type.
#[inline(always)]
pub(crate) fn table_of<'a, 'py>(
    object: Borrowed<'a, 'py, PyAny>,
) -> Result<Option<Published<'a, 'py>>> {
    Ok(match path_of(object)? {
        Some(Path::Own(published) | Path::Table(published)) => Some(published),
        Some(Path::Torch(tensor)) => Some(tensor.published()),
        _ => None,
    })
}

#[cold]
#[inline(never)]
fn look_further(object: Borrowed<'_, '_, PyAny>, home: usize) -> Result<Option<TypePath>> {
    let kind = object.get_type();
    if let Some(path) = SLOTS[home ^ 1].get(kind.as_type_ptr()) {
        return Ok(path);
    }
    let method_of = |class: &Bound<'_, PyType>| {
        with_details(class, |details| details.method.as_ref().map(|it| it.clone_ref(class.py())))
    };
    let found = through_pyo3(|| find(&kind, |class| method_of(class).flatten()))?;
    let path = found.path;
    remember(&kind, home, found);
    Ok(path)
}

/// The slot of a type. It does not change while the details are locked.
fn slot_with(kind: *mut ffi::PyTypeObject, home: usize) -> Option<usize> {
    [home, home ^ 1].into_iter().find(|&at| SLOTS[at].is_of(kind))
}

/// Caches a type, and evicts another one if both places are used.
fn remember(kind: &Bound<'_, PyType>, home: usize, found: Found<'_>) {
    let Found { path, version, method } = found;
    let method = method.map(Bound::unbind);
    let guard = match path {
        Some(
            TypePath::NumPy
            | TypePath::Masked
            | TypePath::Own
            | TypePath::Table(_)
            | TypePath::Torch
            | TypePath::Jax,
        ) => kind.clone().into_any().unbind(),
        // ctypes makes a type for each length of array.
        Some(
            TypePath::DerivedNumPy
            | TypePath::NumPySubclass
            | TypePath::TorchSubclass
            | TypePath::Buffer,
        )
        | None => {
            match watched(kind) {
                Ok(guard) => guard,
                // Out of memory: asked again next time.
                Err(_) => return,
            }
        }
    };
    let kind = kind.as_type_ptr();
    let replaced = {
        let mut details = details();
        let found = slot_with(kind, home).or_else(|| slot_with(ptr::null_mut(), home));
        let has_method = |at: usize| details[at].as_ref().is_some_and(|it| it.method.is_some());
        let at = found.unwrap_or_else(|| {
            let both = [home, home ^ 1];
            match both.map(has_method) {
                // A type that loses its place is seen for the first time again, with the method that it has then.
                [true, false] => both[1],
                [false, true] => both[0],
                // In turn: each write changes the sum.
                _ => {
                    let writes = |at: usize| SLOTS[at].version.load(Ordering::Relaxed) / 2;
                    both[both.map(writes).into_iter().sum::<usize>() % 2]
                }
            }
        });
        SLOTS[at].set(kind, version, path);
        details[at].replace(Details { guard, method })
    };
    // Freeing a type may run Python code: not under the lock.
    drop(replaced);
}

/// Reads the details of a cached type.
fn with_details<R>(kind: &Bound<'_, PyType>, work: impl FnOnce(&Details) -> R) -> Option<R> {
    let kind = kind.as_type_ptr();
    let details = details();
    let at = slot_with(kind, slot_of(kind))?;
    details[at].as_ref().map(work)
}

/// What is known of a type's framework, read without a lock.
fn known(kind: &Bound<'_, PyType>) -> Option<(&'static Framework, *mut ffi::PyObject)> {
    let kind = kind.as_type_ptr();
    let home = slot_of(kind);
    SLOTS[home].known(kind).or_else(|| SLOTS[home ^ 1].known(kind))
}

/// The framework of a type, or of the nearest type that it is derived from.
pub(crate) fn framework_of(kind: &Bound<'_, PyType>) -> Result<&'static Framework> {
    if let Some((framework, _)) = known(kind) {
        return Ok(framework);
    }
    let framework = Framework::look_up(kind)?;
    remember_known(kind, framework, ptr::null_mut());
    Ok(framework)
}

/// The cached `from_dlpack` of a type.
pub(crate) fn importer_of<'py>(kind: &Bound<'py, PyType>) -> Option<Bound<'py, PyAny>> {
    let (_, importer) = known(kind)?;
    // SAFETY: null, or an object with a reference that is never dropped (F3, F6).
    unsafe { Bound::from_borrowed_ptr_or_opt(kind.py(), importer) }
}

/// Caches the `from_dlpack` of a type's framework.
pub(crate) fn remember_importer(
    kind: &Bound<'_, PyType>,
    framework: &'static Framework,
    importer: &Bound<'_, PyAny>,
) {
    remember_known(kind, framework, importer.clone().into_ptr());
}

#[cold]
fn remember_known(
    kind: &Bound<'_, PyType>,
    framework: &'static Framework,
    importer: *mut ffi::PyObject,
) {
    let (kind, _details) = (kind.as_type_ptr(), details());
    let Some(at) = slot_with(kind, slot_of(kind)) else { return };
    let slot = &SLOTS[at];
    slot.write(|| {
        slot.framework.store(ptr::from_ref(framework).cast_mut(), Ordering::Relaxed);
        slot.importer.store(importer, Ordering::Relaxed);
    });
}

/// A weak reference whose callback clears the type's slot.
fn watched(kind: &Bound<'_, PyType>) -> PyResult<Py<PyAny>> {
    static CALLBACK: Once<Py<PyCFunction>> = Once::new();
    let py = kind.py();
    let callback = CALLBACK
        .get_or_make(py, || Ok::<_, PyErr>(wrap_pyfunction!(type_is_freed, py)?.unbind()))?;
    Ok(PyWeakrefReference::new_with(kind, callback.bind(py))?.into_any().unbind())
}

#[pyfunction]
fn type_is_freed(reference: &Bound<'_, PyAny>) {
    let mut details = details();
    let is_this = |it: &Option<Details>| it.as_ref().is_some_and(|it| it.guard.is(reference));
    let Some(at) = details.iter().position(is_this) else { return };
    SLOTS[at].set(ptr::null_mut(), type_version::ANY, None);
    let freed = details[at].take();
    drop(details);
    drop(freed);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    /// A reader never sees the type of one write with the table of another.
    #[test]
    fn a_slot_is_read_whole() {
        let (slot, is_done) = (Slot::empty(), AtomicBool::new(false));
        let kind = |number: usize| ptr::without_provenance_mut::<ffi::PyTypeObject>(64 * number);
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    slot.set(kind(1), type_version::ANY, Some(TypePath::NumPy));
                    slot.set(kind(2), type_version::ANY, None);
                }
                is_done.store(true, Ordering::Relaxed);
            });
            while !is_done.load(Ordering::Relaxed) {
                assert!(slot.get(kind(1)).is_none_or(|path| matches!(path, Some(TypePath::NumPy))));
                assert!(slot.get(kind(2)).is_none_or(|path| path.is_none()));
            }
        });
    }

    /// Each result for JAX took the lock of all types twice: without the GIL, threads waited for each other.
    #[test]
    fn what_is_known_of_a_framework_is_read_without_the_lock() {
        Python::attach(|py| {
            let array = py.import("numpy").and_then(|numpy| numpy.call_method1("zeros", (3,)));
            let array = array.expect("NumPy");
            path_of(array.as_borrowed()).expect("a path");
            let kind = array.get_type();
            let framework = framework_of(&kind).expect("NumPy");
            remember_importer(&kind, framework, array.as_any());
            let _locked = details();
            assert!(framework_of(&kind).expect("NumPy").has_numpys_memory);
            assert!(importer_of(&kind).expect("remembered").is(&array));
        });
    }
}
