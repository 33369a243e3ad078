//! Ends the process when a test hangs.

use std::process::abort;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Aborts the process unless it is dropped within a minute.
pub(crate) struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    pub(crate) fn of(test: &str) -> Self {
        let (alive, dropped) = mpsc::channel::<()>();
        let test = test.to_owned();
        thread::spawn(move || {
            if dropped.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{test}: hangs");
                abort();
            }
        });
        Self { _alive: alive }
    }
}
