//! Gives buffers to users' classes, and to `dlbridge.Tensor` where PyO3 does not.
//! The functions themselves belong to `buffer`.
//! Invariant: a type whose struct does not have the expected layout is not changed.
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
use std::marker::PhantomData;
use std::mem::offset_of;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use pyo3::{ffi, intern};

use super::methods::Method;
use super::traits::ExportDlpack;
use super::{buffer, methods};
use crate::TensorObject;
use crate::ffi::buffer::{GetBuffer, ReleaseBuffer};
use crate::ffi::head::Head;
use crate::ffi::versions::with_critical_section;

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

/// The method of PEP 688, which marks a class with buffers, where Python does not make it. It is not made by PyO3:
/// with more methods whose arguments PyO3 parses, the compiler inlines less of the code that makes a tensor
/// object, which then takes 81 more of 812 instructions.
static METHOD: Method = Method(ffi::PyMethodDef {
    ml_name: c"__buffer__".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer { PyCFunction: buffer::method::<TensorObject> },
    ml_flags: ffi::METH_O,
    ml_doc: DOC.as_ptr(),
});

const DOC: &CStr =
    c"__buffer__($self, flags, /)\n--\n\nGive a memoryview over the same memory (PEP 688).";

/// The same method of a user's class, from which Python makes its buffer functions.
struct Forwarding<T>(PhantomData<T>);

impl<T: ExportDlpack> Forwarding<T> {
    const METHOD: &'static Method = &Method(ffi::PyMethodDef {
        ml_name: c"__buffer__".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: buffer::forward::<T> },
        ml_flags: ffi::METH_O,
        ml_doc: DOC.as_ptr(),
    });
}

/// Sets the buffer functions of the class that PyO3 made, unless PyO3 did.
///
/// Called while the class is being created, before it has an object or a subclass. If several
/// threads need the class at the same time, the first one does the work and the others wait. If the
/// layout is not as expected, tensors have no buffers.
pub(crate) fn install(py: Python<'_>) -> PyResult<()> {
    static INSTALLED: PyOnceLock<()> = PyOnceLock::new();
    INSTALLED.get_or_try_init(py, || install_in(&py.get_type::<TensorObject>()))?;
    Ok(())
}

fn install_in(kind: &Bound<'_, PyType>) -> PyResult<()> {
    if has_functions(kind) {
        // Since 3.12, Python has made the method from them.
        return methods::add(kind, &METHOD);
    }
    let Some(functions) = functions_of(kind) else { return Ok(()) };
    // Since 3.12, this makes functions that call the method, which are then replaced.
    methods::add(kind, &METHOD)?;
    // SAFETY: the type's own struct of buffer functions, checked; no other thread has the type before
    // `install` returns (F5).
    unsafe { functions.write(BufferProcs::of::<TensorObject>()) };
    let found = slot(kind.as_type_ptr(), BF_GETBUFFER);
    debug_assert_eq!(found, buffer::get::<TensorObject> as *mut c_void, "as Python finds it");
    Ok(())
}

/// Sets the buffer functions of a user's class that has none.
///
/// Called while the class is being created. Threads that need the class at the same time all call it,
/// and each has the class only afterwards.
pub(super) fn install_for<T: ExportDlpack>(py: Python<'_>) -> PyResult<()> {
    let kind = py.get_type::<T>();
    if !Head::IS_COMPILED {
        // A class with functions of its own has the method, from Python.
        return methods::add(&kind, Forwarding::<T>::METHOD);
    }
    with_critical_section(&kind, || {
        if let Some(functions) = functions_of(&kind) {
            // SAFETY: the type's own struct of buffer functions, checked, and guarded from other threads
            // (F5).
            unsafe { functions.write(BufferProcs::of::<T>()) };
        }
    });
    Ok(())
}

impl BufferProcs {
    fn of<T: ExportDlpack>() -> Self {
        Self { get: Some(buffer::get::<T>), release: Some(buffer::release) }
    }
}

/// The value of a slot, from the stable ABI.
fn slot(kind: *mut ffi::PyTypeObject, number: c_int) -> *mut c_void {
    // SAFETY: a type, and a slot that every version has (F1).
    unsafe { ffi::PyType_GetSlot(kind, number) }
}

/// Whether a type has buffer functions.
fn has_functions(kind: &Bound<'_, PyType>) -> bool {
    let raw = kind.as_type_ptr();
    !(slot(raw, BF_GETBUFFER).is_null() && slot(raw, BF_RELEASEBUFFER).is_null())
}

/// The address of a type's buffer functions, if the layout is as expected and they are unset.
fn functions_of(kind: &Bound<'_, PyType>) -> Option<*mut BufferProcs> {
    if !Head::IS_COMPILED || has_functions(kind) {
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
    // SAFETY: a type (F1).
    let flags = unsafe { ffi::PyType_GetFlags(raw) };
    let agrees = known.flags == flags
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
