//! Runs Rust code that C calls: methods of classes, and functions of tables.
//! What the functions do belongs to `class`.
//! Invariant: no panic leaves it. No Python object that it drops stays with PyO3.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::slice;

use dlbridge::ffi::{Panic, catch};
use dlbridge::{ArcTensor, Tensor};
use pyo3::exceptions::{PyRecursionError, PyRuntimeError, PyTypeError};
use pyo3::ffi::{self, Py_ssize_t, PyObject};
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{Borrowed, PyClass, PyTypeInfo};

use super::versions::class_name;
use crate::error::error_of;
use crate::interpreter::{is_main, through_pyo3};
use crate::{Error, Result};

/// Runs `work` as a function of PyO3 runs, which releases a dropped `Py` at once. PyO3 counts only the
/// threads that it attached itself. On others it keeps the object until one of its functions runs
/// there, as this one does first.
#[inline(never)]
fn counted<R>(py: Python<'_>, work: impl FnOnce() -> R) -> R {
    // PyO3 attaches this thread to the main interpreter. Until Python 3.12, it would wait there for the GIL
    // that it holds in another one.
    if !is_main(py) {
        return work();
    }
    let mut work = Some(work);
    let mut run = || work.take().map(|work| work());
    // PyO3 attaches no thread while the interpreter ends; objects may stay then.
    let result = Python::try_attach(|_| run()).unwrap_or_else(run);
    result.expect("it runs once")
}

/// Runs a function of a class. Returns its result, or `None` with an exception set.
///
/// Of the Python objects that `work` drops, those of an error are released here; work that drops
/// others runs as `counted`.
#[inline]
pub(super) fn guarded<T: PyTypeInfo, R>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<R>,
) -> Option<R> {
    let error = match catch(work) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(error)) => Ok(error),
        Err(panic) => Err(panic),
    };
    raise(py, error, class_name::<T>);
    None
}

/// Sets the exception of an error, or of a panic in a function of the class that `name` names.
#[cold]
fn raise(py: Python<'_>, error: std::result::Result<Error, Panic>, name: fn(Python<'_>) -> String) {
    let raise = || {
        counted(py, || {
            let error = error.unwrap_or_else(|panic| raised(&name(py), "its export", &panic));
            PyErr::from(error).restore(py);
        });
    };
    if catch(raise).is_err() {
        // PyO3 panics where Python has no memory for the exception. This one is allocated beforehand.
        // SAFETY: attached (F1).
        unsafe { ffi::PyErr_NoMemory() };
    }
}

/// Runs a function of a class with an object. Returns its result, or `None` with an exception set.
///
/// # Safety
///
/// The interpreter is attached, and `object` a Python object.
#[inline]
pub(super) unsafe fn with_object<T: Publish, R>(
    object: *mut PyObject,
    work: impl FnOnce(&Bound<'_, T>) -> Result<R>,
) -> Option<R> {
    // SAFETY: the caller's duty.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the caller's duty.
    let object = unsafe { Borrowed::from_ptr(py, object) };
    let work = || guarded::<T, _>(py, || work(&*object.cast::<T>().map_err(PyErr::from)?));
    if T::drops_objects() { counted(py, work) } else { work() }
}

/// How many exports of classes may run inside one another. Python's own limit counts no frames of Rust, of which one
/// export has up to 14 KiB in a debug build: 100 of them overflowed the stack of a thread with 1 MiB.
const DEPTH: u32 = 32;

/// Runs the `tensor` of a user's class, or asks an object, through PyO3. Both may call Python, and so themselves.
///
/// # Errors
///
/// Those of [`nesting`].
pub(crate) fn exporting<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    nesting(|| through_pyo3(work))
}

/// Runs code of an object, in Rust or in Python, which may import the object.
///
/// # Errors
///
/// A `RecursionError`, which ends each import on the way back, inside too many others.
pub(crate) fn nesting<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    thread_local! {
        static NESTED: Cell<u32> = const { Cell::new(0) };
    }
    struct Nested;
    impl Drop for Nested {
        fn drop(&mut self) {
            // Decrement; do not restore a saved depth: a greenlet may have switched.
            NESTED.set(NESTED.get() - 1);
        }
    }
    let depth = NESTED.get();
    if depth == DEPTH {
        return Err(too_deep());
    }
    NESTED.set(depth + 1);
    let _nested = Nested;
    work()
}

#[cold]
fn too_deep() -> Error {
    Error::from(error_of::<PyRecursionError>(format!(
        "tensor: expected at most {DEPTH} exports inside one another, found more: a class imports itself"
    )))
}

/// Runs a function of a class, and raises a panic.
pub(crate) fn caught<T: PyTypeInfo, R>(
    py: Python<'_>,
    function: &str,
    work: impl FnOnce() -> Result<R>,
) -> Result<R> {
    catch(|| through_pyo3(work))
        .unwrap_or_else(|panic| Err(raised(&class_name::<T>(py), function, &panic)))
}

/// A panic in a function of a class as a `RuntimeError`, not PyO3's `PanicException`, which
/// `except Exception` does not catch.
#[cold]
fn raised(class: &str, function: &str, panic: &Panic) -> Error {
    Error::from(error_of::<PyRuntimeError>(panicked(class, function, panic)))
}

/// The message of a panic in a function of a class.
#[cold]
pub(crate) fn panicked(class: &str, function: &str, panic: &Panic) -> String {
    format!("{class}: {function} panicked: {}", panic.words())
}

/// What a class with DLPack gives to C: its exchange table and its buffers. Every class with
/// [`ExportDlpack`](crate::ExportDlpack) implements it.
pub(crate) trait Publish: PyClass {
    /// Borrows the tensor that the object keeps, if it keeps one.
    const LENT: Option<Borrow<Self>>;

    /// Whether a function of this class that succeeds may drop a Python object.
    fn drops_objects() -> bool;

    /// A new handle to the object's memory, once work on it is ordered before the default stream.
    fn exported(object: &Bound<'_, Self>) -> Result<Tensor>;

    /// Rejects a tensor that must not be borrowed, and orders work on it before the default stream.
    fn before_borrow(&self, tensor: &Tensor) -> Result<()>;

    /// A tensor of the object that the host may read now, or device memory as it is.
    fn on_host(object: &Bound<'_, Self>) -> Result<Tensor>;

    /// The object of a tensor that a consumer gives to the table.
    fn made(py: Python<'_>, tensor: ArcTensor) -> PyResult<Bound<'_, PyAny>>;
}

/// A function that borrows the tensor that a frozen class keeps; see [`ExportDlpack::BORROW`](crate::ExportDlpack::BORROW).
///
/// A class that is not frozen could replace its tensor during the borrow, so it does not compile:
///
/// ```compile_fail,E0271
/// use dlbridge::Tensor;
/// use dlbridge_pyo3::{ExportDlpack, Borrow, Result};
/// use pyo3::prelude::*;
///
/// #[pyclass]
/// struct Replaceable(Tensor);
///
/// impl ExportDlpack for Replaceable {
///     const BORROW: Option<Borrow<Self>> = Some(Borrow::new(|object| &object.0));
///
///     fn tensor(&self) -> Result<Tensor> {
///         Ok(self.0.to_contiguous()?)
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Borrow<T>(fn(&T) -> &Tensor);

impl<T: PyClass<Frozen = True>> Borrow<T> {
    /// Borrows the tensor that `tensor` returns for an object.
    #[must_use]
    pub const fn new(tensor: fn(&T) -> &Tensor) -> Self {
        Self(tensor)
    }
}

impl<T> Borrow<T> {
    pub(super) fn tensor<'a>(&self, object: &'a T) -> &'a Tensor {
        (self.0)(object)
    }
}

/// What a method of the class `T` does.
pub(crate) trait Body<T> {
    fn run<'py>(object: &Bound<'py, T>, call: Call<'_, 'py>) -> Result<Bound<'py, PyAny>>;
}

/// The function of a method (`METH_FASTCALL | METH_KEYWORDS`).
///
/// # Safety
///
/// Python's: attached, with the arguments of a method of this kind.
pub(super) unsafe extern "C" fn method<T: Publish, B: Body<T>>(
    object: *mut PyObject,
    objects: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    let work = |object: &Bound<'_, T>| {
        // SAFETY: the caller's duty.
        let call = unsafe { Call::new(object.py(), objects, count, names) };
        Ok(B::run(object, call)?.into_ptr())
    };
    // SAFETY: the caller's duty.
    unsafe { with_object(object, work) }.unwrap_or(ptr::null_mut())
}

/// What an attribute of the class `T` is.
pub(crate) trait Attribute<T> {
    fn get<'py>(object: &Bound<'py, T>) -> Result<Bound<'py, PyAny>>;
}

/// The getter of an attribute. PyO3's own, with its count of attached threads, takes 45 of 344 instructions of `x.dtype`.
///
/// # Safety
///
/// Python's: attached, and `object` is one of the class, as its descriptor checks.
pub(super) unsafe extern "C" fn getter<T: Publish, A: Attribute<T>>(
    object: *mut PyObject,
    _: *mut c_void,
) -> *mut PyObject {
    // SAFETY: the caller's duty.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the caller's duty.
    let object = unsafe { Borrowed::from_ptr(py, object) };
    // SAFETY: the caller's duty.
    let object = unsafe { object.cast_unchecked::<T>() };
    let work = || Ok(A::get(&object)?.into_ptr());
    guarded::<T, _>(py, work).unwrap_or(ptr::null_mut())
}

pub(crate) type Argument<'a, 'py> = Borrowed<'a, 'py, PyAny>;

/// Arguments, borrowed from the caller for a call.
#[derive(Clone, Copy)]
struct Objects<'a, 'py> {
    py: Python<'py>,
    all: &'a [NonNull<PyObject>],
}

impl<'a, 'py> Objects<'a, 'py> {
    #[inline]
    fn iter(self) -> impl ExactSizeIterator<Item = Argument<'a, 'py>> {
        // SAFETY: an object that lives during `'a` (the duty of the caller of `Call::new`).
        self.all.iter().map(move |object| unsafe { Borrowed::from_ptr(self.py, object.as_ptr()) })
    }
}

/// The arguments of a call: the positional ones, then the values of the keywords.
pub(crate) struct Call<'a, 'py> {
    positional: Objects<'a, 'py>,
    values: Objects<'a, 'py>,
    names: Option<Borrowed<'a, 'py, PyTuple>>,
}

impl<'a, 'py> Call<'a, 'py> {
    /// # Safety
    ///
    /// Python's (`METH_FASTCALL | METH_KEYWORDS`): `count` objects, then one for each name; `names` is a
    /// tuple of str, or null. All live during `'a`.
    #[inline]
    unsafe fn new(
        py: Python<'py>,
        objects: *const *mut PyObject,
        count: Py_ssize_t,
        names: *mut PyObject,
    ) -> Self {
        // SAFETY: the caller's duty.
        let names = unsafe { Borrowed::from_ptr_or_opt(py, names) };
        // SAFETY: the caller's duty.
        let names = names.map(|names| unsafe { names.cast_unchecked::<PyTuple>() });
        let count = count as usize;
        let all = match count + names.map_or(0, |names| names.len()) {
            0 => &[],
            // SAFETY: so many pointers to objects (the caller's duty).
            len => unsafe { slice::from_raw_parts(objects.cast(), len) },
        };
        let (positional, values) = all.split_at(count);
        let [positional, values] = [positional, values].map(|all| Objects { py, all });
        Self { positional, values, names }
    }

    pub(crate) fn py(&self) -> Python<'py> {
        self.values.py
    }

    /// The positional arguments.
    pub(crate) fn positional(&self) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(self.py(), self.positional.iter())
    }

    /// The number of positional arguments.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.positional.all.len()
    }

    /// Whether there are no arguments.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.positional.all.is_empty() && self.values.all.is_empty()
    }

    /// The only argument of a method without keywords.
    pub(crate) fn only(&self) -> PyResult<Argument<'a, 'py>> {
        match (self.positional.iter().next(), self.count(), self.values.all.len()) {
            (Some(argument), 1, 0) => Ok(argument),
            (_, count, named) => {
                let message = format!("expected one argument, found {}", count + named);
                Err(error_of::<PyTypeError>(message))
            }
        }
    }

    /// The named arguments.
    pub(crate) fn named(&self) -> PyResult<Bound<'py, PyDict>> {
        let named = PyDict::new(self.py());
        self.keywords().try_for_each(|(name, value)| named.set_item(name, value))?;
        Ok(named)
    }

    #[inline]
    pub(crate) fn keywords(&self) -> impl Iterator<Item = (Argument<'_, 'py>, Argument<'a, 'py>)> {
        let names = self.names.iter().flat_map(|names| names.iter_borrowed());
        names.zip(self.values.iter())
    }
}
