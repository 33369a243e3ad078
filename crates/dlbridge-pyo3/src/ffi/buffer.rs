//! The C struct of the buffer protocol, and the flags of its requests.
//! Invariant: as in CPython's `pybuffer.h`, the same in every version.

use std::ffi::{c_char, c_int, c_void};

use pyo3::ffi::{Py_ssize_t, PyObject};

/// CPython's `Py_buffer`.
#[repr(C)]
pub(crate) struct Buffer {
    pub(crate) buf: *mut c_void,
    /// A reference that this struct owns.
    pub(crate) obj: *mut PyObject,
    pub(crate) len: Py_ssize_t,
    pub(crate) itemsize: Py_ssize_t,
    pub(crate) readonly: c_int,
    pub(crate) ndim: c_int,
    pub(crate) format: *mut c_char,
    pub(crate) shape: *mut Py_ssize_t,
    pub(crate) strides: *mut Py_ssize_t,
    pub(crate) suboffsets: *mut Py_ssize_t,
    /// The exporter's own.
    pub(crate) internal: *mut c_void,
}

pub(crate) const WRITABLE: c_int = 0x1;
pub(crate) const FORMAT: c_int = 0x4;
pub(crate) const ND: c_int = 0x8;
pub(crate) const STRIDES: c_int = 0x10 | ND;
pub(crate) const C_CONTIGUOUS: c_int = 0x20 | STRIDES;
pub(crate) const F_CONTIGUOUS: c_int = 0x40 | STRIDES;
pub(crate) const ANY_CONTIGUOUS: c_int = 0x80 | STRIDES;
#[cfg(not(windows))]
pub(crate) const INDIRECT: c_int = 0x100 | STRIDES;
/// A request for a read-only buffer of any format and strides.
#[cfg(not(windows))]
pub(crate) const FULL_READ_ONLY: c_int = INDIRECT | FORMAT;

/// `bf_getbuffer`.
pub(crate) type GetBuffer = unsafe extern "C" fn(*mut PyObject, *mut Buffer, c_int) -> c_int;
/// `bf_releasebuffer`.
pub(crate) type ReleaseBuffer = unsafe extern "C" fn(*mut PyObject, *mut Buffer);

// Part of the limited API since 3.11 only, but exported by every CPython since 3.0; not by the
// version-independent library of Windows.
#[cfg(not(windows))]
unsafe extern "C" {
    pub(crate) fn PyObject_GetBuffer(
        object: *mut PyObject,
        view: *mut Buffer,
        flags: c_int,
    ) -> c_int;
    pub(crate) fn PyBuffer_Release(view: *mut Buffer);
}
