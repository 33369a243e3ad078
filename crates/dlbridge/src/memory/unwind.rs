//! Panics that must not leave Rust, and foreign code that ends its thread by unwinding: CPython before 3.14
//! ends a thread that wants the GIL of an interpreter that has ended by `pthread_exit`.
//! Invariant: only panics leave `stopping`, and nothing leaves `catch`.

use std::any::Any;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::{mem, thread};

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

// Frames that a thread must not leave when foreign code ends it.
// Invariant: such a thread stops before the first frame of `stopping_first` is unwound.

/// Runs work that calls foreign code from frames that own values of its runtime, such as Python objects. A thread that
/// the foreign code ends stops before the first frame is left; [`stopping`] stops it where the work ends, after the
/// frames of the work have dropped their values without the runtime.
///
/// Elsewhere than on Linux with glibc, ending a thread unwinds no frames of Rust, or `stopping` is all there is.
pub fn stopping_first<R>(work: impl FnOnce() -> R) -> R {
    let _handler = glibc::Handler::push();
    stopping(work)
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::cell::Cell;
    use std::ffi::{c_int, c_void};
    use std::ptr;

    use super::stop;

    /// glibc's `struct _pthread_cleanup_buffer`.
    #[repr(C)]
    struct Buffer {
        routine: Option<Routine>,
        argument: *mut c_void,
        cancel_type: c_int,
        previous: *mut Self,
    }

    type Routine = unsafe extern "C" fn(*mut c_void);

    unsafe extern "C" {
        fn _pthread_cleanup_push(buffer: *mut Buffer, routine: Routine, argument: *mut c_void);
        fn _pthread_cleanup_pop(buffer: *mut Buffer, execute: c_int);
    }

    /// The handlers of a thread, which share one buffer: greenlets need not end in the order of a stack.
    struct Handlers {
        count: Cell<u32>,
        /// Made at the first use, and kept until the thread ends.
        buffer: Cell<*mut Buffer>,
    }

    impl Handlers {
        #[cold]
        #[inline(never)]
        fn make_buffer(&self) {
            let (argument, previous) = (ptr::null_mut(), ptr::null_mut());
            let buffer = Buffer { routine: None, argument, cancel_type: 0, previous };
            self.buffer.set(Box::into_raw(Box::new(buffer)));
        }
    }

    impl Drop for Handlers {
        fn drop(&mut self) {
            let buffer = self.buffer.get();
            if self.count.get() == 0 && !buffer.is_null() {
                // SAFETY: made by `Box` in `make_buffer`, and popped, since no handler is left (R7).
                drop(unsafe { Box::from_raw(buffer) });
            }
        }
    }

    thread_local! {
        static HANDLERS: Handlers =
            const { Handlers { count: Cell::new(0), buffer: Cell::new(ptr::null_mut()) } };
    }

    /// Stops a thread that foreign code ends while the value lives. glibc calls a handler when the unwinding leaves the
    /// frame that its buffer is in, which it tells by the address. A buffer outside the stack is left first of all.
    pub(super) struct Handler;

    impl Handler {
        #[inline]
        pub(super) fn push() -> Option<Self> {
            // None while the thread's own values are dropped.
            let pushed = HANDLERS.try_with(|handlers| {
                let count = handlers.count.get();
                handlers.count.set(count + 1);
                if count == 0 {
                    if handlers.buffer.get().is_null() {
                        handlers.make_buffer();
                    }
                    let buffer = handlers.buffer.get();
                    // SAFETY: a buffer of this thread, which lives until it is popped (F2, F5).
                    unsafe { _pthread_cleanup_push(buffer, on_end, ptr::null_mut()) };
                }
            });
            pushed.ok().map(|()| Self)
        }
    }

    impl Drop for Handler {
        #[inline]
        fn drop(&mut self) {
            let _ = HANDLERS.try_with(|handlers| {
                let count = handlers.count.get() - 1;
                handlers.count.set(count);
                if count == 0 {
                    // SAFETY: pushed by this thread, and not called (F5).
                    unsafe { _pthread_cleanup_pop(handlers.buffer.get(), 0) };
                }
            });
        }
    }

    unsafe extern "C" fn on_end(_: *mut c_void) {
        stop();
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod glibc {
    pub(super) struct Handler;

    impl Handler {
        pub(super) fn push() -> Option<Self> {
            None
        }
    }
}
