//! Calls of foreign code that may end the thread.
//! Attaching a thread belongs to `api`.
//! Invariant: no foreign unwinding passes a frame of this library that drops values or catches panics.

use std::mem;

use super::api;

/// Calls a function of Python, or of a producer.
///
/// CPython before 3.14 ends a thread that waits for the GIL while Python is shut down: `pthread_exit`
/// unwinds its stack. That would drop Python objects without the GIL, and abort the process where
/// panics are caught. The thread stops here, as later versions of CPython stop it.
#[inline]
pub(super) fn foreign<T>(call: impl FnOnce() -> T) -> T {
    let end = End;
    let result = call();
    mem::forget(end);
    result
}

/// Dropped only by unwinding.
struct End;

impl Drop for End {
    #[cold]
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        while api::found().is_some_and(api::Api::is_finalizing) {
            std::thread::park();
        }
        // A C++ exception, which a function of C must not throw.
        std::process::abort();
    }
}
