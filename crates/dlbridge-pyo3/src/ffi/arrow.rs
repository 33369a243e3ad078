//! The structs of Arrow's C data interface and C stream interface, and their owner.
//! Invariant: the fields are those of Arrow's specification, which never change.

use std::ffi::{CStr, c_char, c_int, c_void};

use pyo3::prelude::*;

use crate::release::NeedsInterpreter;

/// Arrow's `ArrowSchema`: the type of a column.
#[repr(C)]
pub(crate) struct ArrowSchema {
    pub(crate) format: *const c_char,
    pub(crate) name: *const c_char,
    pub(crate) metadata: *const c_char,
    pub(crate) flags: i64,
    pub(crate) n_children: i64,
    pub(crate) children: *mut *mut Self,
    pub(crate) dictionary: *mut Self,
    pub(crate) release: Option<Release<Self>>,
    pub(crate) private_data: *mut c_void,
}

/// Arrow's `ArrowArray`: the memory of a column, or of one chunk of it.
#[repr(C)]
pub(crate) struct ArrowArray {
    pub(crate) length: i64,
    pub(crate) null_count: i64,
    pub(crate) offset: i64,
    pub(crate) n_buffers: i64,
    pub(crate) n_children: i64,
    pub(crate) buffers: *mut *const c_void,
    pub(crate) children: *mut *mut Self,
    pub(crate) dictionary: *mut Self,
    pub(crate) release: Option<Release<Self>>,
    pub(crate) private_data: *mut c_void,
}

/// Arrow's `ArrowArrayStream`: the chunks of a column. Each function returns 0 or an `errno`.
#[repr(C)]
pub(crate) struct ArrowArrayStream {
    pub(crate) get_schema: Option<unsafe extern "C" fn(*mut Self, *mut ArrowSchema) -> c_int>,
    pub(crate) get_next: Option<unsafe extern "C" fn(*mut Self, *mut ArrowArray) -> c_int>,
    pub(crate) get_last_error: Option<unsafe extern "C" fn(*mut Self) -> *const c_char>,
    pub(crate) release: Option<Release<Self>>,
    pub(crate) private_data: *mut c_void,
}

/// A struct's callback that frees what its fields point to, and sets itself to null.
pub(crate) type Release<T> = unsafe extern "C" fn(*mut T);

/// A struct that its owner releases, once. A null callback marks a struct that was released or moved.
///
/// # Safety
///
/// All fields may be zero, and a struct with a null callback owns nothing.
pub(crate) unsafe trait Releasable: Sized {
    /// The name of the capsules that hold this struct.
    const CAPSULE: &'static CStr;

    fn private_data(&self) -> *mut c_void;

    fn callback(&mut self) -> &mut Option<Release<Self>>;
}

macro_rules! releasable {
    ($($name:ident, $capsule:literal;)*) => {$(
        // SAFETY: numbers, pointers and optional functions, by the specification (Releasable's duty).
        unsafe impl Releasable for $name {
            const CAPSULE: &'static CStr = $capsule;

            fn private_data(&self) -> *mut c_void {
                self.private_data
            }

            fn callback(&mut self) -> &mut Option<Release<Self>> {
                &mut self.release
            }
        }
    )*};
}

releasable! {
    ArrowSchema, c"arrow_schema";
    ArrowArray, c"arrow_array";
    ArrowArrayStream, c"arrow_array_stream";
}

/// A struct that was moved here, and is released when it is dropped.
#[repr(transparent)]
pub(crate) struct Owned<T: Releasable>(T);

// SAFETY: a struct of Arrow may be used and released on any thread, one at a time (T4, R9).
unsafe impl<T: Releasable> Send for Owned<T> {}

impl<T: Releasable> Owned<T> {
    /// A struct that owns nothing, to be filled in by its producer.
    pub(crate) fn empty() -> Self {
        // SAFETY: all fields may be zero (Releasable's duty).
        Self(unsafe { std::mem::zeroed() })
    }

    /// Moves a struct here; its place is marked as released.
    ///
    /// # Safety
    ///
    /// `place` points to a struct that may be changed and is not used by another thread meanwhile.
    pub(crate) unsafe fn take(place: *mut T) -> Self {
        // SAFETY: the caller's duty; the copy owns what the fields point to once the place is marked.
        let mut moved = Self(unsafe { place.read() });
        if moved.is_live() {
            // SAFETY: the caller's duty.
            *unsafe { &mut *place }.callback() = None;
        }
        moved
    }

    /// Wraps a struct that was made here.
    pub(crate) fn new(made: T) -> Self {
        Self(made)
    }

    pub(crate) fn is_live(&mut self) -> bool {
        self.0.callback().is_some()
    }

    pub(crate) fn get(&self) -> &T {
        &self.0
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut T {
        &raw mut self.0
    }
}

impl<T: Releasable> Drop for Owned<T> {
    fn drop(&mut self) {
        let place = self.as_mut_ptr();
        if let Some(release) = *self.0.callback() {
            // SAFETY: live, and released once, since the callback clears itself and the struct is gone
            // afterwards (F8).
            unsafe { release(place) };
        }
    }
}

impl NeedsInterpreter for Owned<ArrowArray> {
    /// pyarrow's own callback takes the GIL if a Python object owns the memory.
    fn release(self, _: Python<'_>) {
        drop(self);
    }
}
