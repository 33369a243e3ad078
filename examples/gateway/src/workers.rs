//! Workers in Python, and the threads that feed them.
//!
//! A worker is a process with one end of a channel as its standard input. Nothing of a worker is
//! trusted: its answer is validated and copied, and a worker that dies, is late or answers something
//! else is replaced.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};
use dlbridge::{DType, Tensor};
use dlbridge_sealed::{Channel, Message, Pool};
use hyper::body::Bytes;
use tokio::sync::oneshot;

use crate::Options;

/// The input of `model.py`: rows of so many `float32`, and the size of a row in bytes.
pub(crate) const FEATURES: usize = 256;
pub(crate) const ROW: usize = FEATURES * size_of::<f32>();
/// Its outputs: what clients ask for, and the type and shape of a row.
pub(crate) const OUTPUTS: [(&str, DType, &[i64]); 2] =
    [("scores", DType::F32, &[10]), ("labels", DType::I64, &[])];
/// The most bytes of requests that are answered together. A larger one is a batch of its own.
const BATCH: usize = 256 << 10;
/// How often a worker without work is looked after, and how long to wait before a start that may fail
/// again.
const PAUSE: Duration = Duration::from_secs(1);
/// So many workers may fail to answer a batch.
const FAILURES: usize = 2;

/// A request that waits for a worker.
pub(crate) struct Job {
    /// In the parts that came, which are copied once: into the memory of the channel.
    pub(crate) parts: Vec<Bytes>,
    /// The bytes of all.
    pub(crate) len: usize,
    /// The index of the output that the client wants.
    pub(crate) output: usize,
    pub(crate) reply: oneshot::Sender<Result<Rows, String>>,
}

/// The bytes of an answer, and its shape.
type Rows = (Vec<u8>, Vec<i64>);

/// The requests that wait. A worker takes all of them when it is free, up to the size of a batch.
#[derive(Clone, Default)]
pub(crate) struct Queue(Arc<(Mutex<Waiting>, Condvar)>);

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// Batches whose worker died, and how many did.
    again: Vec<(Vec<Job>, usize)>,
    is_closed: bool,
}

impl Queue {
    pub(crate) fn push(&self, job: Job) {
        self.lock().jobs.push_back(job);
        self.0.1.notify_one();
    }

    /// No request comes any more.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.0.1.notify_all();
    }

    /// Waits for a batch; an empty one after some time, `None` at the end.
    fn next(&self) -> Option<(Vec<Job>, usize)> {
        let is_idle = |waiting: &mut Waiting| {
            waiting.jobs.is_empty() && waiting.again.is_empty() && !waiting.is_closed
        };
        let waited = self.0.1.wait_timeout_while(self.lock(), PAUSE, is_idle);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(again) = waiting.again.pop() {
            return Some(again);
        }
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let fits = |next: &Job, bytes| bytes == 0 || bytes + next.len <= BATCH;
        while waiting.jobs.front().is_some_and(|next| fits(next, bytes)) {
            bytes += waiting.jobs[0].len;
            batch.extend(waiting.jobs.pop_front());
        }
        (!batch.is_empty() || !waiting.is_closed).then_some((batch, 0))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A process that runs the model.
struct Worker {
    child: Child,
    channel: Channel,
    patience: Duration,
    asked: i64,
}

impl Worker {
    /// Starts a process and waits until it has loaded the model.
    fn start(options: &Options) -> Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let child = Command::new(&options.python)
            .arg(&options.worker)
            .args(options.bytes.then_some("--bytes"))
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", options.python.display()))?;
        let channel = match options.bytes {
            true => Channel::by_bytes(socket, &Pool::default()),
            false => Channel::new(socket),
        };
        let patience = Duration::from_secs(options.patience);
        let worker = Self { child, channel, patience, asked: 0 };
        let ready = text(&worker.receive().context("a worker that starts")?, "ready")?;
        eprintln!("worker {} runs {ready:?}", worker.child.id());
        Ok(worker)
    }

    fn receive(&self) -> Result<Message> {
        ensure!(self.channel.wait(self.patience)?, "expected an answer in time, found none");
        self.channel.receive()?.context("expected an answer, found the end of the stream")
    }

    /// Asks for the outputs of a batch, or what the model says in their place. After an error, the worker
    /// is of no use any more.
    fn ask(&mut self, batch: &[Job]) -> Result<Result<Vec<Tensor>, String>> {
        let rows = batch.iter().map(|job| job.len / ROW).sum::<usize>() as i64;
        self.asked += 1;
        let shape = [rows, FEATURES as i64];
        let mut loan = self.channel.loan(&[("x", DType::F32, &shape), ("id", DType::I64, &[1])])?;
        loan.tensor("id")?.as_slice_mut()?[0] = self.asked;
        let mut x = loan.tensor("x")?;
        let mut rest = x.as_bytes_mut()?;
        for part in batch.iter().flat_map(|job| &job.parts) {
            let (place, next) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = next;
        }
        drop(x);
        loan.send()?;
        let answer = self.receive()?;
        let id = answer.to_owned("id")?;
        ensure!(
            id.as_slice::<i64>()? == [self.asked],
            "expected the answer to batch {}, found {id:?}",
            self.asked
        );
        if answer.names().any(|name| name == "error") {
            return Ok(Err(text(&answer, "error")?));
        }
        let outputs = OUTPUTS.iter().map(|&(name, dtype, row)| {
            let (tensor, shape) = (answer.to_owned(name)?, [&[rows], row].concat());
            let (found, found_shape) = (tensor.dtype(), tensor.shape());
            ensure!(
                found == dtype && found_shape == shape,
                "{name}: expected {dtype}{shape:?}, found {found}{found_shape:?}"
            );
            Ok(tensor)
        });
        outputs.collect::<Result<_>>().map(Ok)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // All that it holds is freed by the kernel, at any moment.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A text of a worker, as bytes.
fn text(message: &Message, name: &str) -> Result<String> {
    Ok(String::from_utf8_lossy(message.to_owned(name)?.as_slice::<u8>()?).into_owned())
}

/// Answers each request with its rows.
fn reply(batch: Vec<Job>, answer: &Result<Vec<Tensor>, String>) {
    let mut start = 0;
    for job in batch {
        let end = start + job.len / ROW;
        let part = answer.as_ref().map_err(String::clone).and_then(|outputs| {
            let all = outputs[job.output].as_bytes().map_err(|error| error.to_string())?;
            let mut shape = outputs[job.output].shape().to_vec();
            let row = all.len() / shape[0] as usize;
            shape[0] = (end - start) as i64;
            Ok((all[start * row..end * row].to_vec(), shape))
        });
        // A client that has gone needs no answer.
        let _ = job.reply.send(part);
        start = end;
    }
}

/// Feeds one worker until the queue is closed, and replaces it when it fails.
pub(crate) fn supervise(queue: &Queue, options: &Options, failed: Sender<Error>) {
    let mut worker = match Worker::start(options) {
        Ok(worker) => Some(worker),
        Err(error) => return drop(failed.send(error)),
    };
    // So far, this one has not.
    drop(failed);
    loop {
        // A dead one is dropped before a new one starts.
        worker.take_if(|worker| !worker.child.try_wait().is_ok_and(|status| status.is_none()));
        let Some(living) = &mut worker else {
            match Worker::start(options) {
                Ok(new) => worker = Some(new),
                Err(_) if queue.lock().is_closed => return,
                Err(error) => {
                    eprintln!("no worker: {error:#}");
                    thread::sleep(PAUSE);
                }
            }
            continue;
        };
        let Some((batch, failures)) = queue.next() else { return };
        if batch.is_empty() {
            continue;
        }
        match living.ask(&batch) {
            Ok(answer) => reply(batch, &answer),
            Err(error) => {
                eprintln!("worker {} is replaced: {error:#}", living.child.id());
                worker = None;
                if failures + 1 < FAILURES {
                    queue.lock().again.push((batch, failures + 1));
                    queue.0.1.notify_one();
                } else {
                    reply(batch, &Err(format!("{FAILURES} workers failed to answer")));
                }
            }
        }
    }
}
