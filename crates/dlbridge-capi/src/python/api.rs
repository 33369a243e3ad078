//! The functions of the Python C API that this crate uses, found in the running process.
//! Calling them belongs to `object`.
//! Invariant: a table is complete, its types are those of CPython's headers, and it is never freed.
#![allow(non_snake_case, reason = "the names are Python's")]
#![cfg_attr(not(any(unix, windows)), allow(dead_code, reason = "Python is not found there"))]

use std::ffi::{c_char, c_int, c_longlong, c_uint, c_ulong, c_void};
use std::sync::OnceLock;

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
            pub(super) current: Current,
        }

        #[cfg(any(unix, windows))]
        impl Api {
            /// Looks every name up; the error is the first one that is missing.
            fn complete(library: &Library, current: Current) -> Result<Self, &'static str> {
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
                    current,
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

/// From this version on, the function that looks at the current thread state is a public one.
#[cfg(any(unix, windows))]
const THREAD_STATE_IS_LOCAL: (u32, u32) = (3, 12);

/// How the thread state of the calling thread is found. `PyGILState_Check` answers yes for every
/// thread once a sub-interpreter has existed.
#[derive(Clone, Copy)]
pub(super) enum Current {
    /// From 3.12 on the current thread state belongs to the thread; its dictionary is null without
    /// one.
    Local(unsafe extern "C" fn() -> *mut c_void),
    /// Before, the current thread state belongs to the process: it must be this thread's.
    Global {
        current: unsafe extern "C" fn() -> *mut c_void,
        of_this_thread: unsafe extern "C" fn() -> *mut c_void,
    },
}

impl Current {
    /// Whether the calling thread has a thread state, and it is the current one. Python must run.
    pub(super) fn is_attached(self) -> bool {
        match self {
            // SAFETY: Python runs; it gives null where there is no thread state (F1).
            Self::Local(dictionary) => !unsafe { dictionary() }.is_null(),
            Self::Global { current, of_this_thread } => {
                // SAFETY: Python runs; reads what belongs to this thread (F1).
                let own = unsafe { of_this_thread() };
                // SAFETY: Python runs; reads one pointer, atomically (F1).
                !own.is_null() && own == unsafe { current() }
            }
        }
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
        type State = unsafe extern "C" fn() -> *mut c_void;
        // SAFETY: only a type, which is that of the header (F5).
        let text = unsafe { library.get::<Text>(b"Py_GetVersion\0") };
        let text = *text.map_err(|_| Absent::Nowhere)?;
        // SAFETY: may be called at any time (F1).
        let text = unsafe { text() };
        // SAFETY: a static text (F2).
        let text = unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy();
        let found = text.split(' ').next().unwrap_or_default();
        let version = version(found);
        if version < OLDEST {
            return Err(Absent::TooOld(found.to_owned()));
        }
        let state = |name: &'static str| {
            // SAFETY: only a type, which is that of the header (F5).
            let function = unsafe { library.get::<State>(name.as_bytes()) };
            function.map(|function| *function).map_err(|_| Absent::Incomplete(name))
        };
        let current = if version >= THREAD_STATE_IS_LOCAL {
            Current::Local(state("PyThreadState_GetDict")?)
        } else {
            Current::Global {
                current: state("_PyThreadState_UncheckedGet")?,
                of_this_thread: state("PyGILState_GetThisThreadState")?,
            }
        };
        Self::complete(library, current).map_err(Absent::Incomplete)
    }
}

/// Reads `3.12.1`.
#[cfg(any(unix, windows))]
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
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

#[cfg(all(test, any(unix, windows)))]
mod tests {
    use super::version;

    #[test]
    fn versions_of_python_are_read() {
        assert_eq!(version("3.10.13"), (3, 10));
        assert_eq!(version("3.14.0rc1"), (3, 14));
        assert_eq!(version(""), (0, 0));
    }
}
