//! Finds the exchange table of a type that replaces its `__dlpack__`.
//! Calling it belongs to `exchange`.
//! Invariant: a result is cached for a type that cannot be freed, or until the type is freed.

use std::ffi::c_ulong;
use std::mem;
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use dlbridge::protocol::table::{CAPSULE, DISPATCH, METHODS, serves, usable};
use dlbridge::sys::{DLPackExchangeAPI, DLPackExchangeAPIHeader};

use super::api::{METH_O, Method, Pointer};
use super::attached::{Object, Python};
use super::constants::Constants;
use super::exception::Exception;
use crate::entry::contained;

/// How many types are remembered. Types that share a slot replace each other.
const SLOTS: usize = 64;

const HEAP_TYPE: c_ulong = 1 << 9;

/// The table of a type.
#[derive(Clone, Copy)]
pub(super) struct Table {
    /// `None` for a class derived from PyTorch's that does not go by the table, and for NumPy's.
    pub(super) api: Option<&'static DLPackExchangeAPI>,
    /// Whether the type has PyTorch's `is_neg`: the memory of its objects may not hold their values.
    pub(super) is_lazy: bool,
    /// Whether the type has no table and NumPy's `itemsize`: the `__dlpack__` of NumPy divides by it.
    pub(super) has_itemsize: bool,
    /// Whether it is derived from PyTorch's class and has a hook of its own: its objects may have no memory.
    pub(super) has_hook: bool,
    /// The attribute that tells of automatic differentiation, if the type has one.
    pub(super) grad: Option<Grad>,
}

/// An attribute that tells whether an object requires grad.
#[derive(Clone, Copy)]
pub(super) enum Grad {
    /// PyTorch's `requires_grad`.
    Requires,
    /// Paddle's `stop_gradient`.
    Stops,
}

/// A type and the answer for it.
#[derive(Clone, Copy)]
struct Remembered {
    kind: Pointer,
    table: Option<Table>,
    /// For a type that can be freed: a weak reference whose callback empties the slot.
    watch: Pointer,
    /// For a type with a table: the address of the `__dlpack__` that it had. While it has another one, that one is called.
    method: Pointer,
    /// A weak reference to the method, whose callback empties the slot as well: a method that uses `super()` keeps its
    /// class alive. The method itself, if there are none to it.
    guard: Pointer,
}

const EMPTY: Remembered = Remembered {
    kind: ptr::null_mut(),
    table: None,
    watch: ptr::null_mut(),
    method: ptr::null_mut(),
    guard: ptr::null_mut(),
};

// SAFETY: addresses; what they lead to is used where a thread is attached (F1, R9).
unsafe impl Send for Remembered {}

/// Types at the slot of their address. Nothing that may run Python code happens under the lock:
/// its holder would wait for the GIL, and a thread with the GIL for the lock.
static ENTRIES: Mutex<[Remembered; SLOTS]> = Mutex::new([EMPTY; SLOTS]);

fn entries() -> MutexGuard<'static, [Remembered; SLOTS]> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Types are aligned to 16 bytes and far larger.
fn slot(kind: Pointer) -> usize {
    let address = kind.addr();
    (address >> 4 ^ address >> 10) % SLOTS
}

/// The table to call for an object of this type; `None` if its `__dlpack__` must be called.
#[inline]
pub(super) fn of(kind: &Object) -> Option<Table> {
    let entry = entries()[slot(kind.as_ptr())];
    if entry.kind != kind.as_ptr() {
        return look_up(kind);
    }
    let table = entry.table?;
    let is_patched = || method(kind).is_none_or(|found| found.as_ptr() != entry.method);
    Some(if table.api.is_some() && is_patched() { Table { api: None, ..table } } else { table })
}

/// The `__dlpack__` of a type.
fn method(kind: &Object) -> Option<Object> {
    let constants = Constants::get(kind.python).ok()?;
    kind.attribute(constants.dlpack).ok()
}

/// Asks the type, and remembers the answer.
#[cold]
fn look_up(kind: &Object) -> Option<Table> {
    let table = ask(kind).unwrap_or(None);
    let mut entry = Remembered { kind: kind.as_ptr(), table, ..EMPTY };
    // SAFETY: a type, attached (F1).
    let flags = unsafe { kind.python.api.PyType_GetFlags(kind.as_ptr()) };
    if flags & HEAP_TYPE != 0 {
        match watch(kind) {
            Ok(watch) => entry.watch = watch.into_raw(),
            Err(_) => return table,
        }
    }
    let has_table = table.is_some_and(|table| table.api.is_some());
    let mut watched = None;
    if let Some(method) = has_table.then(|| method(kind)).flatten() {
        entry.method = method.as_ptr();
        entry.guard = match watch(&method) {
            Ok(watch) => {
                watched = Some(method);
                watch.into_raw()
            }
            Err(_) => method.into_raw(),
        };
    }
    let replaced = mem::replace(&mut entries()[slot(kind.as_ptr())], entry);
    drop(replaced.into_objects(kind.python));
    // A method that is made anew each time is freed here, and empties the slot.
    drop(watched);
    table
}

impl Remembered {
    /// The references that the entry held.
    fn into_objects(self, python: Python) -> [Option<Object>; 2] {
        [self.watch, self.guard].map(|held| {
            let held = (!held.is_null()).then_some(held)?;
            // SAFETY: the entry's own reference, which it held until it left its slot (F3).
            unsafe { python.own(held) }.ok()
        })
    }
}

/// A weak reference to a type or a method, which calls [`freed`].
fn watch(object: &Object) -> Result<Object, Exception> {
    let python = object.python;
    let callback = match CALLBACK.get() {
        Some(callback) => callback,
        // As `Constants`: two threads may get here.
        None => {
            let made = Callback(make_callback(python)?.into_raw());
            CALLBACK.get_or_init(|| made)
        }
    };
    // SAFETY: live objects, attached (F1, F2).
    let watch = unsafe { python.api.PyWeakref_NewRef(object.as_ptr(), callback.0) };
    // SAFETY: a new reference or null (F3).
    unsafe { python.own(watch) }
}

/// A definition that Python keeps.
static FREED: Method = Method {
    name: c"freed".as_ptr(),
    function: freed as unsafe extern "C" fn(Pointer, Pointer) -> Pointer as *const _,
    flags: METH_O,
    doc: c"Forgets a type.".as_ptr(),
};

/// The Python function around [`freed`].
struct Callback(Pointer);

// SAFETY: the address of an object, which is used where a thread is attached (F1, R9).
unsafe impl Send for Callback {}
// SAFETY: the same.
unsafe impl Sync for Callback {}

/// Made once, then never freed.
static CALLBACK: OnceLock<Callback> = OnceLock::new();

fn make_callback(python: Python) -> Result<Object, Exception> {
    let (method, none) = (&raw const FREED, ptr::null_mut());
    // SAFETY: attached; a static table (F1, F6).
    let function = unsafe { python.api.PyCFunction_NewEx(method, none, none) };
    // SAFETY: a new reference or null (F3).
    unsafe { python.own(function) }
}

/// Called with the weak reference of a type or a method that is being freed: empties its slot, unless another
/// type has taken it.
unsafe extern "C" fn freed(_: Pointer, watch: Pointer) -> Pointer {
    // SAFETY: Python calls the callbacks of weak references (F1).
    let Some(python) = (unsafe { Python::in_callback() }) else { return ptr::null_mut() };
    contained((), || {
        let mut entries = entries();
        let found = entries.iter_mut().find(|entry| [entry.watch, entry.guard].contains(&watch));
        let found = found.map(|entry| mem::replace(entry, EMPTY));
        drop(entries);
        drop(found.map(|entry| entry.into_objects(python)));
    });
    // SAFETY: `None` lives as long as Python (F6).
    let none = unsafe { python.borrow(python.api.none) };
    none.map_or(ptr::null_mut(), Object::into_raw)
}

/// The table of a type that does nothing else than the class whose table it inherits.
fn ask(kind: &Object) -> Result<Option<Table>, Exception> {
    let constants = Constants::get(kind.python)?;
    let Some((publisher, capsule)) = defined(kind, constants.exchange)? else {
        let has_itemsize = defined(kind, constants.itemsize)?.is_some();
        let table = Table { api: None, is_lazy: false, has_itemsize, has_hook: false, grad: None };
        return Ok(has_itemsize.then_some(table));
    };
    let (hook, disabled) = constants.torch_function;
    let inherits = |name| {
        let name = match METHODS.iter().position(|&method| method == name) {
            Some(0) => constants.dlpack,
            Some(_) => constants.getattribute,
            None if name == DISPATCH => constants.torch_dispatch,
            None => hook,
        };
        match (defined(kind, name)?, defined(&publisher, name)?) {
            (Some((_, found)), Some((_, theirs))) => Ok(found.as_ptr() == theirs.as_ptr()),
            (found, theirs) => Ok::<_, Exception>(found.is_none() && theirs.is_none()),
        }
    };
    let is_hook_off = || {
        let found = defined(kind, hook)?;
        Ok(found.is_some_and(|(_, found)| is_of_torch(&found, disabled)))
    };
    let api = if serves(&inherits, is_hook_off)? { read(&capsule) } else { None };
    let is_lazy = defined(kind, constants.is_neg)?.is_some();
    let has_hook = is_lazy && !(api.is_some() && inherits(DISPATCH)?);
    let grad = if defined(kind, constants.requires_grad)?.is_some() {
        Some(Grad::Requires)
    } else {
        defined(kind, constants.stop_gradient)?.map(|_| Grad::Stops)
    };
    Ok((api.is_some() || has_hook).then_some(Table {
        api,
        is_lazy,
        has_itemsize: false,
        has_hook,
        grad,
    }))
}

/// The first class among the bases that defines an attribute, and its value.
fn defined(kind: &Object, name: Pointer) -> Result<Option<(Object, Object)>, Exception> {
    let python = kind.python;
    let constants = Constants::get(python)?;
    let bases = kind.attribute(constants.mro)?;
    // SAFETY: a live object, attached; -1 if it is no tuple (F1, F2).
    let count = unsafe { python.api.PyTuple_Size(bases.as_ptr()) };
    python.check(count.signum() as i32)?;
    for index in 0..count {
        let class = bases.item(index)?;
        if let Ok(value) = class.attribute(constants.dict)?.at(name) {
            return Ok(Some((class, value)));
        }
    }
    Ok(None)
}

/// Whether a hook is the function of this name that PyTorch offers to switch the hook off.
fn is_of_torch(hook: &Object, name: Pointer) -> bool {
    let python = hook.python;
    let Ok(constants) = Constants::get(python) else { return false };
    // SAFETY: a live string, attached; null without an exception if it is not loaded (F1, F2).
    let module = unsafe { python.api.PyImport_GetModule(constants.torch) };
    // SAFETY: a new reference or null (F3).
    let module = unsafe { python.own(module) };
    module.and_then(|torch| torch.attribute(name)).is_ok_and(|own| own.as_ptr() == hook.as_ptr())
}

/// The newest table of our major version in a capsule.
fn read(capsule: &Object) -> Option<&'static DLPackExchangeAPI> {
    let (api, name) = (capsule.python.api, CAPSULE.as_ptr());
    // SAFETY: any object may be asked; no exception is set (F1).
    if unsafe { api.PyCapsule_IsValid(capsule.as_ptr(), name) } != 1 {
        return None;
    }
    // SAFETY: a capsule of this name (F4).
    let pointer = unsafe { api.PyCapsule_GetPointer(capsule.as_ptr(), name) };
    // SAFETY: a table that a type publishes is static, and starts with its header in every version
    // (DLPack 1.2, DLPackExchangeAPIHeader; F5, F6).
    let header = unsafe { pointer.cast::<DLPackExchangeAPIHeader>().as_ref() };
    // SAFETY: the same of each older table; null ends the chain (F5, F6).
    let found = usable(header, |newer| unsafe { newer.prev_api.as_ref() })?;
    // SAFETY: a table of this major version has this layout (F5).
    Some(unsafe { &*ptr::from_ref(found).cast::<DLPackExchangeAPI>() })
}
