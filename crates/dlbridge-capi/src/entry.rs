//! What every entry from C goes through: panics end here, and failures leave a message.
//! What the entries do does not belong here.
//! Invariant: no panic crosses a C frame.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result, Status};

/// Counts up when a struct or a function of this API changes.
const API_VERSION: u32 = 1;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of an entry and tells C how it ended.
pub(crate) fn guarded(body: impl FnOnce() -> Result<()>) -> Status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Status::Ok,
        Ok(Err(error)) => failed(&error),
        Err(payload) => {
            // Dropping the payload could panic again.
            std::mem::forget(payload);
            remember("dlbridge panicked; please report it".to_owned());
            Status::Panic
        }
    }
}

/// Runs the body of an entry that cannot fail.
pub(crate) fn contained<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        otherwise
    })
}

#[cold]
fn failed(error: &Error) -> Status {
    // A message may ask Python for a text, whose own code may panic as any other.
    remember(contained(String::new(), || error.to_string()));
    error.status()
}

fn remember(mut message: String) {
    message.retain(|letter| letter != '\0');
    let message = CString::new(message).unwrap_or_default();
    // A thread that is ending has no place for messages any more.
    let _ = LAST.try_with(|last| last.replace(message));
}

/// The reason of the last failure on this thread, in UTF-8; empty if there was none. It belongs to
/// this library, and is valid until the next call on this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn dlb_last_error() -> *const c_char {
    let message = LAST.try_with(|last| last.borrow().as_ptr());
    message.unwrap_or(c"".as_ptr())
}

/// The version of this API. It changes when a struct or a function does, so that a program can
/// tell whether it was written for this library.
#[unsafe(no_mangle)]
pub extern "C" fn dlb_api_version() -> u32 {
    API_VERSION
}
