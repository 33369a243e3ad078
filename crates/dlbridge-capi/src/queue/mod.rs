//! Queues of releases for a chosen thread: tokens of exports that are no longer used, and
//! imported tensors whose deleters must not run on the thread that released the last reference.
//! Their state and locks belong to `state`.
//! Invariant: no foreign code runs while a lock is held.

mod fork;
mod signal;
mod state;

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::entry::{contained, guarded, silent, write_out};
use crate::error::{Error, Status};
use crate::handle::TensorHandle;
use crate::python;

pub use state::ReleaseQueue;
pub(crate) use state::Token;

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

impl Drop for ReleaseQueue {
    fn drop(&mut self) {
        fork::remove(self);
        // No thread asked for these deleters to run here: leaking them is safe.
        std::mem::forget(self.take_tensors());
    }
}

const NULL_QUEUE: Error = Error::Invalid("queue: expected a queue, found a null pointer");

/// Makes a queue; null only if this library panics. `wake`, if it is not null, is called with
/// `context` when the first token, and when the first tensor, comes to a queue that has none. Its
/// result is ignored, so that it can be libuv's `uv_async_send`.
///
/// After a fork, the child has a copy of the queue with its tokens and tensors.
///
/// # Safety
///
/// `wake` may be called with `context` until the queue is muted or closed, on any thread, and on
/// several at the same time. It waits for nothing, calls no function of this library, and returns: it
/// must not throw, call `longjmp`, or end the thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_new(
    wake: Option<unsafe extern "C" fn(context: *mut c_void) -> c_int>,
    context: *mut c_void,
) -> *mut ReleaseQueue {
    contained(std::ptr::null_mut(), || {
        let queue = ReleaseQueue::new(wake.map(|wake| (wake, Token(context))));
        fork::add(&queue);
        Arc::into_raw(queue).cast_mut()
    })
}

/// Ends the calls of `wake`, once those that other threads are in have returned; the queue still
/// works. Does nothing for null.
///
/// # Safety
///
/// `queue` is null or a live queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_mute(queue: *mut ReleaseQueue) {
    // SAFETY: the caller's duty.
    if let Some(queue) = unsafe { queue.as_ref() } {
        contained((), || queue.mute());
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
    silent(|| contained((), move || queue.mute()));
}

/// A file descriptor that can be read while the queue has tokens or tensors, for `poll`, `epoll` and
/// event loops: wait for it, then take and drain. It stays the queue's: do not read or close it. Each
/// process asks for its own after a fork. On Unix only: elsewhere, this fails with
/// `DLB_STATUS_REFUSED`.
///
/// # Safety
///
/// `queue` is null, which fails, or a live queue; `out` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_descriptor(queue: *mut ReleaseQueue, out: *mut c_int) -> Status {
    // SAFETY: the caller's duty.
    let queue = unsafe { queue.as_ref() };
    // SAFETY: the same.
    unsafe { write_out(out, || queue.ok_or(NULL_QUEUE)?.descriptor()) }
}

/// Moves up to `capacity` tokens out of the queue, in no particular order, and returns their
/// number; 0 for null, also where `tokens` is null. Each stands for an export that is no longer used.
/// Call it until it returns less than `capacity`: `wake` is called again only once the queue has no
/// tokens.
///
/// # Safety
///
/// `queue` is null or a live queue; `tokens` is null or can be written for `capacity` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_take(
    queue: *mut ReleaseQueue,
    tokens: *mut *mut c_void,
    capacity: usize,
) -> usize {
    // SAFETY: the caller's duty.
    let Some(queue) = (unsafe { queue.as_ref() }) else { return 0 };
    if tokens.is_null() {
        return 0;
    }
    contained(0, || {
        let taken = queue.take_tokens(capacity);
        for (index, token) in taken.iter().enumerate() {
            // SAFETY: at most `capacity` of them (the caller's duty).
            unsafe { tokens.wrapping_add(index).write(token.0) };
        }
        taken.len()
    })
}

/// Moves a reference to a tensor into the queue, for `dlb_queue_drain` to release. It takes a lock
/// for a moment and calls no deleter, so that a finalizer may call it. A null tensor is ignored.
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
/// it is shut down, any thread may release them; after it, tensors of Python objects leak.
///
/// # Safety
///
/// `queue` is null or a live queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_queue_drain(queue: *mut ReleaseQueue) -> usize {
    // SAFETY: the caller's duty.
    let Some(queue) = (unsafe { queue.as_ref() }) else { return 0 };
    let drain = || {
        if !queue.has_tensors() {
            return 0;
        }
        python::drain(|| {
            let tensors = queue.take_tensors();
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
    contained(0, || queue.pending())
}
