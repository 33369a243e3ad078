//! Classes that PyO3 made: more methods, buffers and reference counts for them. What the methods do belongs to
//! `class`.
//! Invariants: a method or buffer function of a class's own is kept. Nothing is changed where Python's functions
//! or layouts are not known.
//!
//! A function or class that several threads use has one reference count, which each call changes:
//! with two threads, calls are slower than with one. CPython defers the counts of functions that
//! are in a module's method table, but PyO3 adds its functions one by one. A class is counted by
//! each of its objects; PyO3 keeps every class as long as the process, so its count may be fixed.
//!
//! PyO3 makes the buffer functions of `dlbridge.Tensor` (`__getbuffer__`), and takes those of a user's class
//! from the user's own block of methods alone. From 3.12 on, Python makes them from the method `__buffer__` of
//! the class (PEP 688), as it does again each time that code replaces the method. In 3.11 they are set in the
//! type object itself, where every CPython calls them: `tp_as_buffer` points to them. The struct of a type is
//! not part of the limited API, so its layout is checked against the slots that the stable ABI returns for the
//! same type.

use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi::{self, PyMethodDefPointer};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyString, PyTuple, PyType};

use super::callbacks::{self, Attribute, Body, Publish};
use super::{borrow, buffer};
use crate::error::{error_of, is_refusal};
use crate::interpreter::head::Head;
use crate::interpreter::symbol;

/// Lets threads of a free-threaded Python (3.14 and newer) call a module's functions without
/// competing for their reference counts. Call it at the end of the module's function. With the
/// GIL, it does nothing.
///
/// Classes with [`dlpack_methods!`](crate::dlpack_methods) do not need it.
///
/// ```
/// use dlbridge_pyo3::{PyTensor, defer_reference_counts};
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn ndim(x: PyTensor) -> usize {
///     x.ndim()
/// }
///
/// #[pymodule(gil_used = false)]
/// fn extension(module: &Bound<'_, PyModule>) -> PyResult<()> {
///     module.add_function(wrap_pyfunction!(ndim, module)?)?;
///     defer_reference_counts(module)
/// }
/// # Python::initialize();
/// # Python::attach(|py| extension(&PyModule::new(py, "m").unwrap()).unwrap());
/// ```
///
/// # Errors
///
/// Python's, if there is no memory.
pub fn defer_reference_counts(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for value in module.dict().values() {
        if value.is_instance_of::<PyCFunction>() {
            defer(&value);
        }
    }
    Ok(())
}

/// Does the same for a class that PyO3 has just made, and for its methods. `made` is a new object
/// of this thread.
pub(crate) fn prepare_class(class: &Bound<'_, PyType>, made: &Bound<'_, PyAny>) -> PyResult<()> {
    borrow::find_table(class.py())?;
    // A copy: another thread that creates the class may add attributes during the loop.
    let names = class.getattr(intern!(class.py(), "__dict__"))?;
    let names = names.call_method0(intern!(class.py(), "copy"))?.cast_into::<PyDict>()?;
    for value in names.values() {
        defer(&value);
    }
    fix_count(class, made);
    Ok(())
}

/// Defers the reference count of an object, if this Python can.
fn defer(object: &Bound<'_, PyAny>) {
    use std::sync::OnceLock;

    type Defer = unsafe extern "C" fn(*mut ffi::PyObject) -> c_int;
    static DEFER: OnceLock<Option<Defer>> = OnceLock::new();
    let found = DEFER.get_or_init(|| {
        let function = symbol(c"PyUnstable_Object_EnableDeferredRefcount")?;
        // SAFETY: the function has this type in every version that has it (3.14; F5).
        Some(unsafe { mem::transmute::<NonNull<c_void>, Defer>(function) })
    });
    if let Some(defer) = found {
        // SAFETY: attached, and an object; it cannot fail, and other threads may use the object (F1).
        unsafe { defer(object.as_ptr()) };
    }
}

/// The local count of an immortal object.
const IMMORTAL: u32 = u32::MAX;

/// Fixes the reference count of a class that lives as long as the process, as CPython does for
/// classes of its own. Only the thread that made the class may do so.
fn fix_count(class: &Bound<'_, PyType>, made: &Bound<'_, PyAny>) {
    let py = class.py();
    // Of newer versions, it is not known that this makes an object immortal.
    if !matches!(py.version_info(), info if info.major == 3 && matches!(info.minor, 13 | 14)) {
        return;
    }
    let Some(head) = Head::measure(py) else { return };
    let Some(class) = head.free_threaded(class.as_ptr()) else { return };
    let Some(made) = head.free_threaded(made.as_ptr()) else { return };
    // SAFETY: an object of this Python, whose head has this layout (F5), alive (F2).
    let of_class = unsafe { (*class).thread };
    // SAFETY: the same.
    let of_made = unsafe { (*made).thread };
    if of_class == of_made {
        // SAFETY: the same; other threads only read this field, since the object is this thread's.
        let count = unsafe { &(*class).local_count };
        count.store(IMMORTAL, Ordering::Relaxed);
    }
}

/// A method definition that threads share: it never changes.
pub(crate) struct Method(ffi::PyMethodDef);

// SAFETY: immutable (F6).
unsafe impl Sync for Method {}

impl Method {
    /// The method `B` of the class `T`.
    pub(crate) const fn of<T: Publish, B: Body<T>>(
        name: &'static CStr,
        doc: &'static CStr,
    ) -> Self {
        let function = callbacks::method::<T, B>;
        Self(ffi::PyMethodDef {
            ml_name: name.as_ptr(),
            ml_meth: PyMethodDefPointer { PyCFunctionFastWithKeywords: function },
            ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ml_doc: doc.as_ptr(),
        })
    }

    /// Adds the method to a class that does not have one of this name.
    pub(crate) fn add_to(&'static self, kind: &Bound<'_, PyType>) -> PyResult<()> {
        let definition = (&raw const self.0).cast_mut();
        // SAFETY: a type, and a static definition, which Python does not write to (F2).
        let make = || unsafe { ffi::PyDescr_NewMethod(kind.as_type_ptr(), definition) };
        // SAFETY: a static text (F2).
        add(kind, unsafe { CStr::from_ptr(self.0.ml_name) }, make)
    }
}

/// An attribute's definition that threads share: it never changes.
pub(crate) struct Property(ffi::PyGetSetDef);

// SAFETY: immutable (F6).
unsafe impl Sync for Property {}

impl Property {
    /// The attribute `A` of the class `T`.
    pub(crate) const fn of<T: Publish, A: Attribute<T>>(
        name: &'static CStr,
        doc: &'static CStr,
    ) -> Self {
        Self(ffi::PyGetSetDef {
            name: name.as_ptr(),
            get: Some(callbacks::getter::<T, A>),
            set: None,
            doc: doc.as_ptr(),
            closure: ptr::null_mut(),
        })
    }

    /// Adds the attribute to a class that does not have one of this name.
    pub(crate) fn add_to(&'static self, kind: &Bound<'_, PyType>) -> PyResult<()> {
        let definition = (&raw const self.0).cast_mut();
        // SAFETY: a type, and a static definition, which Python does not write to (F2).
        let make = || unsafe { ffi::PyDescr_NewGetSet(kind.as_type_ptr(), definition) };
        // SAFETY: a static text (F2).
        add(kind, unsafe { CStr::from_ptr(self.0.name) }, make)
    }
}

/// Adds what a function of Python makes, or raises an exception for, to a class that has nothing of this name.
fn add(
    kind: &Bound<'_, PyType>,
    name: &CStr,
    make: impl FnOnce() -> *mut ffi::PyObject,
) -> PyResult<()> {
    let name = PyString::new(kind.py(), &name.to_string_lossy());
    if kind.getattr("__dict__")?.contains(&name)? {
        return Ok(());
    }
    // SAFETY: a new reference, or null with an exception set (F3).
    match kind.setattr(name, unsafe { Bound::from_owned_ptr_or_err(kind.py(), make()) }?) {
        // Another thread has completed the class meanwhile.
        Err(_) if is_immutable(kind) => Ok(()),
        result => result,
    }
}

/// Makes a class of this library immutable, as `immutable_type` of PyO3 does where the limited API has a function for it
/// (3.14). In a class with a `__new__` of Python's, `object.__new__` would make objects that no Rust code has filled in.
///
/// # Errors
///
/// Python's.
pub fn freeze(kind: &Bound<'_, PyType>) -> PyResult<()> {
    type Freeze = unsafe extern "C" fn(*mut ffi::PyTypeObject) -> c_int;
    let raw = kind.as_type_ptr();
    if let Some(function) = symbol(c"PyType_Freeze") {
        // SAFETY: the function has this type in every version that has it (3.14; F5).
        let freeze = unsafe { mem::transmute::<NonNull<c_void>, Freeze>(function) };
        // SAFETY: attached, and a type (F1).
        if unsafe { freeze(raw) } != 0 {
            return Err(PyErr::fetch(kind.py()));
        }
    } else if let (Some(known), true) = (known(kind), Head::HAS_GIL) {
        if !mro_of(kind)?.iter().skip(1).all(is_immutable) {
            return Err(error_of::<PyTypeError>(
                "expected bases that are immutable, found another",
            ));
        }
        // SAFETY: the flags of the type, as they were compared; other threads wait for the GIL (F5).
        unsafe { (*known).flags |= IMMUTABLE };
        // SAFETY: attached, and a type (F1).
        unsafe { ffi::PyType_Modified(raw) };
    }
    Ok(())
}

/// The `PyTypeObject` of Python 3.11 behind its head, as far as `tp_flags`.
#[repr(C)]
struct TypeObject {
    size: ffi::Py_ssize_t,
    name: *mut c_void,
    basicsize: ffi::Py_ssize_t,
    itemsize: ffi::Py_ssize_t,
    dealloc: *mut c_void,
    vectorcall_offset: ffi::Py_ssize_t,
    getattr: *mut c_void,
    setattr: *mut c_void,
    as_async: *mut c_void,
    repr: *mut c_void,
    as_number: *mut c_void,
    as_sequence: *mut c_void,
    as_mapping: *mut c_void,
    hash: *mut c_void,
    call: *mut c_void,
    str: *mut c_void,
    getattro: *mut c_void,
    setattro: *mut c_void,
    as_buffer: *mut BufferProcs,
    flags: c_ulong,
}

/// CPython's `PyBufferProcs`.
#[repr(C)]
struct BufferProcs {
    get: Option<ffi::getbufferproc>,
    release: Option<ffi::releasebufferproc>,
}

/// Whether Python makes a class's buffer functions from its method `__buffer__`.
pub(crate) fn makes_buffers(py: Python<'_>) -> bool {
    py.version_info() >= (3, 12)
}

/// Sets the buffer function of the class `T` in Python 3.11, if it has none and the layout is as expected.
///
/// Called while the class is being created, before it has an object or a subclass.
pub(crate) fn set_buffers<T: Publish>(kind: &Bound<'_, PyType>) {
    let Some(known) = known(kind) else { return };
    // SAFETY: the fields of the class, as they were compared (F5).
    let functions = unsafe { (*known).as_buffer };
    // SAFETY: the class's own struct; other threads wait for the GIL (F5).
    let functions = unsafe { functions.as_mut() };
    if let Some(BufferProcs { get: get @ None, release: None }) = functions {
        *get = Some(buffer::forward::<T>);
    }
}

/// Whether the attributes of a type's objects are what its classes define: no code answers for them.
pub(crate) fn looks_up_plainly(kind: &Bound<'_, PyType>) -> bool {
    let lookup = slot(kind.as_type_ptr(), ffi::Py_tp_getattro);
    lookup == ffi::PyObject_GenericGetAttr as *mut c_void
}

/// What Python keeps of every type (`__mro__`, `__dict__`, `__module__`), by the descriptor that `type` has for it: an
/// ordinary lookup runs code of the type's metaclass.
pub(crate) fn kept_of<'py>(
    kind: &Bound<'py, PyType>,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = kind.py();
    let descriptors = py.get_type::<PyType>().getattr(intern!(py, "__dict__"))?;
    let get = descriptors.get_item(name)?.getattr(intern!(py, "__get__"))?;
    get.call1((kind,))
}

/// The classes of a type's `__mro__`.
pub(crate) fn mro_of<'py>(kind: &Bound<'py, PyType>) -> PyResult<Vec<Bound<'py, PyType>>> {
    let classes = kept_of(kind, intern!(kind.py(), "__mro__"))?.cast_into::<PyTuple>()?;
    classes.into_iter().map(|class| Ok(class.cast_into()?)).collect()
}

/// The attribute that a class itself defines. Python as well ignores what a key of its dict raises in a comparison.
pub(crate) fn own<'py>(
    class: &Bound<'py, PyType>,
    name: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = class.py();
    match kept_of(class, intern!(py, "__dict__"))?.get_item(name) {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_refusal(py, &error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A type's attribute as its class's dict has it, not bound to the type.
pub(crate) fn inherited<'py>(
    kind: &Bound<'py, PyType>,
    name: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let found = mro_of(kind)?.iter().find_map(|class| own(class, name).transpose());
    found.transpose()
}

/// The module of a type and its name there, if both are text.
pub(crate) fn names_of<'py>(
    kind: &Bound<'py, PyType>,
) -> PyResult<Option<[Bound<'py, PyString>; 2]>> {
    let py = kind.py();
    let of = |name| match kept_of(kind, name) {
        Ok(found) => Ok(found.cast_into::<PyString>().ok()),
        Err(error) if is_refusal(py, &error) => Ok(None),
        Err(error) => Err(error),
    };
    let (module, name) = (of(intern!(py, "__module__"))?, of(intern!(py, "__qualname__"))?);
    Ok(module.zip(name).map(|(module, name)| [module, name]))
}

/// Whether a type has a name in a module that `is_module` accepts.
pub(crate) fn is_named(
    kind: &Bound<'_, PyType>,
    is_module: impl FnOnce(&str) -> bool,
    name: &str,
) -> PyResult<bool> {
    let Some([module, found]) = names_of(kind)? else { return Ok(false) };
    if found != name {
        return Ok(false);
    }
    // Text with half of a pair of surrogates names no module.
    match module.to_str() {
        Ok(module) => Ok(is_module(module)),
        Err(error) if is_refusal(kind.py(), &error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether no class derives from a type, as none of the `class` statement is.
pub(crate) fn is_final(kind: &Bound<'_, PyType>) -> bool {
    const BASE: c_ulong = 1 << 10;
    flags(kind) & BASE == 0
}

/// Whether a type does not change.
pub(crate) fn is_immutable(kind: &Bound<'_, PyType>) -> bool {
    flags(kind) & IMMUTABLE != 0
}

/// `Py_TPFLAGS_IMMUTABLETYPE`.
const IMMUTABLE: c_ulong = 1 << 8;

fn flags(kind: &Bound<'_, PyType>) -> c_ulong {
    // SAFETY: a type (F1).
    unsafe { ffi::PyType_GetFlags(kind.as_type_ptr()) }
}

/// The value of a slot, from the stable ABI.
fn slot(kind: *mut ffi::PyTypeObject, number: c_int) -> *mut c_void {
    // SAFETY: a type, and a slot that every version has (F1).
    unsafe { ffi::PyType_GetSlot(kind, number) }
}

/// The fields of a class's type object, if the layout is as expected.
fn known(kind: &Bound<'_, PyType>) -> Option<*mut TypeObject> {
    if !Head::IS_COMPILED {
        return None;
    }
    let raw = kind.as_type_ptr();
    let head = Head::measure(kind.py())?;
    let fields = head.fields::<TypeObject>(kind.as_ptr());
    let size = kind.get_type().getattr(intern!(kind.py(), "__basicsize__")).ok()?;
    if size.extract::<usize>().ok()? < head.size() + size_of::<TypeObject>() {
        return None;
    }
    // SAFETY: within the type object, whose size was asked for; plain numbers and pointers (F5).
    let known = unsafe { &*fields };
    // The neighbours on both sides, and more of them, are where they are expected.
    let agrees = known.flags == flags(kind)
        && known.setattro == slot(raw, ffi::Py_tp_setattro)
        && known.getattro == slot(raw, ffi::Py_tp_getattro)
        && known.str == slot(raw, ffi::Py_tp_str)
        && known.hash == slot(raw, ffi::Py_tp_hash)
        && known.repr == slot(raw, ffi::Py_tp_repr)
        && known.dealloc == slot(raw, ffi::Py_tp_dealloc);
    agrees.then_some(fields)
}
