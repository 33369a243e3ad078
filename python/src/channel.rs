//! `Channel`: streams of tensors between processes, over memory that is used again (Linux), or as bytes.
//! Invariant: no call waits with the GIL held, and none longer than `TICK` without a look at signals.
#![cfg(any(unix, windows))]
#![allow(unsafe_code, reason = "borrows a descriptor by its number")]

use std::net::TcpStream;
#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
#[cfg(windows)]
use std::os::windows::io::{AsRawSocket, AsSocket, BorrowedSocket, OwnedSocket as OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dlbridge::DType;
use dlbridge_pyo3::{Error, PyTensor, Result, TensorObject};
use dlbridge_sealed::{Channel, Loan, Pool};
use pyo3::exceptions::{PyBufferError, PyEOFError, PyKeyError, PyTimeoutError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyMapping;

use crate::message::MessageObject;
use crate::sealed::{declared, entry, exception};

/// The longest time without a look at signals.
const TICK: Duration = Duration::from_millis(50);
/// The limit of the memory of an end, in bytes.
const LIMIT: usize = 256 << 20;

/// An end of a stream of tensors between two processes.
///
/// `socket` is a connected socket, of Unix or TCP, or an object with its `fileno()`. Both ends send and receive.
/// Over a Unix socket on Linux they share the memory of a message; over TCP, on other systems and if `by_bytes` is true, values
/// travel as bytes. `limit` is how many bytes this end allocates for what it sends, and the most bytes of one message; `share` another end of
/// this process that uses the same memory, for a message to several readers.
#[pyclass(frozen, weakref, name = "Channel", module = "dlbridge")]
pub(crate) struct ChannelObject(Channel, Pool);

#[pymethods]
impl ChannelObject {
    #[new]
    #[pyo3(
        signature = (socket, /, *, limit=LIMIT, share=None, by_bytes=false),
        text_signature = "(socket, /, *, limit=268435456, share=None, by_bytes=False)"
    )]
    fn new(
        socket: &Bound<'_, PyAny>,
        limit: usize,
        share: Share<'_, '_>,
        by_bytes: bool,
    ) -> Result<Self> {
        let number: i64 = socket.call_method0(intern!(socket.py(), "fileno"))?.extract()?;
        if number < 0 {
            let message = format!("socket: expected an open socket, found descriptor {number}");
            return Err(PyValueError::new_err(message).into());
        }
        Self::create(socket.py(), duplicate(number)?, limit, share, by_bytes)
    }

    /// Loan memory for tensors, a dict of names to pairs of a shape and a dtype: to be filled, then sent.
    ///
    /// Wait while the other end has all memory of this one; `TimeoutError` after `timeout` seconds. The memory has values
    /// of an earlier message.
    #[pyo3(signature = (tensors, /, *, timeout=None))]
    fn loan(
        &self,
        py: Python<'_>,
        tensors: &Bound<'_, PyMapping>,
        timeout: Option<f64>,
    ) -> Result<LoanObject> {
        let items = tensors.items()?;
        let declared: Vec<_> = items.iter().map(|item| declared(&item)).collect::<Result<_>>()?;
        let loan = Some(self.wait_for_loan(py, &declared, timeout)?);
        Ok(LoanObject(Mutex::new(Loaned { loan, tensors: Vec::new() })))
    }

    /// Send a loan that was filled, or a dict of arrays, which are copied: to the other end of this one, and of `others`
    /// that share its memory.
    ///
    /// Delete the arrays of a loan first; while one exists, this raises `BufferError`.
    #[pyo3(signature = (message, /, *others))]
    fn send(&self, message: &Bound<'_, PyAny>, others: Vec<PyRef<'_, Self>>) -> Result<()> {
        let py = message.py();
        let loan = match message.cast::<LoanObject>() {
            Ok(loan) => loan.get().take()?,
            Err(_) => self.copy(message.cast::<PyMapping>().map_err(PyErr::from)?)?,
        };
        let ready = loan.ready().map_err(exception)?;
        // To all, before one that is gone is told of.
        let ends: Vec<_> =
            [&self.0].into_iter().chain(others.iter().map(|other| &other.0)).collect();
        let sent: Vec<_> = py.detach(|| ends.iter().map(|end| end.post(&ready)).collect());
        drop(ready);
        for (end, sent) in ends.into_iter().zip(sent) {
            sent.map_err(exception)?;
            patiently(py, None, |time| end.flush(time).map(|is_done| is_done.then_some(())))?;
        }
        Ok(())
    }

    /// Wait for the next message. `EOFError` at the end of the stream, `TimeoutError` after `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> Result<MessageObject> {
        match patiently(py, timeout, |time| self.0.receive_timeout(time))? {
            Some(Some(message)) => Ok(MessageObject(message)),
            Some(None) => Err(PyEOFError::new_err("the other end of the channel is closed").into()),
            None => {
                let message = "expected a message, found none in the time; call receive() again";
                Err(PyTimeoutError::new_err(message).into())
            }
        }
    }

    /// Await the next message, in an event loop of asyncio. `EOFError` at the end of the stream.
    fn areceive<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let module = slf.py().import(intern!(slf.py(), "dlbridge._channel"))?;
        module.call_method1(intern!(slf.py(), "receive"), (slf,))
    }

    /// Whether `receive` would not wait: a message is there, or the end. Wait for it `timeout` seconds at most.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> Result<bool> {
        let is_ready = |time| self.0.wait(time).map(|is_ready| is_ready.then_some(()));
        Ok(patiently(py, timeout, is_ready)?.is_some())
    }

    /// How many messages the other end has not returned, and how many bytes of memory they keep.
    #[getter]
    fn kept(&self, py: Python<'_>) -> (usize, usize) {
        py.detach(|| self.0.kept())
    }

    /// Whether the receiver reads the memory of the sender. Otherwise values travel as bytes.
    #[getter]
    fn shares_memory(&self) -> bool {
        self.0.shares_memory()
    }

    /// The number of the socket's descriptor, which is closed with this object.
    fn fileno(&self) -> i64 {
        #[cfg(unix)]
        return self.0.as_fd().as_raw_fd().into();
        #[cfg(windows)]
        return self.0.as_socket().as_raw_socket() as i64;
    }

    /// End the stream. Messages that were received stay valid.
    fn close(&self) {
        self.0.close();
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
    fn create(
        py: Python<'_>,
        socket: OwnedFd,
        limit: usize,
        share: Share<'_, '_>,
        by_bytes: bool,
    ) -> Result<Self> {
        // Registers the class with the picklers of multiprocessing.
        py.import(intern!(py, "dlbridge._channel"))?;
        let pool = share.map_or_else(|| Pool::new(limit), |other| other.get().1.clone());
        #[cfg(unix)]
        let socket = {
            let socket = UnixStream::from(socket);
            // An error says that the socket is of another kind.
            if socket.local_addr().is_ok() {
                // Consumers in Python may ignore `readonly`.
                let channel = if by_bytes {
                    Channel::by_bytes(socket, &pool)
                } else {
                    Channel::with_pool(socket, &pool, usize::MAX, true)
                };
                return Ok(Self(channel, pool));
            }
            OwnedFd::from(socket)
        };
        #[cfg(not(unix))]
        let _ = by_bytes;
        let socket = TcpStream::from(socket);
        socket.peer_addr().map_err(PyErr::from)?;
        Ok(Self(Channel::by_bytes(socket, &pool), pool))
    }

    fn wait_for_loan(
        &self,
        py: Python<'_>,
        tensors: &[(String, DType, Vec<i64>)],
        timeout: Option<f64>,
    ) -> Result<Loan> {
        let tensors: Vec<_> =
            tensors.iter().map(|(name, dtype, shape)| (&**name, *dtype, &**shape)).collect();
        let loan = patiently(py, timeout, |time| self.0.loan_timeout(&tensors, time))?;
        let message = "expected free memory, found none in the time: the other end has all of it; receive and delete \
                       messages there, or make a channel with a larger limit";
        Ok(loan.ok_or_else(|| PyTimeoutError::new_err(message))?)
    }

    /// A loan with copies of arrays.
    fn copy(&self, arrays: &Bound<'_, PyMapping>) -> Result<Loan> {
        let items = arrays.items()?;
        let tensor = |item| {
            let (name, x) = entry(&item)?;
            Ok((name, x.extract()?))
        };
        let tensors: Vec<(String, PyTensor)> = items.iter().map(tensor).collect::<Result<_>>()?;
        let declared: Vec<_> =
            tensors.iter().map(|(name, x)| (name.clone(), x.dtype(), x.shape().to_vec())).collect();
        let mut loan = self.wait_for_loan(arrays.py(), &declared, None)?;
        for (name, tensor) in &tensors {
            loan.copy_from(name, tensor).map_err(exception)?;
        }
        Ok(loan)
    }
}

type Share<'a, 'py> = Option<&'a Bound<'py, ChannelObject>>;

/// Both ends of a stream of tensors. One goes to another process, as an argument of a `Process` or by fork.
///
/// >>> import dlbridge
/// >>> maker, reader = dlbridge.channel()
/// >>> with maker.loan({"x": (3, "int64")}) as batch:
/// ...     dlbridge.fill(batch["x"], 7)
/// ...     maker.send(batch)
/// >>> reader.receive()["x"].tolist()
/// [7, 7, 7]
#[pyfunction]
#[pyo3(
    signature = (*, limit=LIMIT, share=None, by_bytes=false),
    text_signature = "(*, limit=268435456, share=None, by_bytes=False)"
)]
pub(crate) fn channel(
    py: Python<'_>,
    limit: usize,
    share: Share<'_, '_>,
    by_bytes: bool,
) -> Result<(ChannelObject, ChannelObject)> {
    let sockets = py.import(intern!(py, "socket"))?.call_method0(intern!(py, "socketpair"))?;
    let (one, other): (Bound<'_, PyAny>, Bound<'_, PyAny>) = sockets.extract()?;
    let first = ChannelObject::new(&one, limit, share, by_bytes)?;
    let second = ChannelObject::new(&other, limit, None, by_bytes)?;
    for socket in [one, other] {
        socket.call_method0(intern!(py, "close"))?;
    }
    Ok((first, second))
}

/// The socket of a number, by a descriptor of our own.
fn duplicate(number: i64) -> PyResult<OwnedFd> {
    #[cfg(unix)]
    {
        let number = i32::try_from(number)?;
        // SAFETY: a call of the system, which refuses a number that is no descriptor (F10).
        let caller = unsafe { BorrowedFd::borrow_raw(number) };
        Ok(caller.try_clone_to_owned()?)
    }
    #[cfg(windows)]
    {
        // SAFETY: a call of the system, which refuses a number that is no socket (F10).
        let caller = unsafe { BorrowedSocket::borrow_raw(number as u64) };
        Ok(caller.try_clone_to_owned()?)
    }
}

/// Memory for the tensors of a message, writable until it is sent; `Channel.loan` makes it.
///
/// As a context manager, it returns memory that was not sent.
#[pyclass(frozen, weakref, name = "Loan", module = "dlbridge")]
pub(crate) struct LoanObject(Mutex<Loaned>);

struct Loaned {
    /// `None` once it was sent or returned.
    loan: Option<Loan>,
    /// Those that were taken out.
    tensors: Vec<(String, TensorObject)>,
}

#[pymethods]
impl LoanObject {
    /// A tensor to be filled.
    fn __getitem__(&self, name: &str) -> Result<TensorObject> {
        let mut loaned = self.lock();
        if let Some((_, tensor)) = loaned.tensors.iter().find(|(one, _)| one == name) {
            return Ok(tensor.another());
        }
        let loan = loaned.loan.as_mut().ok_or_else(gone)?;
        let tensor = TensorObject::new(loan.tensor(name).map_err(unknown)?);
        loaned.tensors.push((name.to_owned(), tensor.another()));
        Ok(tensor)
    }

    /// The names of the tensors.
    fn keys(&self) -> Result<Vec<String>> {
        let loaned = self.lock();
        let loan = loaned.loan.as_ref().ok_or_else(gone)?;
        Ok(loan.names().map(str::to_owned).collect())
    }

    fn __enter__<'py>(slf: Bound<'py, Self>) -> Bound<'py, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyAny>) {
        let mut loaned = self.lock();
        let given = (std::mem::take(&mut loaned.tensors), loaned.loan.take());
        drop(loaned);
        drop(given);
    }
}

impl LoanObject {
    fn lock(&self) -> MutexGuard<'_, Loaned> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loan, if nothing can fill it any more.
    fn take(&self) -> Result<Loan> {
        let mut loaned = self.lock();
        let given = std::mem::take(&mut loaned.tensors);
        drop(given);
        let alive = loaned.loan.as_ref().ok_or_else(gone)?.alive();
        if alive > 0 {
            let message = format!(
                "expected no tensor that can still be filled, found {alive}: delete them and the \
                 arrays made of them (del x), then call send() again"
            );
            return Err(PyBufferError::new_err(message).into());
        }
        loaned.loan.take().ok_or_else(|| gone().into())
    }
}

/// Calls a function that waits for the time that it is given, until it has a result: `None` after `timeout` seconds.
/// The GIL is released meanwhile, and signals are looked at.
pub(crate) fn patiently<T: Send>(
    py: Python<'_>,
    timeout: Option<f64>,
    call: impl Fn(Duration) -> std::result::Result<Option<T>, dlbridge::Error> + Sync,
) -> Result<Option<T>> {
    let seconds = timeout.map(Duration::try_from_secs_f64).transpose();
    let seconds = seconds.map_err(|error| PyValueError::new_err(format!("timeout: {error}")))?;
    let end = seconds.and_then(|seconds| Instant::now().checked_add(seconds));
    loop {
        let left = end.map_or(TICK, |end| end.saturating_duration_since(Instant::now()));
        let found = py.detach(|| call(left.min(TICK))).map_err(exception)?;
        if found.is_some() || left.is_zero() {
            return Ok(found);
        }
        py.check_signals()?;
    }
}

fn gone() -> PyErr {
    PyValueError::new_err("expected a loan, found one that was sent or returned; call loan() again")
}

pub(crate) fn unknown(error: dlbridge::Error) -> Error {
    match error {
        dlbridge::Error::UnknownName { name, .. } => Error::Python(PyKeyError::new_err(name)),
        error => exception(error),
    }
}
