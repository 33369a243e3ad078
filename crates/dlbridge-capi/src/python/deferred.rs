//! Tensors whose deleters wait until a thread is in the right interpreter.
//! Releasing them belongs to `release`.
//! Invariant: a tensor is in the list once, or taken. There is no lock, because one that another thread
//! holds during a `fork` would stay locked in the child.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use dlbridge::Tensor;

struct Node {
    tensor: Tensor,
    next: *mut Node,
}

static LIST: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());

/// Whether there may be a tensor.
#[inline]
pub(super) fn is_empty() -> bool {
    LIST.load(Ordering::Relaxed).is_null()
}

pub(super) fn push(tensor: Tensor) {
    let node = Box::into_raw(Box::new(Node { tensor, next: ptr::null_mut() }));
    let mut next = LIST.load(Ordering::Relaxed);
    loop {
        // SAFETY: this thread's own until it is in the list (R7).
        unsafe { (*node).next = next };
        match LIST.compare_exchange_weak(next, node, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(newer) => next = newer,
        }
    }
}

/// Takes all tensors, the last one first.
pub(super) fn take() -> impl Iterator<Item = Tensor> {
    let mut node = LIST.swap(ptr::null_mut(), Ordering::Acquire);
    std::iter::from_fn(move || {
        if node.is_null() {
            return None;
        }
        // SAFETY: made by `push`, and in no other list: the whole list was taken at once (R7).
        let Node { tensor, next } = *unsafe { Box::from_raw(node) };
        node = next;
        Some(tensor)
    })
}
