//! Wraps every entry from C: catches panics, and stores the message of a failure.
//! Invariant: no panic crosses a C frame.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::{self, ManuallyDrop};

use dlbridge::ffi::catch;

use crate::error::{Error, NULL_OUT, Result, Status};

/// The version of this API. A program that was compiled for version N runs with a library of
/// version N or later whose file name ends in the same number (`libdlbridge.so.2`): functions,
/// fields at the end of a struct and constants are only added.
pub const DLB_API_VERSION: u32 = 2;

/// The messages of a thread that are valid. C may still read both.
struct Messages {
    last: Option<CString>,
    /// The last one of calls within a call that is over, if no failure followed.
    nested: Option<CString>,
}

thread_local! {
    static MESSAGES: RefCell<Messages> = const { RefCell::new(Messages { last: None, nested: None }) };
}

/// The message of a panic.
pub(crate) const PANICKED: &str = "dlbridge panicked; please report it";

/// Runs the body of an entry and tells C how it ended.
pub(crate) fn guarded(body: impl FnOnce() -> Result<()>) -> Status {
    match catch(body) {
        Ok(Ok(())) => Status::Ok,
        Ok(Err(error)) => failed(error),
        Err(_) => {
            remember(PANICKED);
            Status::Panic
        }
    }
}

/// Runs the body of an entry that has a result, and writes it where C wants it. A call that fails writes nothing.
///
/// # Safety
///
/// `out` is null or can be written.
pub(crate) unsafe fn write_out<T>(out: *mut T, make: impl FnOnce() -> Result<T>) -> Status {
    guarded(|| {
        if out.is_null() {
            return Err(NULL_OUT);
        }
        let made = make()?;
        // SAFETY: the caller's duty.
        unsafe { out.write(made) };
        Ok(())
    })
}

/// Runs the body of an entry that cannot fail.
pub(crate) fn contained<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch(body).unwrap_or(otherwise)
}

/// Runs deleters in an entry without a status: what fails in them does not replace the last message.
pub(crate) fn silent<T>(body: impl FnOnce() -> T) -> T {
    let last = MESSAGES.try_with(|messages| messages.borrow_mut().last.take());
    // Not dropped if the call of `dlb_attempt` unwinds.
    let last = ManuallyDrop::new(last.ok().flatten());
    let result = body();
    let _ = MESSAGES.try_with(|messages| {
        let messages = &mut *messages.borrow_mut();
        let nested = mem::replace(&mut messages.last, ManuallyDrop::into_inner(last));
        messages.nested = nested.or(messages.nested.take());
    });
    result
}

/// The error is dropped before its message is kept: dropping a Python exception can run code that
/// calls this library and fails.
#[cold]
fn failed(error: Error) -> Status {
    let status = error.status();
    // Reading the text of an exception can run Python code.
    let message = contained(String::new(), || error.to_string());
    contained((), || error.finish());
    remember(&message);
    status
}

fn remember(message: &str) {
    // A thread that is ending has no place for messages any more.
    let _ = MESSAGES.try_with(|messages| {
        messages.replace(Messages { last: Some(c_text(message)), nested: None })
    });
}

/// A text as C reads it. A zero byte would end it: it is escaped.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "\\0")).unwrap_or_default()
}

/// The reason of the last failure on this thread, in UTF-8; empty if there was none. It belongs to
/// this library, and is valid until the next call on this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn dlb_last_error() -> *const c_char {
    let message =
        MESSAGES.try_with(|messages| messages.borrow().last.as_ref().map(|text| text.as_ptr()));
    message.ok().flatten().unwrap_or(c"".as_ptr())
}

/// Calls `call` with `context` and returns its result. If that is not 0, the message of the failure is
/// copied to `message`, cut to `size` bytes with its closing zero, and belongs to no thread: for
/// languages whose functions change threads between two calls (Go, virtual threads of Java). The last
/// message of this thread stays as it was.
///
/// # Safety
///
/// `call` may be called with `context`; `message` is null or can be written for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dlb_attempt(
    call: Option<unsafe extern "C-unwind" fn(context: *mut c_void) -> c_int>,
    context: *mut c_void,
    message: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the caller's duty.
    let attempt = || unsafe { attempt(call, context, message, size) };
    silent(attempt)
}

/// # Safety
///
/// As for [`dlb_attempt`].
unsafe fn attempt(
    call: Option<unsafe extern "C-unwind" fn(*mut c_void) -> c_int>,
    context: *mut c_void,
    message: *mut c_char,
    size: usize,
) -> c_int {
    let status = match call {
        // SAFETY: the caller's duty.
        Some(call) => unsafe { call(context) },
        None => guarded(|| Err(Error::Invalid("call: expected a function, found a null pointer")))
            as c_int,
    };
    let written = MESSAGES.try_with(|messages| {
        let messages = messages.borrow();
        let text = messages.last.as_ref().filter(|_| status != 0);
        let text = text.map_or("", |text| text.to_str().unwrap_or_default());
        // SAFETY: the caller's duty.
        unsafe { write_text(text, message, size) }
    });
    if written.is_err() {
        // SAFETY: the same.
        unsafe { write_text("", message, size) };
    }
    status
}

/// Writes a text with its closing zero, cut between two characters, and gives its whole length.
///
/// # Safety
///
/// `buffer` is null or can be written for `size` bytes.
pub(crate) unsafe fn write_text(text: &str, buffer: *mut c_char, size: usize) -> usize {
    if buffer.is_null() || size == 0 {
        return text.len();
    }
    let mut count = text.len().min(size - 1);
    while !text.is_char_boundary(count) {
        count -= 1;
    }
    // SAFETY: fewer than `size` bytes, to memory of the caller that no text of ours lies in (the
    // caller's duty).
    unsafe { buffer.copy_from_nonoverlapping(text.as_ptr().cast(), count) };
    // SAFETY: the byte behind them, still within `size` (the caller's duty).
    unsafe { buffer.wrapping_add(count).write(0) };
    text.len()
}

/// The version of the library, such as `0.1.0`. It lives forever.
#[unsafe(no_mangle)]
pub extern "C" fn dlb_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The `DLB_API_VERSION` of the library: at least that of the header.
#[unsafe(no_mangle)]
pub extern "C" fn dlb_api_version() -> u32 {
    DLB_API_VERSION
}
