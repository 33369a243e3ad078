//! The contents of a queue, and who is told of them.
//! Invariant: no lock is held while `wake` runs, so that one that never returns leaves none behind.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::signal::Signal;
use crate::error::Result;
use crate::handle::TensorHandle;

/// Tells a thread that there is work.
type Wake = unsafe extern "C" fn(context: *mut c_void) -> c_int;

/// A queue of releases. Opaque to C.
#[derive(Debug, Default)]
pub struct ReleaseQueue {
    state: Mutex<State>,
    /// Notified when a thread is no longer in `wake`.
    returned: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    tokens: Vec<Token>,
    tensors: Vec<Arc<TensorHandle>>,
    wake: Option<(Wake, Token)>,
    /// The threads that are in `wake`, by the address of their [`HERE`].
    waking: Vec<usize>,
    signal: Option<Signal>,
}

/// A pointer that is only carried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token(pub(crate) *mut c_void);

// SAFETY: it is not dereferenced here; the caller of `dlb_export` takes it back on any thread (R9).
unsafe impl Send for Token {}
// SAFETY: the same.
unsafe impl Sync for Token {}

thread_local! {
    /// Its address names the thread, even while the thread ends.
    static HERE: u8 = const { 0 };
}

fn here() -> usize {
    HERE.with(|here| ptr::from_ref(here).addr())
}

impl ReleaseQueue {
    pub(super) fn new(wake: Option<(Wake, Token)>) -> Arc<Self> {
        let state = Mutex::new(State { wake, ..State::default() });
        Arc::new(Self { state, returned: Condvar::new() })
    }

    /// A thread that comes here is not in `wake`, even if it left that by `longjmp`.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock_for_fork();
        if !state.waking.is_empty() {
            let here = here();
            state.waking.retain(|&thread| thread != here);
            self.returned.notify_all();
        }
        state
    }

    pub(super) fn lock_for_fork(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a token. Waits for nothing but a lock that is held for a moment.
    pub(crate) fn push(&self, token: Token) {
        let mut state = self.lock();
        state.tokens.push(token);
        let is_first = state.tokens.len() == 1;
        self.tell(state, is_first);
    }

    pub(super) fn push_tensor(&self, tensor: Arc<TensorHandle>) {
        let mut state = self.lock();
        state.tensors.push(tensor);
        let is_first = state.tensors.len() == 1;
        self.tell(state, is_first);
    }

    /// Tells of the first of its kind.
    fn tell(&self, mut state: MutexGuard<'_, State>, is_first: bool) {
        if !is_first {
            return;
        }
        state.show();
        let Some((wake, context)) = state.wake else { return };
        state.waking.push(here());
        drop(state);
        // SAFETY: the caller's duty (`dlb_queue_new`), until the queue is muted, which waits for this.
        unsafe { wake(context.0) };
        drop(self.lock());
    }

    /// Ends the calls of `wake`.
    pub(super) fn mute(&self) {
        let mut state = self.lock();
        state.wake = None;
        while !state.waking.is_empty() {
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Up to `capacity` tokens.
    pub(super) fn take_tokens(&self, capacity: usize) -> Vec<Token> {
        let mut state = self.lock();
        let rest = state.tokens.len().saturating_sub(capacity);
        let tokens = state.tokens.split_off(rest);
        state.show();
        tokens
    }

    pub(super) fn has_tensors(&self) -> bool {
        !self.lock().tensors.is_empty()
    }

    pub(super) fn take_tensors(&self) -> Vec<Arc<TensorHandle>> {
        let mut state = self.lock();
        let tensors = mem::take(&mut state.tensors);
        state.show();
        tensors
    }

    pub(super) fn pending(&self) -> usize {
        self.lock().pending()
    }

    pub(super) fn descriptor(&self) -> Result<c_int> {
        let mut state = self.lock();
        if state.signal.is_none() {
            state.signal = Some(Signal::new()?);
            state.show();
        }
        Ok(state.signal.as_ref().map_or(-1, Signal::descriptor))
    }
}

impl State {
    fn pending(&self) -> usize {
        self.tokens.len() + self.tensors.len()
    }

    /// Makes the descriptor readable, or not.
    fn show(&mut self) {
        let pending = self.pending();
        if let Some(signal) = &mut self.signal {
            signal.set(pending != 0);
        }
    }

    /// In the child of a fork: other threads are gone, and the descriptor is the parent's.
    pub(super) fn start_over(&mut self) {
        let here = here();
        self.waking.retain(|&thread| thread == here);
        self.signal = None;
    }
}
