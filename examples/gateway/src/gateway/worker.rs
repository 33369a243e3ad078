//! Workers in Python, and the threads that feed them.
//!
//! A worker is a process with one end of a nameless Unix socket as its standard input. A batch goes
//! there as a sealed file, and the answer comes back as another one. Nothing of a worker is trusted:
//! its answer is validated, and a worker that dies, is late or answers something else is replaced.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};
use dlbridge_sealed::SealedTensors;

use super::Options;
use super::batch::{Answer, Batch};
use super::bytes;
use super::model::OUTPUTS;
use super::queue::{Next, Queue};

/// How often a worker without work is looked after, and how long to wait before a start that may fail
/// again.
const PAUSE: Duration = Duration::from_secs(1);
/// So many workers may fail to answer a batch.
const FAILURES: usize = 2;

/// A process that runs the model.
struct Worker {
    child: Child,
    socket: UnixStream,
    sends_bytes: bool,
}

impl Worker {
    /// Starts a process and waits until it has loaded the model.
    fn start(options: &Options) -> Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_read_timeout(Some(Duration::from_secs(options.patience)))?;
        let sends_bytes = options.bytes;
        let child = Command::new(&options.python)
            .arg(&options.worker)
            .args(sends_bytes.then_some("--bytes"))
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", options.python.display()))?;
        let worker = Self { child, socket, sends_bytes };
        let ready = SealedTensors::receive(&worker.socket).context("a worker that starts")?;
        let runtime = ready.metadata().get("ready").context("a worker that is not ready")?;
        eprintln!("worker {} runs {runtime:?}", worker.child.id());
        Ok(worker)
    }

    /// Asks for the outputs of a batch. After an error, the worker is of no use any more.
    fn ask(&mut self, batch: &Batch) -> Result<Answer> {
        if self.sends_bytes {
            return bytes::ask(&self.socket, batch);
        }
        let question = batch.sealed()?;
        question.send(&self.socket)?;
        let answer = SealedTensors::receive(&self.socket)?;
        let ids = [&question, &answer].map(|file| file.metadata().get("id"));
        ensure!(ids[0] == ids[1], "expected the answer to batch {:?}, found {:?}", ids[0], ids[1]);
        if let Some(error) = answer.metadata().get("error") {
            return Ok(Err(error.clone()));
        }
        let outputs = OUTPUTS.iter().map(|output| {
            let (tensor, shape) = (answer.tensor(output.name)?, output.shape(batch.rows()));
            ensure!(
                tensor.dtype() == output.dtype && tensor.shape() == shape,
                "{}: expected {}{shape:?}, found {}{:?}",
                output.name,
                output.dtype,
                tensor.dtype(),
                tensor.shape()
            );
            Ok(tensor.into_frozen())
        });
        outputs.collect::<Result<_>>().map(Ok)
    }

    fn is_alive(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_none())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // All that it holds is freed by the kernel, at any moment.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Feeds one worker until the queue is closed, and replaces it when it fails.
pub(super) fn supervise(queue: &Queue, options: &Options, failed: Sender<Error>) {
    let mut worker = match Worker::start(options) {
        Ok(worker) => Some(worker),
        Err(error) => return drop(failed.send(error)),
    };
    // So far, this one has not.
    drop(failed);
    loop {
        // A dead one is dropped before a new one starts.
        worker.take_if(|worker| !worker.is_alive());
        let Some(living) = &mut worker else {
            match Worker::start(options) {
                Ok(new) => worker = Some(new),
                Err(_) if queue.is_closed() => return,
                Err(error) => {
                    eprintln!("no worker: {error:#}");
                    thread::sleep(PAUSE);
                }
            }
            continue;
        };
        let mut batch = match queue.next(PAUSE) {
            Next::Batch(batch) => batch,
            Next::Idle => continue,
            Next::Closed => return,
        };
        match living.ask(&batch) {
            Ok(answer) => batch.reply(&answer),
            Err(error) => {
                eprintln!("worker {} is replaced: {error:#}", living.child.id());
                worker = None;
                batch.failures += 1;
                if batch.failures < FAILURES {
                    queue.put_back(batch);
                } else {
                    batch.reply(&Err(format!("{FAILURES} workers failed to answer")));
                }
            }
        }
    }
}
