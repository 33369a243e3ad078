//! The head of every Python object: its reference count, and the fields behind it.
//! Invariants: a `Head` has the size that this interpreter reports, and that this build knows. Nothing
//! is changed where Python's functions or layouts are not known.
//!
//! PyO3's `PyObject` does not tell the head's size: in a build for `abi3t` (PEP 803), which runs with and
//! without the GIL, it is opaque and has size 0. So no struct of this crate begins with one; the fields behind
//! a head are a struct of their own, found by [`Head::fields`].
//!
//! A function or class that several threads use has one reference count, which each call changes:
//! with two threads, calls are slower than with one. CPython defers the counts of functions that
//! are in a module's method table, but PyO3 adds its functions one by one. A class is counted by
//! each of its objects; PyO3 keeps every class as long as the process, so its count may be fixed.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyType};
use pyo3::{ffi, intern};

/// The head with the GIL.
#[repr(C)]
struct Counted {
    count: isize,
    kind: *mut ffi::PyTypeObject,
}

/// The head without the GIL, the same from CPython 3.13 to 3.15.
#[repr(C)]
struct FreeThreaded {
    thread: usize,
    flags: u16,
    mutex: u8,
    gc_bits: u8,
    local_count: AtomicU32,
    shared_count: isize,
    kind: *mut ffi::PyTypeObject,
}

/// The size for which this build is compiled; 0 for `abi3t`.
const COMPILED: usize = size_of::<ffi::PyObject>();
const COUNTED: usize = size_of::<Counted>();
const FREE_THREADED: usize = size_of::<FreeThreaded>();

const _: () = assert!(size_of::<usize>() != 8 || (COUNTED == 16 && FREE_THREADED == 32));

/// The size that the interpreter reported; 0 before.
static MEASURED: AtomicUsize = AtomicUsize::new(0);

/// Proof that the size of the head is known.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    size: usize,
}

impl Head {
    /// Whether this build is compiled for one size.
    pub(crate) const IS_COMPILED: bool = COMPILED != 0;

    /// The head of this interpreter's objects; `None` for one that this build does not know.
    #[cold]
    pub(crate) fn measure(py: Python<'_>) -> Option<Self> {
        let object = py.get_type::<PyAny>();
        let size = object.getattr(intern!(py, "__basicsize__")).ok()?.extract().ok()?;
        let is_compiled = !Self::IS_COMPILED || size == COMPILED;
        let is_known = is_compiled && matches!(size, COUNTED | FREE_THREADED);
        is_known.then(|| {
            MEASURED.store(size, Ordering::Relaxed);
            Self { size }
        })
    }

    /// The same, without asking the interpreter.
    ///
    /// # Safety
    ///
    /// [`measure`](Self::measure) returned a head before.
    #[inline(always)]
    pub(crate) unsafe fn measured() -> Self {
        Self { size: if Self::IS_COMPILED { COMPILED } else { MEASURED.load(Ordering::Relaxed) } }
    }

    pub(crate) fn size(self) -> usize {
        self.size
    }

    /// The fields behind the head of an object.
    #[inline(always)]
    pub(crate) fn fields<T>(self, object: *mut ffi::PyObject) -> *mut T {
        const { assert!(align_of::<T>() <= align_of::<Counted>(), "heads end at such an address") };
        object.wrapping_byte_add(self.size).cast()
    }

    /// The head itself, where it is that of an interpreter without the GIL.
    fn free_threaded(self, object: *mut ffi::PyObject) -> Option<*mut FreeThreaded> {
        (self.size == FREE_THREADED).then_some(object.cast())
    }
}

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
/// fn rank(x: PyTensor) -> usize {
///     x.rank()
/// }
///
/// #[pymodule(gil_used = false)]
/// fn extension(module: &Bound<'_, PyModule>) -> PyResult<()> {
///     module.add_function(wrap_pyfunction!(rank, module)?)?;
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
#[cfg(unix)]
fn defer(object: &Bound<'_, PyAny>) {
    use std::ffi::c_int;
    use std::sync::OnceLock;

    use libloading::os::unix::Library;

    type Defer = unsafe extern "C" fn(*mut ffi::PyObject) -> c_int;
    static DEFER: OnceLock<Option<Defer>> = OnceLock::new();
    let found = DEFER.get_or_init(|| {
        // SAFETY: the function has this type in every version that has it (3.14; F5).
        let function =
            unsafe { Library::this().get::<Defer>(b"PyUnstable_Object_EnableDeferredRefcount\0") };
        function.ok().map(|function| *function)
    });
    if let Some(defer) = found {
        // SAFETY: attached, and an object; it cannot fail, and other threads may use the object (F1).
        unsafe { defer(object.as_ptr()) };
    }
}

#[cfg(not(unix))]
fn defer(_: &Bound<'_, PyAny>) {}

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
