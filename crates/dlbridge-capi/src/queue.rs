//! Queues of releases for a chosen thread: tokens of exports that are no longer used, and
//! imported tensors whose deleters must not run on the thread that released the last reference.
//! Invariant: only the wake function runs while the lock is held.

use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::entry::{contained, guarded, silent};
use crate::error::{Error, Status};
use crate::handle::TensorHandle;
use crate::python;

/// Tells a thread that there is work.
type Wake = unsafe extern "C" fn(context: *mut c_void) -> c_int;

/// A queue of releases. Opaque to C.
#[derive(Debug, Default)]
pub struct ReleaseQueue {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tokens: Vec<Token>,
    tensors: Vec<Arc<TensorHandle>>,
    wake: Option<(Wake, Token)>,
}

/// A pointer that is only carried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token(pub(crate) *mut c_void);

// SAFETY: it is not dereferenced here; the caller of `dlb_export` takes it back on any thread (R9).
unsafe impl Send for Token {}
// SAFETY: the same.
unsafe impl Sync for Token {}

impl ReleaseQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a token. Takes a lock for a moment, waits for nothing else.
    pub(crate) fn push(&self, token: Token) {
        let mut state = self.lock();
        state.tokens.push(token);
        if state.tokens.len() == 1 {
            state.wake();
        }
    }

    fn push_tensor(&self, tensor: Arc<TensorHandle>) {
        let mut state = self.lock();
        state.tensors.push(tensor);
        if state.tensors.len() == 1 {
            state.wake();
        }
    }
}

impl State {
    fn wake(&self) {
        if let Some((wake, context)) = self.wake {
            // SAFETY: the caller's duty (`dlb_queue_new`), until the queue is closed, which takes
            // this lock.
            unsafe { wake(context.0) };
        }
    }
}

impl Drop for ReleaseQueue {
    fn drop(&mut self) {
        // No thread asked for these deleters to run here: leaking them is safe.
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

const NULL_QUEUE: Error = Error::Invalid("queue: expected a queue, found a null pointer");

/// Makes a queue; null only if this library panics. `wake`, if it is not null, is called with
/// `context` when the first token, and when the first tensor, comes to a queue that has none. Its
/// answer is ignored; `uv_async_send` is such a function.
///
/// # Safety
///
/// `wake` may be called with `context` until the queue is muted or closed, on any thread, while a
/// lock of the queue is held: it waits for nothing, and calls no function of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_new(
    wake: Option<unsafe extern "C" fn(context: *mut c_void) -> c_int>,
    context: *mut c_void,
) -> *mut ReleaseQueue {
    contained(std::ptr::null_mut(), || {
        let wake = wake.map(|wake| (wake, Token(context)));
        let state = Mutex::new(State { wake, ..State::default() });
        Arc::into_raw(Arc::new(ReleaseQueue { state })).cast_mut()
    })
}

/// Ends the calls of `wake`; the queue works on. Does nothing for null.
///
/// # Safety
///
/// `queue` is null or a live queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_mute(queue: *mut ReleaseQueue) {
    // SAFETY: the caller's duty.
    if let Some(queue) = unsafe { queue.as_ref() } {
        contained((), || queue.lock().wake = None);
    }
}

/// Closes a queue, and ends the calls of `wake`. Exports that name it stay valid; its tokens and
/// tensors, and those that come later, are never released: drain it first. Does nothing for null.
///
/// # Safety
///
/// `queue` is null or a queue that the caller gives up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_close(queue: *mut ReleaseQueue) {
    if queue.is_null() {
        return;
    }
    // SAFETY: the caller's duty.
    let queue = unsafe { Arc::from_raw(queue) };
    contained((), || queue.lock().wake = None);
}

/// Moves up to `capacity` tokens out of the queue, in no particular order, and returns their
/// number; 0 for null. Each stands for an export that is no longer used. Call it until it returns
/// less than `capacity`: `wake` is called again only once the queue has no tokens.
///
/// # Safety
///
/// `queue` is null or a live queue; `tokens` can be written for `capacity` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_take(
    queue: *mut ReleaseQueue,
    tokens: *mut *mut c_void,
    capacity: usize,
) -> usize {
    // SAFETY: the caller's duty.
    let Some(queue) = (unsafe { queue.as_ref() }) else { return 0 };
    contained(0, || {
        let mut state = queue.lock();
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

/// Gives up a reference to a tensor, which `dlb_queue_drain` releases. It takes a lock for a moment
/// and calls no deleter, so that a finalizer may call it. Null is a tensor that needs no release.
///
/// # Safety
///
/// `queue` is null, which fails, or a live queue; `tensor` is null or a reference that the caller
/// owns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_release(
    queue: *mut ReleaseQueue,
    tensor: *mut TensorHandle,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's duty.
        let queue = unsafe { queue.as_ref() }.ok_or(NULL_QUEUE)?;
        // SAFETY: the caller's duty.
        if let Some(tensor) = unsafe { TensorHandle::own(tensor) } {
            queue.push_tensor(tensor);
        }
        Ok(())
    })
}

/// Releases the tensors in the queue, oldest first, and returns their number; 0 for null.
///
/// While Python runs, a thread that is not attached releases none: a producer's deleter may wait
/// for the GIL, whose holder may be waiting for this thread. Before Python is initialised and after
/// it is shut down, any thread may; tensors of Python objects leak once it is.
///
/// # Safety
///
/// `queue` is null or a live queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_drain(queue: *mut ReleaseQueue) -> usize {
    // SAFETY: the caller's duty.
    let Some(queue) = (unsafe { queue.as_ref() }) else { return 0 };
    let drain = || {
        if queue.lock().tensors.is_empty() {
            return 0;
        }
        python::drain(|| {
            let tensors = mem::take(&mut queue.lock().tensors);
            tensors.len()
        })
    };
    silent(|| contained(0, drain))
}

/// The number of tokens and tensors in the queue; 0 for null.
///
/// # Safety
///
/// `queue` is null or a live queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_pending(queue: *const ReleaseQueue) -> usize {
    // SAFETY: the caller's duty.
    let Some(queue) = (unsafe { queue.as_ref() }) else { return 0 };
    contained(0, || {
        let state = queue.lock();
        state.tokens.len() + state.tensors.len()
    })
}
