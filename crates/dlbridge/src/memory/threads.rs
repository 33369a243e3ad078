//! The pool of threads of this process.
//! Invariant: only the process that made a pool uses it, because a forked child has none of its threads.

use std::process;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use rayon::{ThreadPool, ThreadPoolBuilder};

/// A pool, and the number of the process that made it.
struct Pool {
    process: u32,
    threads: ThreadPool,
}

/// The pool that was made last; null before the first one. Pools are never freed.
static LAST: AtomicPtr<Pool> = AtomicPtr::new(ptr::null_mut());

/// The pool of threads on which this process runs [`par_map_to_tensor`](crate::View::par_map_to_tensor) and the other
/// methods that compute on many threads, unless a thread of another pool calls them.
///
/// A forked child gets a new pool at its first call. rayon's global pool has no threads in a child of a process that
/// used it, so that a call of rayon waits there for ever: in a worker of PyTorch's `DataLoader`, for instance. So a Python
/// extension runs its own calls of rayon, and the iterators of a view, on this pool:
///
/// ```
/// use dlbridge::{Parts, Tensor, thread_pool};
/// use rayon::prelude::*;
///
/// let tensor = Tensor::from([3.0, 1.0, 4.0]);
/// let view = tensor.view::<f64>()?;
/// assert_eq!(thread_pool().install(|| view.par_iter().sum::<f64>()), 8.0);
/// # Ok::<(), dlbridge::Error>(())
/// ```
///
/// It has as many threads as rayon's global pool has by default: one for each core, or as many as the environment variable
/// `RAYON_NUM_THREADS` says. To choose another number, call the methods within [`install`](ThreadPool::install) of a pool of
/// your own.
///
/// # Panics
///
/// If the system refuses to start threads, as rayon's own calls do.
#[must_use]
pub fn thread_pool() -> &'static ThreadPool {
    let process = process::id();
    // No `OnceLock`: a child that is forked while a thread sets it would wait for ever.
    let mut last = LAST.load(Ordering::Acquire);
    loop {
        // SAFETY: null or a pool that was leaked below, so that no code frees or writes it (R7).
        match unsafe { last.as_ref() } {
            Some(pool) if pool.process == process => return &pool.threads,
            _ => {}
        }
        let threads = ThreadPoolBuilder::new().build().expect("threads, which the system refused");
        let new = Box::into_raw(Box::new(Pool { process, threads }));
        match LAST.compare_exchange(last, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => last = new,
            Err(other) => {
                // SAFETY: allocated just now, and no other thread has its address (R7).
                drop(unsafe { Box::from_raw(new) });
                last = other;
            }
        }
    }
}

/// Runs a function on this process's pool, unless this is a thread of a pool already. On systems that cannot fork,
/// rayon's own pool serves.
pub(super) fn on_many<R: Send>(function: impl FnOnce() -> R + Send) -> R {
    match cfg!(unix) && rayon::current_thread_index().is_none() {
        true => thread_pool().install(function),
        false => function(),
    }
}
