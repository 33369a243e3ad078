//! Panics that must not leave Rust, and foreign code that ends its thread by unwinding: CPython before 3.14
//! ends a thread that wants the GIL of an interpreter that has ended by `pthread_exit`.
//! Invariant: only panics leave `stopping`, and nothing leaves `catch`.

use std::any::Any;
use std::io::Write;
use std::mem::{self, ManuallyDrop};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::thread;

/// What a thread does that foreign code ends.
static STOP: OnceLock<fn()> = OnceLock::new();

/// Sets what a thread does that foreign code ends. The first call counts. A function that returns stops the thread.
pub fn on_unwind(stop: fn()) {
    // An error means that another thread was first.
    let _ = STOP.set(stop);
}

/// Calls foreign code that may end the thread by unwinding ([`Unwinds`]), and stops the thread then, as
/// CPython does from 3.14 on. In the frames of the caller the unwinding would drop values without their
/// runtime, and end the process in a `catch_unwind`.
#[inline(always)]
pub fn stopping<R>(call: impl FnOnce() -> R) -> R {
    let unwound = Unwound;
    let result = call();
    mem::forget(unwound);
    result
}

/// Dropped only by unwinding.
struct Unwound;

impl Drop for Unwound {
    #[cold]
    fn drop(&mut self) {
        if !thread::panicking() {
            stop();
        }
    }
}

#[cold]
pub(super) fn stop() -> ! {
    match STOP.get() {
        Some(stop) => stop(),
        None => {
            let line = "dlbridge: a thread stops here, because foreign code unwinds it\n";
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
    loop {
        thread::park();
    }
}

/// Runs work that must not unwind into C. A thread that foreign code ends stops here.
///
/// # Errors
///
/// The panic of the work.
#[inline]
pub fn catch<R>(work: impl FnOnce() -> R) -> Result<R, Panic> {
    let caught = catch_unwind(AssertUnwindSafe(|| stopping(work)));
    caught.map_err(|payload| Panic(ManuallyDrop::new(payload)))
}

/// The payload of a panic. It is leaked, because dropping it could panic again.
pub struct Panic(ManuallyDrop<Box<dyn Any + Send>>);

impl Panic {
    /// The message.
    #[must_use]
    pub fn words(&self) -> &str {
        match (self.0.downcast_ref::<&str>(), self.0.downcast_ref::<String>()) {
            (Some(words), _) => words,
            (_, Some(words)) => words,
            _ => "without words",
        }
    }

    pub(crate) fn resume(self) -> ! {
        resume_unwind(ManuallyDrop::into_inner(self.0))
    }
}

/// A function of C that is declared as one that does not unwind.
pub trait Unwinds: Copy {
    /// The same function, declared as one that may.
    type Unwinding;

    /// A call of the result may unwind; a call of `self` that does ends the process.
    fn unwinding(self) -> Self::Unwinding;
}

macro_rules! functions {
    ($(($($argument:ident),+))*) => {$(
        impl<$($argument,)+ R> Unwinds for unsafe extern "C" fn($($argument),+) -> R {
            type Unwinding = unsafe extern "C-unwind" fn($($argument),+) -> R;

            #[inline(always)]
            fn unwinding(self) -> Self::Unwinding {
                // SAFETY: the two ABIs are the same but for unwinding, which the new one permits (F5).
                unsafe { mem::transmute::<Self, Self::Unwinding>(self) }
            }
        }
    )*};
}

functions! { (A) (A, B) (A, B, C) (A, B, C, D) }
