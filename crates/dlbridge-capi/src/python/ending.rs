//! Counts the releases that enter Python on detached threads, so that the interpreter's exit waits for them.
//! Releasing belongs to `release`.
//! Invariant: after [`close`] no thread enters. There is no lock, because one that another thread holds
//! during a `fork` would stay locked in the child.

use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The process in the upper half, because a child of `fork` has none of the threads that were counted;
/// then [`CLOSED`], and the number of threads in [`enter`].
static STATE: AtomicU64 = AtomicU64::new(0);

const CLOSED: u64 = 1 << 31;

/// The longest wait for a producer's deleter at exit.
const LIMIT: Duration = Duration::from_secs(5);

/// Does work that the interpreter's exit waits for; `None` after [`close`], for a thread that came too late.
pub(super) fn enter<R>(work: impl FnOnce() -> R) -> Option<R> {
    let process = u64::from(process::id()) << 32;
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
    let process = u64::from(process::id()) << 32;
    let deadline = Instant::now() + LIMIT;
    let is_busy = |state: u64| state & !CLOSED > process && state & !0xffff_ffff == process;
    while is_busy(STATE.load(Ordering::SeqCst)) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_leaves_no_thread_to_wait_for() {
        let threads = || STATE.load(Ordering::SeqCst) & (CLOSED - 1);
        assert_eq!(enter(threads), Some(1));
        let thread = thread::spawn(|| enter(|| panic!("in a deleter")));
        thread.join().expect_err("passed on");
        assert_eq!(threads(), 0);
    }
}
