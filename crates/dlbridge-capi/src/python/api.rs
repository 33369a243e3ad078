//! The functions of the Python C API that this crate uses, found in the running process.
//! Calling them belongs to `object`.
//! Invariants: a table is complete, its types are those of CPython's headers, and it is never freed. No
//! foreign unwinding passes a frame of this library that drops values or catches panics.
#![allow(non_snake_case, reason = "the names are Python's")]
#![cfg_attr(not(any(unix, windows)), allow(dead_code, reason = "Python is not found there"))]

use std::ffi::{CStr, c_char, c_int, c_longlong, c_uint, c_ulong, c_void};
use std::mem;
use std::sync::OnceLock;

pub(super) use dlbridge::ffi::stopping as foreign;
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

// SAFETY: addresses, of functions and static texts (F6); only unsafe code reads what is there.
unsafe impl Sync for Method {}

pub(super) const METH_NOARGS: c_int = 0x0004;
pub(super) const METH_O: c_int = 0x0008;

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
        functions { $($function:ident($($name:ident: $argument:ty),*) $(-> $result:ty)?;)* }
        exceptions { $($exception:ident;)* }
    ) => {
        /// Python's functions and exceptions, under their own names.
        pub(super) struct Api {
            $($function: unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?,)*
            $(pub(super) $exception: *const Pointer,)*
            /// `None` itself.
            pub(super) none: Pointer,
            /// The class `object`.
            pub(super) object: Pointer,
            /// Tells whether the calling thread is attached.
            attachment: Attachment<State>,
            /// `Py_IsFinalizing`, or its name before Python 3.13.
            finalizing: Option<unsafe extern "C" fn() -> c_int>,
        }

        impl Api {
            $(
                /// The function of Python's headers.
                ///
                /// # Safety
                ///
                /// As Python documents it.
                #[inline]
                pub(super) unsafe fn $function(&self, $($name: $argument),*) $(-> $result)? {
                    // SAFETY: the caller's duty.
                    foreign(|| unsafe { (self.$function)($($name),*) })
                }
            )*
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
                let finalizing = [&b"Py_IsFinalizing\0"[..], b"_Py_IsFinalizing\0"];
                // SAFETY: only a type, which is that of the header (F5).
                let find = |name: &&[u8]| unsafe { library.get(name) }.ok().map(|found| *found);
                Ok(Self {
                    $($function: *$function.map_err(|_| stringify!($function))?,)*
                    $($exception: *$exception.map_err(|_| stringify!($exception))?,)*
                    none: *none.map_err(|_| "_Py_NoneStruct")?,
                    object: *object.map_err(|_| "PyBaseObject_Type")?,
                    attachment,
                    finalizing: finalizing.iter().find_map(find),
                })
            }
        }
    };
}

api! {
    functions {
        Py_IsInitialized() -> c_int;
        Py_AtExit(a: unsafe extern "C" fn()) -> c_int;
        PyInterpreterState_Get() -> *mut c_void;
        PyInterpreterState_GetID(a: *mut c_void) -> i64;
        PyEval_SaveThread() -> *mut c_void;
        PyEval_RestoreThread(a: *mut c_void);
        PyGILState_Check() -> c_int;
        PyGILState_Ensure() -> c_int;
        PyGILState_Release(a: c_int);
        Py_IncRef(a: Pointer);
        Py_DecRef(a: Pointer);
        PyErr_Fetch(a: *mut Pointer, b: *mut Pointer, c: *mut Pointer);
        PyErr_Restore(a: Pointer, b: Pointer, c: Pointer);
        PyErr_NormalizeException(a: *mut Pointer, b: *mut Pointer, c: *mut Pointer);
        PyErr_GivenExceptionMatches(a: Pointer, b: Pointer) -> c_int;
        PyErr_Occurred() -> Pointer;
        PyErr_Clear();
        PyErr_WriteUnraisable(a: Pointer);
        PyErr_SetString(a: Pointer, b: *const c_char);
        PyObject_GetAttr(a: Pointer, b: Pointer) -> Pointer;
        PyObject_GetItem(a: Pointer, b: Pointer) -> Pointer;
        PyObject_HasAttr(a: Pointer, b: Pointer) -> c_int;
        PyObject_IsTrue(a: Pointer) -> c_int;
        PyObject_Str(a: Pointer) -> Pointer;
        PyObject_Type(a: Pointer) -> Pointer;
        PyObject_VectorcallMethod(a: Pointer, b: *const Pointer, c: usize, d: Pointer) -> Pointer;
        PyUnicode_InternFromString(a: *const c_char) -> Pointer;
        PyUnicode_AsUTF8AndSize(a: Pointer, b: *mut isize) -> *const c_char;
        PyUnicode_AsEncodedString(a: Pointer, b: *const c_char, c: *const c_char) -> Pointer;
        PyUnicode_CompareWithASCIIString(a: Pointer, b: *const c_char) -> c_int;
        PyBytes_AsStringAndSize(a: Pointer, b: *mut *mut c_char, c: *mut isize) -> c_int;
        PyLong_FromLongLong(a: c_longlong) -> Pointer;
        PyLong_AsLongLong(a: Pointer) -> c_longlong;
        PyTuple_New(a: isize) -> Pointer;
        PyTuple_SetItem(a: Pointer, b: isize, c: Pointer) -> c_int;
        PyTuple_GetItem(a: Pointer, b: isize) -> Pointer;
        PyTuple_Size(a: Pointer) -> isize;
        PySequence_GetItem(a: Pointer, b: isize) -> Pointer;
        PyCapsule_New(a: *mut c_void, b: *const c_char, c: Option<unsafe extern "C" fn(Pointer)>) -> Pointer;
        PyCapsule_IsValid(a: Pointer, b: *const c_char) -> c_int;
        PyCapsule_GetPointer(a: Pointer, b: *const c_char) -> *mut c_void;
        PyCapsule_SetName(a: Pointer, b: *const c_char) -> c_int;
        PyCapsule_SetPointer(a: Pointer, b: *mut c_void) -> c_int;
        PyCapsule_SetDestructor(a: Pointer, b: Option<unsafe extern "C" fn(Pointer)>) -> c_int;
        PyCFunction_NewEx(a: *const Method, b: Pointer, c: Pointer) -> Pointer;
        PyImport_GetModule(a: Pointer) -> Pointer;
        PyImport_ImportModule(a: *const c_char) -> Pointer;
        PyType_FromSpec(a: *mut Spec) -> Pointer;
        PyType_GetFlags(a: Pointer) -> c_ulong;
        PyType_GetSlot(a: Pointer, b: c_int) -> *mut c_void;
        PyType_GenericAlloc(a: Pointer, b: isize) -> Pointer;
        PyWeakref_NewRef(a: Pointer, b: Pointer) -> Pointer;
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

impl Api {
    /// Whether a thread that [`is_attached`](Self::is_attached) does not find attached may hold the GIL for
    /// another interpreter. `PyGILState_Ensure` would wait for ever there.
    ///
    /// Before Python 3.12 no function tells for certain: `PyGILState_Check` returns 1 on such a thread, but on
    /// every thread once there has been a second interpreter. A thread without a state is not attached.
    #[cold]
    pub(super) fn may_be_elsewhere(&self) -> bool {
        let Attachment::OfProcess { own, .. } = self.attachment else { return false };
        // SAFETY: Python runs; any thread may call it (F1, F5).
        let is_unknown = unsafe { own() }.is_null();
        // SAFETY: the same.
        !is_unknown && unsafe { self.PyGILState_Check() } != 0
    }

    /// Whether Python is being shut down.
    pub(super) fn is_finalizing(&self) -> bool {
        // SAFETY: may be called at any time, on any thread (F1).
        self.finalizing.is_some_and(|finalizing| unsafe { finalizing() } != 0)
    }
}

/// The table, if it has been found.
pub(super) fn found() -> Option<&'static Api> {
    API.get()
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
        dlbridge::ffi::on_unwind(stop);
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
    mem::forget(library);
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

/// Stops this thread, which foreign code unwinds, if Python is being shut down.
fn stop() {
    while found().is_some_and(Api::is_finalizing) {
        std::thread::park();
    }
    // A C++ exception, which a function of C must not throw.
    std::process::abort();
}
