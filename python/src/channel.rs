//! `Channel`: streams of tensors between processes, over memory that is used again (Linux).
//! Invariant: no call waits with the GIL held, and none for long without a look at signals.
#![allow(unsafe_code, reason = "borrows a descriptor by its number")]

use dlbridge_pyo3::error_of;
use std::collections::BTreeMap;
#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlbridge::{DType, Tensor};
use dlbridge_pyo3::{PyTensor, Result};
use dlbridge_sealed::{Channel, Loan, Pool, WaitError};
use pyo3::exceptions::{PyBufferError, PyEOFError, PyTimeoutError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;

use crate::arguments::Items;
use crate::message::{LoanObject, MessageObject, Outbound};
use crate::sealed::{declared, entry, supported};
use crate::timer::{Timer, exception};

/// The limit of the memory of an end, in bytes.
const LIMIT: usize = 256 << 20;

/// An end of a stream of tensors between two processes of one machine.
///
/// `socket` is a connected Unix socket, or an object with its `fileno()`. Both ends send and receive, and share the memory of
/// messages. `limit` is how many bytes this end allocates for what it sends; `quota` how many of them the other end may keep
/// before `send` fails; `share` another end of this process that uses the same memory, for a message to several readers.
///
/// An end belongs to the process that uses it first. As an iterator, it ends with the stream. On systems other than Linux, this
/// raises `OSError`.
#[pyclass(frozen, weakref, name = "Channel", module = "dlbridge")]
pub(crate) struct ChannelObject {
    /// `None` once it was closed.
    channel: Mutex<Option<Channel>>,
    pool: Pool,
}

#[pymethods]
impl ChannelObject {
    #[new]
    #[pyo3(
        signature = (socket, /, *, limit=LIMIT, quota=None, share=None),
        text_signature = "(socket, /, *, limit=268435456, quota=None, share=None)"
    )]
    fn new(
        socket: &Bound<'_, PyAny>,
        limit: usize,
        quota: Option<usize>,
        share: Share<'_, '_>,
    ) -> Result<Self> {
        supported()?;
        let py = socket.py();
        // Registers the class with the picklers of multiprocessing.
        py.import(intern!(py, "dlbridge._channel"))?;
        let number: i64 = socket.call_method0(intern!(py, "fileno"))?.extract()?;
        let pool = share.map_or_else(|| Pool::new(limit), |other| other.get().pool.clone());
        let channel = open(number, &pool, quota.unwrap_or(usize::MAX))?;
        Ok(Self { channel: Mutex::new(Some(channel)), pool })
    }

    /// Loan memory for tensors, a dict of names to pairs of a shape and a dtype: to be filled, then sent.
    ///
    /// Wait while the other end, or loans that were not sent, have all memory of this one; `TimeoutError` after `timeout`
    /// seconds, `BufferError` where only the thread that waits could free it. The memory has values of an earlier message.
    #[pyo3(signature = (tensors, /, *, timeout=None))]
    fn loan(&self, py: Python<'_>, tensors: Items<'_>, timeout: Option<f64>) -> Result<LoanObject> {
        let declared: Vec<_> = tensors.0.iter().map(declared).collect::<Result<_>>()?;
        let loan = self.wait_for_loan(py, &declared, Timer::new(timeout)?)?;
        Ok(LoanObject::new(loan))
    }

    /// Send a filled loan, or copies of a dict of arrays, to the other end, and to those of `others`, which share the memory
    /// of this one. `metadata` is a dict of str beside the tensors.
    ///
    /// Delete the arrays of a loan first; while one exists, this raises `BufferError`. Wait while the other end does not read;
    /// `TimeoutError` after `timeout` seconds, if an end was sent nothing of the message. The loan can be sent again: ends
    /// that have it are left out.
    #[pyo3(signature = (message, /, *others, timeout=None, metadata=None))]
    fn send(
        &self,
        message: &Bound<'_, PyAny>,
        others: Vec<PyRef<'_, Self>>,
        timeout: Option<f64>,
        metadata: Option<BTreeMap<String, String>>,
    ) -> Result<()> {
        let (py, timer) = (message.py(), Timer::new(timeout)?);
        let ends = [self].into_iter().chain(others.iter().map(|other| &**other));
        let ends: Vec<Channel> = ends.map(Self::channel).collect::<Result<_>>()?;
        let Ok(loan) = message.cast::<LoanObject>() else {
            let arrays = message.extract::<Items<'_>>()?;
            return Outbound::new(self.copy(py, &arrays, timer)?)?.send(py, &ends, metadata, timer);
        };
        let mut outbound = loan.get().take()?;
        let sent = outbound.send(py, &ends, metadata, timer);
        if sent.is_err() {
            loan.get().put_back(outbound);
        }
        sent
    }

    /// Wait for the next message. `EOFError` at the end of the stream, `TimeoutError` after `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> Result<MessageObject> {
        let end = || error_of::<PyEOFError>("the other end of the channel is closed");
        Ok(self.next(py, timeout)?.ok_or_else(end)?)
    }

    /// Await the next message, in an event loop of asyncio. `EOFError` at the end of the stream.
    fn areceive<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let module = slf.py().import(intern!(slf.py(), "dlbridge._channel"))?;
        module.call_method1(intern!(slf.py(), "receive"), (slf,))
    }

    /// Whether `receive` would not wait: a message is there, or the end. Wait for it `timeout` seconds at most.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> Result<bool> {
        let channel = self.channel()?;
        let is_ready = |time| match channel.wait(time)? {
            true => Ok(()),
            false => Err(WaitError::Timeout),
        };
        Ok(Timer::new(timeout)?.try_wait(py, is_ready)?.is_some())
    }

    /// How many messages the other end has not returned, and how many bytes of memory they keep.
    #[getter]
    fn kept(&self, py: Python<'_>) -> Result<(usize, usize)> {
        let channel = self.channel()?;
        Ok(py.detach(|| channel.kept()))
    }

    /// The number of the socket's descriptor, which is closed with this object.
    #[cfg(unix)]
    fn fileno(&self) -> Result<i32> {
        Ok(self.channel()?.as_fd().as_raw_fd())
    }

    /// Close this end. The stream ends if this process has used it, or if no other process has a copy of this end. Messages
    /// that were received stay valid.
    fn close(&self) {
        let channel = self.lock().take();
        if let Some(channel) = channel {
            channel.close();
        }
    }

    fn __iter__<'py>(slf: Bound<'py, Self>) -> Bound<'py, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> Result<Option<MessageObject>> {
        self.next(py, None)
    }

    fn __enter__<'py>(slf: Bound<'py, Self>) -> Bound<'py, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyAny>) {
        self.close();
    }
}

impl ChannelObject {
    fn lock(&self) -> MutexGuard<'_, Option<Channel>> {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn channel(&self) -> Result<Channel> {
        let closed =
            || error_of::<PyValueError>("expected an open channel, found one that was closed here");
        Ok(self.lock().clone().ok_or_else(closed)?)
    }

    /// The next message; `None` at the end of the stream.
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> Result<Option<MessageObject>> {
        let channel = self.channel()?;
        let late = "expected a message, found none in the time; call receive() again";
        let message = Timer::new(timeout)?.wait(py, late, |time| channel.receive_timeout(time))?;
        Ok(message.map(MessageObject))
    }

    fn wait_for_loan(
        &self,
        py: Python<'_>,
        tensors: &[(String, DType, Vec<i64>)],
        timer: Timer,
    ) -> Result<Loan> {
        let channel = self.channel()?;
        let tensors: Vec<_> =
            tensors.iter().map(|(name, dtype, shape)| (&**name, *dtype, &**shape)).collect();
        let loan = |time| channel.loan_timeout(&tensors, time);
        if let Ok(loan) = py.detach(|| loan(Duration::ZERO)) {
            return Ok(loan);
        }
        let is_alone = timer.is_endless() && is_only_thread(py)?;
        let call = |time| match loan(time) {
            // Neither another end nor another thread can free memory.
            Err(WaitError::Timeout) if is_alone && self.pool.kept().0 == 0 => Ok(None),
            loan => loan.map(Some),
        };
        let found = timer.try_wait(py, call)?;
        let late = found.is_none();
        if let Some(loan) = found.flatten() {
            return Ok(loan);
        }
        let (there, here) = py.detach(|| self.pool.kept());
        let text = format!(
            "expected free memory, found {there} messages that other ends have and {here} that this process has loaned and \
             not sent; receive and delete messages there, send or delete loans here, or make a channel with a larger limit"
        );
        let error =
            if late { error_of::<PyTimeoutError>(text) } else { error_of::<PyBufferError>(text) };
        Err(error.into())
    }

    /// A loan with copies of arrays.
    fn copy(&self, py: Python<'_>, arrays: &Items<'_>, timer: Timer) -> Result<Loan> {
        let tensor = |item| {
            let (name, x) = entry(item)?;
            Ok((name, x.extract()?))
        };
        let tensors: Vec<(String, PyTensor)> =
            arrays.0.iter().map(tensor).collect::<Result<_>>()?;
        let declared: Vec<_> =
            tensors.iter().map(|(name, x)| (name.clone(), x.dtype(), x.shape().to_vec())).collect();
        let mut loan = self.wait_for_loan(py, &declared, timer)?;
        for (name, tensor) in &tensors {
            let tensor: &Tensor = tensor;
            py.detach(|| loan.copy_from(name, tensor)).map_err(exception)?;
        }
        Ok(loan)
    }
}

/// Whether no thread of Python but this one can run.
fn is_only_thread(py: Python<'_>) -> PyResult<bool> {
    let threads = py.import(intern!(py, "threading"))?;
    let count: usize = threads.call_method0(intern!(py, "active_count"))?.extract()?;
    let main = threads.call_method0(intern!(py, "main_thread"))?.getattr(intern!(py, "ident"))?;
    Ok(count == 1 && main.eq(threads.call_method0(intern!(py, "get_ident"))?)?)
}

type Share<'a, 'py> = Option<&'a Bound<'py, ChannelObject>>;

/// Both ends of a stream of tensors. One goes to another process, as an argument of a `Process` or by fork.
///
/// >>> import dlbridge
/// >>> maker, reader = dlbridge.channel()
/// >>> with maker.loan({"x": (3, "int64")}) as batch:
/// ...     batch["x"].numpy()[:] = 7
/// ...     maker.send(batch)
/// >>> reader.receive()["x"].tolist()
/// [7, 7, 7]
#[pyfunction]
#[pyo3(
    signature = (*, limit=LIMIT, quota=None, share=None),
    text_signature = "(*, limit=268435456, quota=None, share=None)"
)]
pub(crate) fn channel(
    py: Python<'_>,
    limit: usize,
    quota: Option<usize>,
    share: Share<'_, '_>,
) -> Result<(ChannelObject, ChannelObject)> {
    supported()?;
    let sockets = py.import(intern!(py, "socket"))?.call_method0(intern!(py, "socketpair"))?;
    let (one, other): (Bound<'_, PyAny>, Bound<'_, PyAny>) = sockets.extract()?;
    let first = ChannelObject::new(&one, limit, quota, share)?;
    let second = ChannelObject::new(&other, limit, quota, None)?;
    for socket in [one, other] {
        socket.call_method0(intern!(py, "close"))?;
    }
    Ok((first, second))
}

/// A channel over the socket of a number, by a descriptor of our own.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn open(number: i64, pool: &Pool, quota: usize) -> Result<Channel> {
    use std::os::fd::BorrowedFd;
    use std::os::unix::net::UnixStream;

    if number < 0 {
        let message = format!("socket: expected an open socket, found descriptor {number}");
        return Err(error_of::<PyValueError>(message).into());
    }
    let number = i32::try_from(number).map_err(PyErr::from)?;
    // SAFETY: a call of the system, which refuses a number that is no descriptor (F10).
    let caller = unsafe { BorrowedFd::borrow_raw(number) };
    let socket = UnixStream::from(caller.try_clone_to_owned().map_err(PyErr::from)?);
    // An error says that the socket is of another kind.
    socket.local_addr().map_err(|_| {
        error_of::<PyValueError>("socket: expected a Unix socket, found another kind; send arrays to other machines by Ray or Dask")
    })?;
    // Consumers in Python may ignore `readonly`.
    Ok(Channel::with_pool(socket, pool, quota, true))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn open(_number: i64, _pool: &Pool, _quota: usize) -> Result<Channel> {
    Ok(Channel::pair().map_err(exception)?.0)
}
