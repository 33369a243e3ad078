//! Counts the releases that enter Python on detached threads, so that the interpreter's exit waits for them.
//! Releasing belongs to `release`.
//! Invariant: after [`close`] no thread enters. There is no lock, because one that another thread holds
//! during a `fork` would stay locked in the child.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(any(target_os = "linux", target_os = "android"))]
use dlbridge_sealed::process;

/// The process in the upper half, because a child of `fork` has none of the threads that were counted;
/// then [`CLOSED`], and the number of threads in [`enter`].
static STATE: AtomicU64 = AtomicU64::new(0);

const CLOSED: u64 = 1 << 31;

/// The longest wait for a producer's deleter at exit.
const LIMIT: Duration = Duration::from_secs(5);

/// On Linux, a child in another namespace may have the process number of its parent.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn process() -> u64 {
    std::process::id().into()
}

/// Does work that the interpreter's exit waits for; `None` after [`close`], for a thread that came too late.
pub(super) fn enter<R>(work: impl FnOnce() -> R) -> Option<R> {
    let process = process() << 32;
    let counted = |state| {
        let threads = if state & !0xffff_ffff == process { state } else { process };
        (state & CLOSED == 0).then_some(threads + 1)
    };
    STATE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted).ok()?;
    let _entered = Entered { process };
    Some(work())
}

/// A thread in [`enter`]. It leaves by a panic as well.
struct Entered {
    process: u64,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Self { process } = *self;
        // The work may have forked, and the child counted anew.
        let left = |state| {
            (state & !0xffff_ffff == process && state & !CLOSED != process).then(|| state - 1)
        };
        let _ = STATE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left);
    }
}

/// Refuses all threads from now on.
pub(super) fn close() {
    STATE.fetch_or(CLOSED, Ordering::SeqCst);
}

/// Waits for the threads that entered. One that a deleter stops is left behind.
pub(super) fn wait() {
    let process = process() << 32;
    let deadline = Instant::now() + LIMIT;
    let is_busy = |state: u64| state & !CLOSED > process && state & !0xffff_ffff == process;
    while is_busy(STATE.load(Ordering::SeqCst)) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A panic in a deleter left its thread among those that the interpreter's exit waits for, in
    /// the C library.
    #[test]
    fn a_panic_leaves_no_thread_to_wait_for() {
        let threads = || STATE.load(Ordering::SeqCst) & (CLOSED - 1);
        assert_eq!(enter(threads), Some(1));
        let thread = thread::spawn(|| enter(|| panic!("in a deleter")));
        thread.join().expect_err("passed on");
        assert_eq!(threads(), 0);
    }

    /// Each child is process 1 of a namespace of its own.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_child_with_the_number_of_its_parent_waits_for_no_thread() {
        use std::ffi::c_int;

        unsafe extern "C" {
            safe fn fork() -> c_int;
            safe fn unshare(flags: c_int) -> c_int;
            safe fn _exit(status: c_int) -> !;
            safe fn waitpid(process: c_int, status: &mut c_int, options: c_int) -> c_int;
        }
        const NEW_PROCESSES: c_int = 0x2000_0000;
        const NO_NAMESPACE: c_int = 77;
        /// The exit code of a child, which is process 1.
        fn first_of_a_namespace(work: impl FnOnce() -> c_int) -> c_int {
            if unshare(NEW_PROCESSES) != 0 {
                return NO_NAMESPACE;
            }
            let child = fork();
            if child == 0 {
                _exit(if std::process::id() == 1 { work() } else { 2 });
            }
            let mut status = -1;
            waitpid(child, &mut status, 0);
            status >> 8
        }
        let is_busy = || {
            let start = Instant::now();
            wait();
            c_int::from(start.elapsed() > LIMIT / 2)
        };
        let child = fork();
        if child == 0 {
            let inner = || first_of_a_namespace(is_busy);
            _exit(first_of_a_namespace(|| enter(inner).unwrap_or(3)));
        }
        let mut status = -1;
        waitpid(child, &mut status, 0);
        match status >> 8 {
            NO_NAMESPACE => eprintln!("skipped: this user makes no namespace of processes"),
            code => assert_eq!(code, 0, "it waits for a thread of its parent"),
        }
    }
}
