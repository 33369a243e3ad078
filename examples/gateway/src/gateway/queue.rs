//! The queue between connections and workers: bounded in requests and in bytes.
//!
//! A connection asks for admission before it reads a request's body, so a full gateway answers at
//! once and holds no more memory. A worker takes all that waits when it becomes free, up to the size
//! of a batch: no request waits for a batch to fill.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlbridge::ArcTensor;

use super::batch::{BATCH, Batch, Rows};
use super::model::Output;

/// The most requests that are held at once.
const REQUESTS: usize = 512;
/// The most bytes of requests that are held at once.
const BYTES: usize = 256 << 20;

/// A request that waits for a worker.
pub(super) struct Request {
    /// The input.
    pub rows: Rows,
    /// What the client wants of the model.
    pub output: &'static Output,
    /// Where the connection waits for the rows of the output.
    pub reply: SyncSender<Result<ArcTensor, String>>,
}

/// What a worker finds in the queue.
pub(super) enum Next {
    /// Requests of at least one row.
    Batch(Batch),
    /// No request for some time.
    Idle,
    /// The gateway ends: no request is left, and none comes.
    Closed,
}

/// The queue.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Request>,
    /// Batches whose worker died.
    again: Vec<Batch>,
    /// Admitted and not answered yet.
    requests: usize,
    bytes: usize,
    is_closed: bool,
}

/// The right to hold a request, from before its body is read until its answer is written.
pub(super) struct Permit<'a> {
    queue: &'a Queue,
    bytes: usize,
}

impl Queue {
    /// Admits a request of a size, unless the gateway is full or ends.
    pub(super) fn admit(&self, bytes: usize) -> Option<Permit<'_>> {
        let mut state = self.lock();
        if state.is_closed || state.requests == REQUESTS || state.bytes + bytes > BYTES {
            return None;
        }
        state.requests += 1;
        state.bytes += bytes;
        Some(Permit { queue: self, bytes })
    }

    /// Adds a request that was admitted.
    pub(super) fn push(&self, request: Request, _admitted: &Permit<'_>) {
        self.lock().waiting.push_back(request);
        self.changed.notify_one();
    }

    /// Returns a batch that its worker has not answered, for another worker.
    pub(super) fn put_back(&self, batch: Batch) {
        self.lock().again.push(batch);
        self.changed.notify_one();
    }

    /// Waits for requests, and takes as many as make a batch.
    pub(super) fn next(&self, patience: Duration) -> Next {
        let idle = |state: &mut State| {
            let is_over = state.is_closed && state.requests == 0;
            state.waiting.is_empty() && state.again.is_empty() && !is_over
        };
        let waited = self.changed.wait_timeout_while(self.lock(), patience, idle);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(batch) = state.again.pop() {
            return Next::Batch(batch);
        }
        let Some(first) = state.waiting.pop_front() else {
            return if state.is_closed && state.requests == 0 { Next::Closed } else { Next::Idle };
        };
        let mut requests = vec![first];
        let mut bytes = requests[0].rows.len();
        while state.waiting.front().is_some_and(|next| bytes + next.rows.len() <= BATCH) {
            let next = state.waiting.pop_front();
            bytes += next.as_ref().map_or(0, |next| next.rows.len());
            requests.extend(next);
        }
        Next::Batch(Batch::new(requests))
    }

    /// Admits no more requests. Those that were admitted are answered.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Whether the gateway ends.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.requests -= 1;
        state.bytes -= self.bytes;
        if state.is_closed {
            self.queue.changed.notify_all();
        }
    }
}
