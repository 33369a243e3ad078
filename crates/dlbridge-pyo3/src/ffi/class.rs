//! Gives a class that PyO3 made more methods, and buffers.
//! What the methods do belongs to `class`.
//! Invariant: a method or buffer function of the class's own is kept, and a type whose struct does not
//! have the expected layout is not changed.
//!
//! PyO3 makes the buffer functions of `dlbridge.Tensor` (`__getbuffer__`), except with the limited
//! API of Python 3.10, which has none and for which one of our wheels is built; and it takes those of
//! a user's class from the user's own block of methods alone. But the buffer functions of a heap type
//! can be set at any time: they are in the type object itself, `tp_as_buffer` points to them, and
//! every CPython calls them there. The struct of a type is not part of the limited API, so its layout
//! is checked against the slots that the stable ABI returns for the same type.
//!
//! A build for `abi3t` does not read that struct. It runs on Python 3.15 and newer, which makes the
//! buffer functions of a user's class from its method `__buffer__` (PEP 688).

use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::mem::offset_of;

use pyo3::ffi::{self, PyMethodDefPointer};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyString, PyType};

use super::buffer::{self, GetBuffer, ReleaseBuffer};
use super::callbacks::{self, Body, Publish};
use super::head::Head;
use super::versions::with_critical_section;

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
        // SAFETY: a static text (F2).
        let name = unsafe { CStr::from_ptr(self.0.ml_name) };
        let name = PyString::new(kind.py(), &name.to_string_lossy());
        if kind.getattr("__dict__")?.contains(&name)? {
            return Ok(());
        }
        let definition = (&raw const self.0).cast_mut();
        // SAFETY: a type, and a static definition, which Python does not write to (F2).
        let method = unsafe { ffi::PyDescr_NewMethod(kind.as_type_ptr(), definition) };
        // SAFETY: a new reference, or null with an exception set (F3).
        kind.setattr(name, unsafe { Bound::from_owned_ptr_or_err(kind.py(), method) }?)
    }
}

/// CPython's `PyTypeObject` behind its head, as far as `tp_flags`: the same from 3.8 to 3.15.
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
    get: Option<GetBuffer>,
    release: Option<ReleaseBuffer>,
}

/// Numbers of slots, which are part of the stable ABI.
const BF_GETBUFFER: c_int = 1;
const BF_RELEASEBUFFER: c_int = 2;

/// Whether a type has buffer functions.
pub(crate) fn has_buffers(kind: &Bound<'_, PyType>) -> bool {
    let raw = kind.as_type_ptr();
    !(slot(raw, BF_GETBUFFER).is_null() && slot(raw, BF_RELEASEBUFFER).is_null())
}

/// Sets the buffer functions of the class `T`, if it has none and the layout is as expected, and adds
/// `method` before.
///
/// Called while the class is being created, before it has an object or a subclass.
pub(crate) fn set_buffers<T: Publish>(
    kind: &Bound<'_, PyType>,
    method: Option<&'static Method>,
) -> PyResult<()> {
    with_critical_section(kind, || {
        let Some(functions) = functions_of(kind) else { return Ok(()) };
        if let Some(method) = method {
            // Since 3.12, this makes functions that call the method, which are then replaced.
            method.add_to(kind)?;
        }
        let ours = BufferProcs { get: Some(buffer::get::<T>), release: Some(buffer::release) };
        // SAFETY: the type's own struct of buffer functions, checked, and guarded from other threads,
        // which have the type only afterwards (F5).
        unsafe { functions.write(ours) };
        let found = slot(kind.as_type_ptr(), BF_GETBUFFER);
        debug_assert_eq!(found, buffer::get::<T> as *mut c_void, "as Python finds it");
        Ok(())
    })
}

/// Whether this build can set the buffer functions of a class.
pub(crate) const SETS_BUFFERS: bool = Head::IS_COMPILED;

/// An iterator over the items of a sequence, which `__getitem__` gives.
pub(crate) fn iterator<'py>(sequence: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    // SAFETY: attached, and an object (F1).
    let iterator = unsafe { ffi::PySeqIter_New(sequence.as_ptr()) };
    // SAFETY: a new reference, or null with an exception set (F3).
    let iterator = unsafe { Bound::from_owned_ptr_or_err(sequence.py(), iterator) }?;
    Ok(iterator.cast_into()?)
}

/// Whether the attributes of a type's objects are what its classes define: no code answers for them.
pub(crate) fn looks_up_plainly(kind: &Bound<'_, PyType>) -> bool {
    let lookup = slot(kind.as_type_ptr(), ffi::Py_tp_getattro);
    lookup == ffi::PyObject_GenericGetAttr as *mut c_void
}

/// Whether a type does not change.
pub(crate) fn is_immutable(kind: &Bound<'_, PyType>) -> bool {
    const IMMUTABLE: c_ulong = 1 << 8;
    flags(kind) & IMMUTABLE != 0
}

fn flags(kind: &Bound<'_, PyType>) -> c_ulong {
    // SAFETY: a type (F1).
    unsafe { ffi::PyType_GetFlags(kind.as_type_ptr()) }
}

/// The value of a slot, from the stable ABI.
fn slot(kind: *mut ffi::PyTypeObject, number: c_int) -> *mut c_void {
    // SAFETY: a type, and a slot that every version has (F1).
    unsafe { ffi::PyType_GetSlot(kind, number) }
}

/// The address of a type's buffer functions, if the layout is as expected and they are unset.
fn functions_of(kind: &Bound<'_, PyType>) -> Option<*mut BufferProcs> {
    if !Head::IS_COMPILED || has_buffers(kind) {
        return None;
    }
    let raw = kind.as_type_ptr();
    let head = Head::measure(kind.py())?;
    let known = head.fields::<TypeObject>(kind.as_ptr());
    let meta = kind.get_type();
    let size: usize = meta.getattr(intern!(kind.py(), "__basicsize__")).ok()?.extract().ok()?;
    if size < head.size() + size_of::<TypeObject>() + size_of::<BufferProcs>() {
        return None;
    }
    // SAFETY: within the type object, whose size was asked for; plain numbers and pointers (F5).
    let known = unsafe { &*known };
    // The neighbours on both sides, and more of them, are where they are expected.
    let agrees = known.flags == flags(kind)
        && known.setattro == slot(raw, ffi::Py_tp_setattro)
        && known.getattro == slot(raw, ffi::Py_tp_getattro)
        && known.str == slot(raw, ffi::Py_tp_str)
        && known.hash == slot(raw, ffi::Py_tp_hash)
        && known.repr == slot(raw, ffi::Py_tp_repr)
        && known.dealloc == slot(raw, ffi::Py_tp_dealloc);
    // A heap type's functions stand in the type object.
    let offset = known.as_buffer.addr().checked_sub(raw.addr())?;
    let after_flags = head.size() + offset_of!(TypeObject, flags) + size_of::<c_ulong>();
    let is_inside = offset >= after_flags
        && offset % align_of::<BufferProcs>() == 0
        && offset + size_of::<BufferProcs>() <= size;
    if !(agrees && is_inside) {
        return None;
    }
    // SAFETY: inside the type object, as measured (F5).
    let functions = unsafe { &*known.as_buffer };
    (functions.get.is_none() && functions.release.is_none()).then_some(known.as_buffer)
}
