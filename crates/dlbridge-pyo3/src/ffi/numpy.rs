//! The entries of NumPy's C API that this crate uses.
//! The fields of an array belong to `import::numpy`.
//! Invariant: the entries are those of `numpy/__multiarray_api.h`, which never move. Where there is
//! an `Api`, the head of an object is measured.

use std::ffi::{c_int, c_uint, c_void};

use pyo3::ffi::{PyObject, PyTypeObject};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyType};

use super::head::Head;

/// The results of `PyArray_GetNDArrayCVersion` for NumPy 1.x and NumPy 2.x.
const VERSIONS: [c_uint; 2] = [0x0100_0009, 0x0200_0000];

/// `NPY_ARRAY_WRITEABLE`.
pub(crate) const WRITEABLE: c_int = 0x0400;

/// The maximum rank: that of NumPy 1, which is lower than that of NumPy 2 (64).
pub(crate) const MAX_RANK: usize = 32;

/// `PyArray_New(type, rank, extents, number, strides, data, itemsize, flags, object)`.
type New = unsafe extern "C" fn(
    *mut PyTypeObject,
    c_int,
    *const isize,
    c_int,
    *const isize,
    *mut c_void,
    c_int,
    c_int,
    *mut PyObject,
) -> *mut PyObject;

/// `PyArray_SetBaseObject(array, base)`, which steals `base`.
type SetBase = unsafe extern "C" fn(*mut PyObject, *mut PyObject) -> c_int;

/// The functions of a NumPy whose layout is known.
pub(crate) struct Api {
    /// `numpy.ndarray`.
    pub(crate) array: *mut PyTypeObject,
    pub(crate) new: New,
    pub(crate) set_base: SetBase,
}

// SAFETY: never written, and NumPy is never unloaded; the functions are called on attached
// threads only (F6, R9).
unsafe impl Send for Api {}
// SAFETY: the same.
unsafe impl Sync for Api {}

impl Api {
    /// The API of the installed NumPy; `None` for an unknown version.
    #[inline]
    pub(crate) fn get(py: Python<'_>) -> PyResult<Option<&Self>> {
        static API: PyOnceLock<Option<Api>> = PyOnceLock::new();
        Ok(API.get_or_try_init(py, || Self::load(py))?.as_ref())
    }

    #[cold]
    fn load(py: Python<'_>) -> PyResult<Option<Self>> {
        if cfg!(not(target_pointer_width = "64")) || Head::measure(py).is_none() {
            return Ok(None);
        }
        let module = py
            .import("numpy._core._multiarray_umath")
            .or_else(|_| py.import("numpy.core._multiarray_umath"))?;
        let capsule = module.getattr("_ARRAY_API")?.cast_into::<PyCapsule>()?;
        let table = capsule.pointer_checked(None)?.cast::<*mut c_void>();
        let entry = |index| {
            // SAFETY: the table of NumPy's C API, which is longer than any index here (F5).
            let entry = unsafe { table.add(index) };
            // SAFETY: the same.
            unsafe { entry.read() }
        };
        // SAFETY: the entry is `unsigned int PyArray_GetNDArrayCVersion(void)` (F5).
        let version: extern "C" fn() -> c_uint = unsafe { std::mem::transmute(entry(0)) };
        if !VERSIONS.contains(&version()) {
            return Ok(None);
        }
        // SAFETY: the entry is `PyArray_New` (F5).
        let new: New = unsafe { std::mem::transmute(entry(93)) };
        // SAFETY: the entry is `PyArray_SetBaseObject` (F5).
        let set_base: SetBase = unsafe { std::mem::transmute(entry(282)) };
        Ok(Some(Self { array: entry(2).cast(), new, set_base }))
    }
}

/// Whether a type is NumPy's array type, with the layout that `import` reads.
#[cold]
pub(crate) fn is_array_type(kind: &Bound<'_, PyType>) -> bool {
    let is_array = |api: Option<&Api>| api.is_some_and(|api| api.array == kind.as_type_ptr());
    kind.module().is_ok_and(|module| module == "numpy")
        && kind.qualname().is_ok_and(|name| name == "ndarray")
        && Api::get(kind.py()).is_ok_and(is_array)
}
