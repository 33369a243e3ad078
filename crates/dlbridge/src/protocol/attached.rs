//! Which functions of Python tell whether the calling thread is attached to the interpreter.
//!
//! `PyGILState_Check` returns true on every thread once a process has had a second interpreter, so it
//! is not asked. The functions are found by name, because the limited API lacks them.

use std::ffi::{CStr, c_void};

/// The functions that tell it, each of type `F`: it takes nothing and returns a pointer. Any thread may
/// call them, attached or not.
#[derive(Clone, Copy, Debug)]
pub enum Attachment<F> {
    /// The result belongs to the calling thread, and is null unless it is attached.
    OfThread(F),
    /// Before Python 3.12, `current` returns the state of the thread that has the GIL, `own` that of the
    /// calling thread.
    OfProcess {
        /// `_PyThreadState_UncheckedGet`.
        current: F,
        /// `PyGILState_GetThisThreadState`.
        own: F,
    },
}

/// The state of the calling thread. Public since 3.13, and the fastest of them.
const UNCHECKED: &CStr = c"PyThreadState_GetUnchecked";
/// The same before 3.13. Before 3.12, the state of the thread that has the GIL.
const UNCHECKED_PRIVATE: &CStr = c"_PyThreadState_UncheckedGet";
/// The dict of the calling thread's state. Part of the limited API.
const DICT: &CStr = c"PyThreadState_GetDict";
const OWN: &CStr = c"PyGILState_GetThisThreadState";

impl<F: Copy> Attachment<F> {
    /// The functions of Python 3.`minor`, which `find` looks up by name. An error names one that Python
    /// lacks.
    ///
    /// # Errors
    ///
    /// The name of the function that was not found.
    pub fn find(
        minor: u32,
        find: impl Fn(&'static CStr) -> Option<F>,
    ) -> Result<Self, &'static CStr> {
        let required = |name| find(name).ok_or(name);
        match minor {
            13.. => find(UNCHECKED).map_or_else(|| required(DICT), Ok).map(Self::OfThread),
            12 => find(UNCHECKED_PRIVATE).map_or_else(|| required(DICT), Ok).map(Self::OfThread),
            _ => Ok(Self::OfProcess { current: required(UNCHECKED_PRIVATE)?, own: required(OWN)? }),
        }
    }

    /// Whether the calling thread is attached; `call` calls a function. The states are compared and not
    /// read, because another thread may have freed one.
    #[inline(always)]
    pub fn is_attached(self, call: impl Fn(F) -> *mut c_void) -> bool {
        match self {
            Self::OfThread(state) => !call(state).is_null(),
            Self::OfProcess { current, own } => {
                let state = call(current);
                !state.is_null() && state == call(own)
            }
        }
    }
}

/// Major and minor version in the text that `Py_GetVersion` returns (`3.12.1 (main, ...)`); 0 for a
/// number that cannot be read.
#[must_use]
pub fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten().unwrap_or(0);
    (next(), next())
}
