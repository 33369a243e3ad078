//! A number for this process, and the descriptor that a forked child closes.
//! Invariant: the handler that runs in a forked child only increments a number, and closes a descriptor that no other
//! code closes (F10).
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

static FORKS: AtomicU64 = AtomicU64::new(1);
/// The descriptor of this process that its children close; -1 for none.
static CLOSED: AtomicI32 = AtomicI32::new(-1);

/// A number for this process, different from those of the processes that it was forked from.
pub fn process() -> u64 {
    static IS_COUNTED: AtomicBool = AtomicBool::new(false);
    extern "C" fn forked() {
        FORKS.fetch_add(1, Ordering::Relaxed);
        let file = CLOSED.swap(-1, Ordering::Relaxed);
        if file >= 0 {
            // SAFETY: a descriptor that its owner never closes, of whose threads this child has none (F10).
            unsafe { libc::close(file) };
        }
    }
    // No `Once`: a child that is forked in its first call would wait for ever. Two threads may register the function,
    // which then counts by two.
    if !IS_COUNTED.load(Ordering::Acquire) {
        // SAFETY: the function counts and closes, in a child before `fork` returns there (F10).
        let _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        IS_COUNTED.store(true, Ordering::Release);
    }
    FORKS.load(Ordering::Relaxed)
}

/// Keeps a socket until the process ends. A forked child closes its copy, which would keep the socket's name in use.
pub(crate) fn never_inherited(listener: UnixListener) -> &'static UnixListener {
    process();
    let listener: &'static _ = Box::leak(Box::new(listener));
    CLOSED.store(listener.as_raw_fd(), Ordering::Relaxed);
    listener
}

/// The process that uses a value, the first that does. A forked child has a copy of the value, with its locks as they were.
#[derive(Default, Debug)]
pub(crate) struct Owner(pub(crate) AtomicU64);

impl Owner {
    /// Whether this process uses the value.
    pub(crate) fn is_here(&self) -> bool {
        self.0.load(Ordering::Relaxed) == process()
    }

    /// Whether another process uses the value, so that a lock of it may be held for ever.
    pub(crate) fn is_elsewhere(&self) -> bool {
        ![0, process()].contains(&self.0.load(Ordering::Relaxed))
    }

    /// Uses the value in this process, and in no other one from here on. `false` if another one does.
    pub(crate) fn claim(&self) -> bool {
        let (process, order) = (process(), Ordering::Relaxed);
        self.0
            .compare_exchange(0, process, order, order)
            .map_or_else(|owner| owner == process, |_| true)
    }
}
