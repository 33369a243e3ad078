//! Keeps the locks of queues free in the child of a fork, which has one thread only.
//! Invariant: a thread that forks holds the locks of all queues during the fork.
//!
//! POSIX runs `prepare` of the last registered handler first, and `parent` and `child` of the first. So handlers that a
//! program registered before its first queue run under these locks: they must not use a queue.

#[cfg(not(unix))]
pub(super) use other::{add, remove};
#[cfg(unix)]
pub(super) use unix::{add, remove};

#[cfg(unix)]
mod unix {
    use std::cell::RefCell;
    use std::ffi::c_int;
    use std::ptr;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

    use super::super::state::{ReleaseQueue, State};

    type Queues = Vec<Weak<ReleaseQueue>>;

    /// All queues.
    static QUEUES: Mutex<Queues> = Mutex::new(Vec::new());

    fn queues() -> MutexGuard<'static, Queues> {
        QUEUES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The locks of a thread that forks. Freed in this order: the last reference to a queue takes the
    /// lock of the list.
    struct Held {
        states: Vec<MutexGuard<'static, State>>,
        _list: MutexGuard<'static, Queues>,
        _queues: Vec<Arc<ReleaseQueue>>,
    }

    thread_local! {
        static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
    }

    /// What this thread holds; a thread that is ending holds nothing.
    fn hold(held: Option<Held>) -> Option<Held> {
        HELD.try_with(|place| place.replace(held)).ok().flatten()
    }

    type Handler = unsafe extern "C" fn();

    unsafe extern "C" {
        /// POSIX, as `pthread.h` declares it.
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
    }

    /// No `Once`: a child that is forked in its first call would wait for ever.
    pub(in super::super) fn add(queue: &Arc<ReleaseQueue>) {
        static IS_DONE: AtomicBool = AtomicBool::new(false);
        if !IS_DONE.load(Ordering::Acquire) {
            register();
            IS_DONE.store(true, Ordering::Release);
        }
        queues().push(Arc::downgrade(queue));
    }

    /// Registers the functions below. Each fork calls them as often as they were registered, maybe by two threads.
    fn register() {
        // SAFETY: functions that stay loaded; without memory for them, forks go on as before (F5).
        let _ = unsafe { pthread_atfork(prepare, parent, child) };
    }

    pub(in super::super) fn remove(queue: &ReleaseQueue) {
        queues().retain(|other| !ptr::eq(other.as_ptr(), queue));
    }

    unsafe extern "C" fn prepare() {
        if HELD.try_with(|held| held.borrow().is_some()) == Ok(true) {
            return;
        }
        let list = queues();
        let queues: Vec<_> = list.iter().filter_map(Weak::upgrade).collect();
        // SAFETY: kept alive by the references, which are freed after the locks (R2).
        let lock = |queue: &Arc<ReleaseQueue>| unsafe { &*Arc::as_ptr(queue) }.lock_for_fork();
        let states = queues.iter().map(lock).collect();
        hold(Some(Held { states, _list: list, _queues: queues }));
    }

    unsafe extern "C" fn parent() {
        drop(hold(None));
    }

    unsafe extern "C" fn child() {
        if let Some(mut held) = hold(None) {
            held.states.iter_mut().for_each(|state| state.start_over());
        }
    }

    #[cfg(test)]
    mod tests {
        use std::ffi::c_uint;
        use std::sync::mpsc;
        use std::thread;
        use std::time::Duration;

        use super::*;

        unsafe extern "C" {
            safe fn fork() -> c_int;
            safe fn alarm(seconds: c_uint) -> c_uint;
            safe fn _exit(status: c_int) -> !;
            safe fn waitpid(process: c_int, status: &mut c_int, options: c_int) -> c_int;
        }

        /// As two threads that make the first queue register them.
        #[test]
        fn a_process_whose_functions_are_registered_twice_forks() {
            let queue = ReleaseQueue::new(None);
            add(&queue);
            register();
            let (sender, code) = mpsc::channel();
            thread::spawn(move || {
                let child = fork();
                if child == 0 {
                    // A child that hangs ends by a signal.
                    alarm(10);
                    let queues = queues().len();
                    _exit(i32::from(queues == 0 || queue.pending() != 0));
                }
                let mut status = -1;
                waitpid(child, &mut status, 0);
                let _ = sender.send((status, queue.pending()));
            });
            let found = code.recv_timeout(Duration::from_secs(20));
            assert_eq!(found, Ok((0, 0)), "no fork waits for itself, and no lock stays");
        }
    }
}

#[cfg(not(unix))]
mod other {
    use std::sync::Arc;

    use super::super::state::ReleaseQueue;

    /// Nothing forks here.
    pub(in super::super) fn add(_: &Arc<ReleaseQueue>) {}

    pub(in super::super) fn remove(_: &ReleaseQueue) {}
}
