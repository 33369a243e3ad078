//! Arrow's C data interface and C stream interface: the structs, their owner, and the capsules that hold
//! them. Which methods return the capsules belongs to `import::fallback`.
//! Invariants: the fields are those of Arrow's specification, which never change. A schema stays in its
//! capsule; an array and a stream are moved out of their capsules or stay there. So each is released once.
//!
//! They are written from Arrow's specification, so that this crate does not depend on a version of an
//! Arrow library.

mod column;
mod export;
mod import;

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::{ptr, slice};

use dlbridge::ffi::{Unwinds, stopping};
use pyo3::prelude::*;

use super::capsule;
use super::versions::with_critical_section;
use crate::release::NeedsInterpreter;
use crate::{Error, Result};
pub(crate) use export::capsules;
pub(crate) use import::{Chunk, Chunks, import};

/// The method of an object with chunks, for messages.
const STREAM: &str = "__arrow_c_stream__";

/// The struct in a capsule of its name.
fn content<T: Releasable>(object: &Bound<'_, PyAny>) -> Result<*mut T> {
    let name = T::CAPSULE;
    match capsule::content(object.as_borrowed(), name) {
        Some(place) => Ok(place.cast().as_ptr()),
        None => {
            let found = object.repr()?;
            let message = format!("capsule: expected one named {name:?}, found {found}");
            Err(Error::buffer(message))
        }
    }
}

/// Arrow's `ArrowSchema`: the type of a column.
#[repr(C)]
struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut Self,
    dictionary: *mut Self,
    release: Option<Release<Self>>,
    private_data: *mut c_void,
}

/// Arrow's `ArrowArray`: the memory of a column, or of one chunk of it.
#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut Self,
    dictionary: *mut Self,
    release: Option<Release<Self>>,
    private_data: *mut c_void,
}

/// Arrow's `ArrowArrayStream`: the chunks of a column. Each function returns 0 or an `errno`.
#[repr(C)]
struct ArrowArrayStream {
    get_schema: Option<unsafe extern "C" fn(*mut Self, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut Self, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut Self) -> *const c_char>,
    release: Option<Release<Self>>,
    private_data: *mut c_void,
}

/// A schema that is valid or released, as its producer promises (F8).
#[derive(Clone, Copy)]
struct Schema<'a>(&'a ArrowSchema);

impl<'a> Schema<'a> {
    fn format(self, name: &str) -> Result<Cow<'a, str>> {
        if self.0.release.is_none() || self.0.format.is_null() {
            return Err(released(name));
        }
        // SAFETY: a NUL-terminated string, as long as the schema lives (F8).
        Ok(unsafe { CStr::from_ptr(self.0.format) }.to_string_lossy())
    }

    /// The keys and values of the metadata; none of a released schema.
    fn metadata(self) -> Result<Vec<(&'a [u8], &'a [u8])>> {
        let metadata = if self.0.release.is_some() { self.0.metadata } else { ptr::null() };
        // SAFETY: valid as long as the schema lives (F8).
        unsafe { pairs_of(metadata) }
    }

    fn child(self, name: &str) -> Result<Self> {
        // SAFETY: valid as long as the schema lives, if it is not released (F8).
        unsafe { only(name, self.0.release, self.0.n_children, self.0.children) }.map(Self)
    }
}

/// An array that is valid or released, as its producer promises (F8).
#[derive(Clone, Copy)]
struct Array<'a>(&'a ArrowArray);

impl<'a> Array<'a> {
    /// The validity bits, one for each value; `None` if all are valid.
    fn validity(self) -> Option<&'a [u8]> {
        let bits = self.buffer(0).cast::<u8>();
        let len = usize::try_from(self.0.length.checked_add(self.0.offset)?).ok()?;
        // SAFETY: not null, so a bit for each value (F8).
        (!bits.is_null()).then(|| unsafe { slice::from_raw_parts(bits, len.div_ceil(8)) })
    }

    /// The address of the values, or null.
    fn values(self) -> *const c_void {
        self.buffer(1)
    }

    fn buffer(self, index: usize) -> *const c_void {
        let ArrowArray { release, buffers, n_buffers, .. } = *self.0;
        if release.is_none() || buffers.is_null() || n_buffers <= index as i64 {
            return ptr::null();
        }
        // SAFETY: that many buffers, as counted (F8).
        unsafe { buffers.wrapping_add(index).read() }
    }

    fn child(self, name: &str) -> Result<Self> {
        // SAFETY: valid as long as the array lives, if it is not released (F8).
        unsafe { only(name, self.0.release, self.0.n_children, self.0.children) }.map(Self)
    }
}

/// The only child of a schema or of an array.
///
/// # Safety
///
/// With a callback, `children` is null, or points to that many pointers, each of them null or valid for `'a`.
unsafe fn only<'a, T>(
    name: &str,
    release: Option<Release<T>>,
    count: i64,
    children: *mut *mut T,
) -> Result<&'a T> {
    if release.is_some() && count == 1 && !children.is_null() {
        // SAFETY: one pointer, as counted (the caller's duty).
        let child = unsafe { children.read() };
        // SAFETY: valid if it is not null, as long as its parent lives (the caller's duty).
        if let Some(child) = unsafe { child.as_ref() } {
            return Ok(child);
        }
    }
    Err(Error::buffer(format!("{name}: expected one child, found {count}, or null")))
}

fn released(name: &str) -> Error {
    Error::buffer(format!("{name}: expected a live array, found a released one"))
}

/// A struct's callback that frees what its fields point to, and sets itself to null.
type Release<T> = unsafe extern "C" fn(*mut T);

/// A struct that its owner releases, once. A null callback marks a struct that was released or moved.
///
/// # Safety
///
/// All fields may be zero, and a struct with a null callback owns nothing.
unsafe trait Releasable: Sized {
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
struct Owned<T: Releasable>(T);

// SAFETY: a struct of Arrow may be used and released on any thread, one at a time (T4, R9).
unsafe impl<T: Releasable> Send for Owned<T> {}

impl<T: Releasable> Owned<T> {
    /// A struct that owns nothing, to be filled in by its producer.
    fn empty() -> Self {
        // SAFETY: all fields may be zero (Releasable's duty).
        Self(unsafe { std::mem::zeroed() })
    }

    /// Moves a struct here; its place is marked as released.
    ///
    /// # Safety
    ///
    /// `place` points to a struct that may be changed and is not used by another thread meanwhile.
    unsafe fn take(place: *mut T) -> Self {
        // SAFETY: the caller's duty; the copy owns what the fields point to once the place is marked.
        let mut moved = Self(unsafe { place.read() });
        if moved.is_live() {
            // SAFETY: the caller's duty.
            *unsafe { &mut *place }.callback() = None;
        }
        moved
    }

    /// Moves a struct out of its capsule.
    fn of(capsule: &Bound<'_, PyAny>) -> Result<Self> {
        with_critical_section(capsule, || {
            let place = content::<T>(capsule)?;
            // SAFETY: a capsule of this name holds this struct, guarded from other threads (F4).
            Ok(unsafe { Self::take(place) })
        })
    }

    fn is_live(&mut self) -> bool {
        self.0.callback().is_some()
    }

    fn as_mut_ptr(&mut self) -> *mut T {
        &raw mut self.0
    }
}

impl<T: Releasable> Drop for Owned<T> {
    fn drop(&mut self) {
        let place = self.as_mut_ptr();
        if let Some(release) = *self.0.callback() {
            // SAFETY: live, and released once, since the callback clears itself and the struct is gone
            // afterwards (F8).
            stopping(|| unsafe { release.unwinding()(place) });
        }
    }
}

impl Owned<ArrowArrayStream> {
    /// Calls a function of a stream that fills in a struct. Detached, since its threads may need the GIL
    /// (DuckDB runs a query).
    fn filled<T: Releasable>(
        &mut self,
        py: Python<'_>,
        function: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut T) -> c_int>,
    ) -> Result<Owned<T>> {
        struct Detached<T>(T);
        // SAFETY: a struct of Arrow may be used by any thread, and the one that detaches goes on with it
        // (R9).
        unsafe impl<T> Send for Detached<T> {}

        if !self.is_live() {
            let message = format!("{STREAM}: expected a live stream, found a released one");
            return Err(Error::buffer(message));
        }
        let mut made = Owned::<T>::empty();
        let work = Detached((function, self.as_mut_ptr(), made.as_mut_ptr()));
        let status = py.detach(move || {
            let Detached((function, stream, place)) = { work };
            // SAFETY: a live stream, used by this thread alone, and a place for the struct (F5).
            function.map(|function| unsafe { function(stream, place) })
        });
        let status = match status {
            Some(0) => return Ok(made),
            Some(status) => format!("error {status}"),
            None => "no function".to_owned(),
        };
        let stream = self.as_mut_ptr();
        // SAFETY: a live stream whose last call failed (F5).
        let text = self.0.get_last_error.map(|get_last_error| unsafe { get_last_error(stream) });
        let reason = match text {
            // SAFETY: NUL-terminated, and valid until the next call of the stream (F8).
            Some(text) if !text.is_null() => unsafe { CStr::from_ptr(text) }.to_string_lossy(),
            _ => "it gave no reason".into(),
        };
        Err(Error::buffer(format!("{STREAM}: expected a chunk, found {status}: {reason}")))
    }
}

impl NeedsInterpreter for Owned<ArrowArray> {
    /// pyarrow's own callback takes the GIL if a Python object owns the memory.
    fn release(self, _: Python<'_>) {
        drop(self);
    }
}

/// The keys and values of a schema's metadata.
///
/// # Safety
///
/// `metadata` is null, or points to metadata as Arrow's C data interface encodes it: the number of
/// pairs, then for each key and value its length and its bytes. They live for `'a`.
unsafe fn pairs_of<'a>(metadata: *const c_char) -> Result<Vec<(&'a [u8], &'a [u8])>> {
    let mut at = metadata.cast::<u8>();
    let number = |at: &mut *const u8| {
        // SAFETY: the caller's duty; numbers are not aligned.
        let number = unsafe { at.cast::<i32>().read_unaligned() };
        *at = at.wrapping_add(size_of::<i32>());
        usize::try_from(number).map_err(|_| {
            Error::buffer(format!("metadata: expected lengths of 0 or more, found {number}"))
        })
    };
    let count = if metadata.is_null() { 0 } else { number(&mut at)? };
    let mut text = || {
        let len = number(&mut at)?;
        // SAFETY: the caller's duty.
        let text = unsafe { slice::from_raw_parts(at, len) };
        at = at.wrapping_add(len);
        Ok::<_, Error>(text)
    };
    (0..count).map(|_| Ok((text()?, text()?))).collect()
}
