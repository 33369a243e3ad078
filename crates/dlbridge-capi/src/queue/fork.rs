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
    use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

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

    pub(in super::super) fn add(queue: &Arc<ReleaseQueue>) {
        static ONCE: Once = Once::new();
        // SAFETY: functions that stay loaded; without memory for them, forks go on as before (F5).
        ONCE.call_once(|| _ = unsafe { pthread_atfork(prepare, parent, child) });
        queues().push(Arc::downgrade(queue));
    }

    pub(in super::super) fn remove(queue: &ReleaseQueue) {
        queues().retain(|other| !ptr::eq(other.as_ptr(), queue));
    }

    unsafe extern "C" fn prepare() {
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
}

#[cfg(not(unix))]
mod other {
    use std::sync::Arc;

    use super::super::state::ReleaseQueue;

    /// Nothing forks here.
    pub(in super::super) fn add(_: &Arc<ReleaseQueue>) {}

    pub(in super::super) fn remove(_: &ReleaseQueue) {}
}
