//! Queues of what is to be released later, on a thread that may: tokens of exports that somebody
//! dropped, and imported tensors whose deleters must not run where they were dropped.
//! What the tokens mean does not belong here.
//! Invariant: nothing foreign runs while the lock is held, but for the wake function, which only
//! makes a note.

use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::entry::contained;
use crate::import::TensorHandle;
use crate::python;

/// Wakes whoever takes from the queue.
type Wake = unsafe extern "C" fn(context: *mut c_void) -> c_int;

/// A queue of what is to be released later. Opaque to C.
#[derive(Debug, Default)]
pub struct ReleaseQueue {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tokens: Vec<Token>,
    tensors: Vec<TensorHandle>,
    wake: Option<(Wake, Token)>,
}

/// A pointer that is only carried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token(pub(crate) *mut c_void);

// SAFETY: nothing here looks behind it; whoever gave it lets it be given back on any thread (R9).
unsafe impl Send for Token {}

impl ReleaseQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a token. Takes a lock for a moment, waits for nothing else.
    pub(crate) fn push(&self, token: Token) {
        let mut state = self.lock();
        state.tokens.push(token);
        state.wake_if_first();
    }

    fn push_tensor(&self, tensor: TensorHandle) {
        let mut state = self.lock();
        state.tensors.push(tensor);
        state.wake_if_first();
    }
}

impl State {
    /// Whoever takes from the queue takes all, so one call is enough until it is empty again.
    fn wake_if_first(&self) {
        if self.tokens.len() + self.tensors.len() != 1 {
            return;
        }
        if let Some((wake, context)) = self.wake {
            // SAFETY: the caller's duty (`dlb_queue_new`), until the queue is closed, which takes
            // this lock.
            unsafe { wake(context.0) };
        }
    }
}

impl Drop for ReleaseQueue {
    fn drop(&mut self) {
        // Nobody asked for these deleters to run here, wherever this is: a leak is safe.
        mem::forget(mem::take(&mut self.lock().tensors));
    }
}

/// The queue behind a pointer that C holds, counted once more.
///
/// # Safety
///
/// `queue` is a queue that was not closed.
pub(crate) unsafe fn share(queue: *const ReleaseQueue) -> Arc<ReleaseQueue> {
    // SAFETY: made by `Arc::into_raw`, and alive (R7).
    unsafe { Arc::increment_strong_count(queue) };
    // SAFETY: counted just now (R7).
    unsafe { Arc::from_raw(queue) }
}

/// A new queue, which calls `wake`, if it is not null, when something comes to stand in an empty
/// queue. What `wake` answers is not looked at; `uv_async_send` is such a function.
///
/// # Safety
///
/// `wake` may be called with `context` until the queue is muted or closed, on any thread, holding a
/// lock of the queue: it waits for nothing, and calls nothing of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_new(
    wake: Option<unsafe extern "C" fn(context: *mut c_void) -> c_int>,
    context: *mut c_void,
) -> *const ReleaseQueue {
    contained(std::ptr::null(), || {
        let wake = wake.map(|wake| (wake, Token(context)));
        let state = Mutex::new(State { wake, ..State::default() });
        Arc::into_raw(Arc::new(ReleaseQueue { state }))
    })
}

/// Makes a queue wake nobody from here on. It stays as valid as it was.
///
/// # Safety
///
/// `queue` is a live queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_mute(queue: *const ReleaseQueue) {
    // SAFETY: the caller's duty.
    contained((), || unsafe { &*queue }.lock().wake = None);
}

/// Closes a queue: it wakes nobody from here on. Exports that name it stay valid; what stands in
/// it, and what comes later, is never released.
///
/// # Safety
///
/// `queue` is null or a queue that the caller gives up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_close(queue: *const ReleaseQueue) {
    if queue.is_null() {
        return;
    }
    // SAFETY: the caller's duty.
    let queue = unsafe { Arc::from_raw(queue) };
    contained((), || queue.lock().wake = None);
}

/// Takes up to `capacity` tokens out of the queue, and gives their number. Each stands for an
/// export that nobody uses any more.
///
/// # Safety
///
/// `queue` is a live queue; `tokens` can be written for `capacity` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_take(
    queue: *const ReleaseQueue,
    tokens: *mut *mut c_void,
    capacity: usize,
) -> usize {
    contained(0, || {
        // SAFETY: the caller's duty.
        let mut state = unsafe { &*queue }.lock();
        let rest = state.tokens.len().saturating_sub(capacity);
        let mut count = 0;
        for token in state.tokens.drain(rest..) {
            // SAFETY: at most `capacity` of them (the caller's duty).
            unsafe { tokens.wrapping_add(count).write(token.0) };
            count += 1;
        }
        count
    })
}

/// Puts a tensor aside, to be released by `dlb_queue_drain`. It takes a lock for a moment and
/// calls no deleter, so that a finaliser may call it. Null is fine.
///
/// # Safety
///
/// `queue` is a live queue; `tensor` is null or a tensor that the caller owns and gives up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_release(queue: *const ReleaseQueue, tensor: *mut TensorHandle) {
    contained((), || {
        // SAFETY: the caller's duty.
        if let Some(tensor) = unsafe { TensorHandle::own(tensor) } {
            // SAFETY: the caller's duty.
            unsafe { &*queue }.push_tensor(*tensor);
        }
    });
}

/// Releases the tensors that were put aside, and gives their number. Where Python runs, a thread
/// that does not hold its lock releases none: producers' deleters wait for that lock, and whoever
/// holds it may be waiting for this thread.
///
/// # Safety
///
/// `queue` is a live queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_drain(queue: *const ReleaseQueue) -> usize {
    contained(0, || {
        // SAFETY: the caller's duty.
        let queue = unsafe { &*queue };
        if queue.lock().tensors.is_empty() || !python::may_run_deleters() {
            return 0;
        }
        let tensors = mem::take(&mut queue.lock().tensors);
        let count = tensors.len();
        python::undisturbed(|| drop(tensors));
        count
    })
}

/// How many tokens and tensors stand in the queue.
///
/// # Safety
///
/// `queue` is a live queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_pending(queue: *const ReleaseQueue) -> usize {
    contained(0, || {
        // SAFETY: the caller's duty.
        let state = unsafe { &*queue }.lock();
        state.tokens.len() + state.tensors.len()
    })
}
