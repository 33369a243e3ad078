//! The functions of the Python C API that this crate uses, found in the running process.
//! Calling them belongs to `object`.
//! Invariant: a table is complete, its types are those of CPython's headers, and it is never freed.
#![allow(non_snake_case, reason = "the names are Python's")]
#![cfg_attr(not(any(unix, windows)), allow(dead_code, reason = "Python is not found there"))]

use std::ffi::{CStr, c_char, c_int, c_longlong, c_uint, c_ulong, c_void};
use std::sync::OnceLock;

use dlbridge::protocol::attached::Attachment;
#[cfg(any(unix, windows))]
use dlbridge::protocol::attached::version;

use super::absent::{Absent, OLDEST};
use crate::error::{Error, Result};

#[cfg(any(unix, windows))]
use super::process::{self, Library};

/// A Python object. Opaque.
#[derive(Debug)]
#[repr(C)]
pub struct PyObject {
    private: [u8; 0],
}

/// A pointer to an object, or null.
pub(super) type Pointer = *mut PyObject;

/// `PyMethodDef`; all functions are pointers of one size.
#[repr(C)]
pub(super) struct Method {
    pub(super) name: *const c_char,
    pub(super) function: *const c_void,
    pub(super) flags: c_int,
    pub(super) doc: *const c_char,
}

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
            /// Tells whether the calling thread is attached.
            attachment: Attachment<State>,
        }

        #[cfg(any(unix, windows))]
        impl Api {
            /// Looks every name up; the error is the first one that is missing.
            fn complete(library: &Library, attachment: Attachment<State>) -> Result<Self, &'static str> {
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
                Ok(Self {
                    $($function: *$function.map_err(|_| stringify!($function))?,)*
                    $($exception: *$exception.map_err(|_| stringify!($exception))?,)*
                    none: *none.map_err(|_| "_Py_NoneStruct")?,
                    object: *object.map_err(|_| "PyBaseObject_Type")?,
                    attachment,
                })
            }
        }
    };
}

api! {
    functions {
        Py_IsInitialized() -> c_int;
        Py_AtExit(unsafe extern "C" fn()) -> c_int;
        PyInterpreterState_Get() -> *mut c_void;
        PyInterpreterState_GetID(*mut c_void) -> i64;
        Py_IncRef(Pointer);
        Py_DecRef(Pointer);
        PyErr_Fetch(*mut Pointer, *mut Pointer, *mut Pointer);
        PyErr_Restore(Pointer, Pointer, Pointer);
        PyErr_NormalizeException(*mut Pointer, *mut Pointer, *mut Pointer);
        PyErr_GivenExceptionMatches(Pointer, Pointer) -> c_int;
        PyErr_SetString(Pointer, *const c_char);
        PyObject_GetAttr(Pointer, Pointer) -> Pointer;
        PyObject_GetItem(Pointer, Pointer) -> Pointer;
        PyObject_HasAttr(Pointer, Pointer) -> c_int;
        PyObject_IsTrue(Pointer) -> c_int;
        PyObject_Str(Pointer) -> Pointer;
        PyObject_Type(Pointer) -> Pointer;
        PyObject_VectorcallMethod(Pointer, *const Pointer, usize, Pointer) -> Pointer;
        PyUnicode_InternFromString(*const c_char) -> Pointer;
        PyUnicode_AsUTF8AndSize(Pointer, *mut isize) -> *const c_char;
        PyUnicode_AsEncodedString(Pointer, *const c_char, *const c_char) -> Pointer;
        PyUnicode_CompareWithASCIIString(Pointer, *const c_char) -> c_int;
        PyBytes_AsStringAndSize(Pointer, *mut *mut c_char, *mut isize) -> c_int;
        PyLong_FromLongLong(c_longlong) -> Pointer;
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
        PyCapsule_SetPointer(Pointer, *mut c_void) -> c_int;
        PyCapsule_SetDestructor(Pointer, Option<unsafe extern "C" fn(Pointer)>) -> c_int;
        PyCFunction_NewEx(*const Method, Pointer, Pointer) -> Pointer;
        PyImport_GetModule(Pointer) -> Pointer;
        PyType_FromSpec(*mut Spec) -> Pointer;
        PyType_GetFlags(Pointer) -> c_ulong;
        PyType_GetSlot(Pointer, c_int) -> *mut c_void;
        PyType_GenericAlloc(Pointer, isize) -> Pointer;
        PyWeakref_NewRef(Pointer, Pointer) -> Pointer;
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

/// A function that returns a state of a thread.
type State = unsafe extern "C" fn() -> *mut c_void;

impl Api {
    /// Whether the calling thread is attached. Python must run.
    pub(super) fn is_attached(&self) -> bool {
        // SAFETY: Python runs; any thread may call them (F1, F5).
        self.attachment.is_attached(|state| unsafe { state() })
    }
}

/// The table of the Python in this process, if there is one.
#[inline]
pub(super) fn get() -> Result<&'static Api, Absent> {
    match API.get() {
        Some(api) => Ok(api),
        None => find(),
    }
}

/// Looks among the libraries of the process.
#[cfg(any(unix, windows))]
#[cold]
fn find() -> Result<&'static Api, Absent> {
    let api = process::search(Api::of)?;
    Ok(API.get_or_init(|| api))
}

/// On other systems Python is not found.
#[cfg(not(any(unix, windows)))]
fn find() -> Result<&'static Api, Absent> {
    Err(Absent::Nowhere)
}

#[cfg(any(unix, windows))]
impl Api {
    /// The table of a library. Where there is no Python, one name is looked up.
    fn of(library: &Library) -> Result<Self, Absent> {
        type Text = unsafe extern "C" fn() -> *const c_char;
        // SAFETY: only a type, which is that of the header (F5).
        let text = unsafe { library.get::<Text>(b"Py_GetVersion\0") };
        let text = *text.map_err(|_| Absent::Nowhere)?;
        // SAFETY: may be called at any time (F1).
        let text = unsafe { text() };
        // SAFETY: a static text (F2).
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        let found = text.split(' ').next().unwrap_or_default();
        let version = version(found);
        if version < OLDEST {
            return Err(Absent::TooOld(found.to_owned()));
        }
        let attachment = Attachment::find(version.1, |name| {
            // SAFETY: only a type, which is that of the header (F5).
            let function = unsafe { library.get::<State>(name.to_bytes_with_nul()) };
            function.ok().map(|function| *function)
        });
        let missing = |name: &'static CStr| Absent::Incomplete(name.to_str().unwrap_or_default());
        let attachment = attachment.map_err(missing)?;
        Self::complete(library, attachment).map_err(Absent::Incomplete)
    }
}

/// Takes the table from a library that is open already.
///
/// # Safety
///
/// `library` is a handle from `dlopen` (on Windows from `LoadLibrary`) that stays open.
#[cfg(any(unix, windows))]
pub(crate) unsafe fn load_from(library: *mut c_void) -> Result<()> {
    #[cfg(windows)]
    let library = library as isize;
    // SAFETY: the caller's duty.
    let library = unsafe { Library::from_raw(library) };
    let api = Api::of(&library);
    // The handle is the caller's.
    std::mem::forget(library);
    let api = match api {
        Err(Absent::Nowhere) => {
            return Err(Error::Invalid("library: expected libpython, found no Python in it"));
        }
        api => api?,
    };
    let is_initialized = api.Py_IsInitialized;
    if std::ptr::fn_addr_eq(API.get_or_init(|| api).Py_IsInitialized, is_initialized) {
        Ok(())
    } else {
        Err(Error::Invalid(
            "library: expected the Python that is in use already, found another one",
        ))
    }
}

/// There are no shared libraries here.
///
/// # Safety
///
/// None.
#[cfg(not(any(unix, windows)))]
pub(crate) unsafe fn load_from(_: *mut c_void) -> Result<()> {
    Err(Error::NotAttached("python: not supported on this system yet".to_owned()))
}
