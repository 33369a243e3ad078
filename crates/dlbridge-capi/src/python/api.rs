//! The functions of the Python C API that are used, found in the running process.
//! Calling them does not belong here (see `object`).
//! Invariant: a table is complete, its types are those of CPython's headers, and it is never freed.
#![allow(non_snake_case, reason = "the names are Python's")]

use std::ffi::{c_char, c_int, c_long, c_longlong, c_uint, c_void};
use std::sync::OnceLock;

use crate::error::{Error, Result};

/// A Python object. Opaque.
#[derive(Debug)]
#[repr(C)]
pub struct PyObject {
    private: [u8; 0],
}

/// A pointer to an object, or null.
pub(super) type Pointer = *mut PyObject;

/// `PyType_Slot`, which is part of the stable ABI.
#[repr(C)]
pub(super) struct Slot {
    pub(super) id: c_int,
    pub(super) value: *mut c_void,
}

/// `PyType_Spec`, which is part of the stable ABI.
#[repr(C)]
pub(super) struct Spec {
    pub(super) name: *const c_char,
    pub(super) basicsize: c_int,
    pub(super) itemsize: c_int,
    pub(super) flags: c_uint,
    pub(super) slots: *mut Slot,
}

macro_rules! api {
    (
        functions { $($function:ident($($argument:ty),*) $(-> $result:ty)?;)* }
        exceptions { $($exception:ident;)* }
    ) => {
        /// Python's functions and exceptions, under their own names.
        pub(super) struct Api {
            $(pub(super) $function: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            $(pub(super) $exception: *const Pointer,)*
            /// `None` itself.
            pub(super) none: Pointer,
            /// The class `object`.
            pub(super) object: Pointer,
        }

        #[cfg(unix)]
        impl Api {
            /// Looks every name up; `None` if this is no Python, or one that lacks something.
            fn of(library: &libloading::os::unix::Library) -> Option<Self> {
                $(
                    // SAFETY: only a type, which is that of the header (F5).
                    let $function = unsafe { library.get(concat!(stringify!($function), "\0").as_bytes()) };
                )*
                $(
                    // SAFETY: a variable of type `PyObject *` (F5).
                    let $exception = unsafe { library.get(concat!(stringify!($exception), "\0").as_bytes()) };
                )*
                // SAFETY: variables that are objects themselves, so the symbol is the pointer (F5).
                let none = unsafe { library.get(b"_Py_NoneStruct\0") };
                // SAFETY: the same.
                let object = unsafe { library.get(b"PyBaseObject_Type\0") };
                Some(Self {
                    $($function: *$function.ok()?,)*
                    $($exception: *$exception.ok()?,)*
                    none: *none.ok()?,
                    object: *object.ok()?,
                })
            }
        }
    };
}

api! {
    functions {
        Py_IsInitialized() -> c_int;
        PyGILState_Check() -> c_int;
        Py_IncRef(Pointer);
        Py_DecRef(Pointer);
        PyErr_Fetch(*mut Pointer, *mut Pointer, *mut Pointer);
        PyErr_Restore(Pointer, Pointer, Pointer);
        PyErr_NormalizeException(*mut Pointer, *mut Pointer, *mut Pointer);
        PyErr_GivenExceptionMatches(Pointer, Pointer) -> c_int;
        PyErr_SetString(Pointer, *const c_char);
        PyObject_GetAttr(Pointer, Pointer) -> Pointer;
        PyObject_HasAttr(Pointer, Pointer) -> c_int;
        PyObject_IsTrue(Pointer) -> c_int;
        PyObject_Str(Pointer) -> Pointer;
        PyObject_Type(Pointer) -> Pointer;
        PyObject_VectorcallMethod(Pointer, *const Pointer, usize, Pointer) -> Pointer;
        PyUnicode_InternFromString(*const c_char) -> Pointer;
        PyUnicode_AsUTF8AndSize(Pointer, *mut isize) -> *const c_char;
        PyUnicode_CompareWithASCIIString(Pointer, *const c_char) -> c_int;
        PyLong_FromLong(c_long) -> Pointer;
        PyLong_AsLongLong(Pointer) -> c_longlong;
        PyTuple_New(isize) -> Pointer;
        PyTuple_SetItem(Pointer, isize, Pointer) -> c_int;
        PyTuple_GetItem(Pointer, isize) -> Pointer;
        PyTuple_Size(Pointer) -> isize;
        PySequence_GetItem(Pointer, isize) -> Pointer;
        PyCapsule_New(*mut c_void, *const c_char, Option<unsafe extern "C" fn(Pointer)>) -> Pointer;
        PyCapsule_IsValid(Pointer, *const c_char) -> c_int;
        PyCapsule_GetPointer(Pointer, *const c_char) -> *mut c_void;
        PyCapsule_SetName(Pointer, *const c_char) -> c_int;
        PyType_FromSpec(*mut Spec) -> Pointer;
        PyType_GetSlot(Pointer, c_int) -> *mut c_void;
        PyType_GenericAlloc(Pointer, isize) -> Pointer;
    }
    exceptions {
        PyExc_AttributeError;
        PyExc_BufferError;
        PyExc_Exception;
        PyExc_TypeError;
    }
}

// SAFETY: addresses of functions and of variables that do not change once Python runs (F6).
unsafe impl Send for Api {}
// SAFETY: the same.
unsafe impl Sync for Api {}

static API: OnceLock<Api> = OnceLock::new();

/// The table of the Python in this process, if there is one.
#[inline]
pub(super) fn get() -> Option<&'static Api> {
    match API.get() {
        Some(api) => Some(api),
        None => find(),
    }
}

/// Looks among the global names of the process.
#[cfg(unix)]
#[cold]
fn find() -> Option<&'static Api> {
    let api = Api::of(&libloading::os::unix::Library::this())?;
    Some(API.get_or_init(|| api))
}

/// Global names are a matter of Unix; elsewhere Python is not found.
#[cfg(not(unix))]
fn find() -> Option<&'static Api> {
    None
}

/// Takes the table from a library that is open already.
///
/// # Safety
///
/// `library` is a handle from `dlopen` that stays open.
#[cfg(unix)]
pub(crate) unsafe fn load_from(library: *mut c_void) -> Result<()> {
    // SAFETY: the caller's duty.
    let library = unsafe { libloading::os::unix::Library::from_raw(library) };
    let api = Api::of(&library);
    // The handle is the caller's.
    std::mem::forget(library);
    let api = api.ok_or(Error::NotAttached("library: found no Python in it, or an old one"))?;
    API.get_or_init(|| api);
    Ok(())
}

/// There is no `dlopen` here.
///
/// # Safety
///
/// None.
#[cfg(not(unix))]
pub(crate) unsafe fn load_from(_: *mut c_void) -> Result<()> {
    Err(Error::NotAttached("python: not supported on this system yet"))
}
