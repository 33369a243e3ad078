//! Messages of a channel: loans that are filled and sent, and what was received (Linux).

use dlbridge_pyo3::error_of;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlbridge_pyo3::{Error, Result, TensorObject};
use dlbridge_sealed::{Channel, Loan, Message, Ready, WaitError};
use pyo3::exceptions::{PyBufferError, PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList};

use crate::sealed::dict;
use crate::timer::{Timer, exception};

/// Memory for the tensors of a message, writable until it is sent; `Channel.loan` makes it.
///
/// As a context manager, it returns memory that was not sent.
#[pyclass(frozen, weakref, name = "Loan", module = "dlbridge")]
pub(crate) struct LoanObject(Mutex<Loaned>);

struct Loaned {
    state: State,
    /// Those that were taken out.
    tensors: Vec<(String, TensorObject)>,
}

enum State {
    Filled(Loan),
    /// At least one end has not taken it.
    Ready(Outbound),
    /// It was sent or returned.
    Gone,
}

impl Loaned {
    /// The loan, to be filled.
    fn loan(&mut self) -> Result<&mut Loan> {
        match &mut self.state {
            State::Filled(loan) => Ok(loan),
            State::Ready(_) => Err(error_of::<PyValueError>(
                "expected a loan to fill, found one that is being sent; call send() again, or leave `with`",
            )
            .into()),
            State::Gone => Err(gone().into()),
        }
    }
}

/// A message, and the ends that took it.
pub(crate) struct Outbound {
    ready: Ready,
    taken: Vec<Channel>,
}

impl Outbound {
    pub(crate) fn new(loan: Loan) -> Result<Self> {
        Ok(Self { ready: loan.ready().map_err(exception)?, taken: Vec::new() })
    }

    /// Sends the message to all that read, before one that does not is waited for or told of.
    pub(crate) fn send(
        &mut self,
        py: Python<'_>,
        ends: &[Channel],
        metadata: Option<BTreeMap<String, String>>,
        timer: Timer,
    ) -> Result<()> {
        if let Some(metadata) = metadata {
            self.ready = self.ready.with_metadata(&metadata).map_err(exception)?;
        }
        let Self { ready, taken } = self;
        let ends: Vec<_> = ends.iter().filter(|end| !taken.contains(end)).collect();
        let send = |end: &&Channel| end.send_timeout(ready, Duration::ZERO);
        let sent: Vec<_> = py.detach(|| ends.iter().map(send).collect());
        let late = "expected an end that reads, found one that took nothing in the time; send it again, or close the channel";
        // An end that is gone is told of when the others have the message.
        let mut first = Ok(());
        for (end, sent) in ends.into_iter().zip(sent) {
            let sent = match sent {
                Err(WaitError::Timeout) => {
                    timer.wait(py, late, |time| end.send_timeout(ready, time))
                }
                sent => sent.map_err(|error| exception(error.into())),
            };
            let sent = sent.and_then(|()| {
                taken.push(end.clone());
                // The socket may have it in part. When the time is over, the rest leaves with the next call.
                let flush = |time| match end.flush_timeout(time) {
                    Err(WaitError::Stalled(_)) => Ok(()),
                    flushed => flushed,
                };
                timer.try_wait(py, flush).map(drop)
            });
            first = first.and(sent);
        }
        first
    }
}

#[pymethods]
impl LoanObject {
    /// A tensor to be filled.
    fn __getitem__(&self, name: &str) -> Result<TensorObject> {
        let mut loaned = self.lock();
        if let Some((_, tensor)) = loaned.tensors.iter().find(|(one, _)| one == name) {
            return Ok(tensor.another());
        }
        let tensor = TensorObject::new(loaned.loan()?.tensor(name).map_err(unknown)?);
        loaned.tensors.push((name.to_owned(), tensor.another()));
        Ok(tensor)
    }

    /// The names of the tensors.
    fn keys(&self) -> Result<Vec<String>> {
        Ok(self.lock().loan()?.names().map(str::to_owned).collect())
    }

    fn __enter__<'py>(slf: Bound<'py, Self>) -> Bound<'py, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyAny>) {
        let mut loaned = self.lock();
        let tensors = std::mem::take(&mut loaned.tensors);
        let state = std::mem::replace(&mut loaned.state, State::Gone);
        drop(loaned);
        drop((tensors, state));
    }
}

impl LoanObject {
    pub(crate) fn new(loan: Loan) -> Self {
        Self(Mutex::new(Loaned { state: State::Filled(loan), tensors: Vec::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, Loaned> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message that not all ends took.
    pub(crate) fn put_back(&self, outbound: Outbound) {
        self.lock().state = State::Ready(outbound);
    }

    /// The message, if nothing can fill it any more. It is gone until it is put back.
    pub(crate) fn take(&self) -> Result<Outbound> {
        let mut loaned = self.lock();
        loaned.tensors.clear();
        let alive = if let State::Filled(loan) = &loaned.state { loan.alive() } else { 0 };
        if alive > 0 {
            let message = format!(
                "expected no tensor that can still be filled, found {alive}: delete them and the \
                 arrays made of them (del x), then call send() again"
            );
            return Err(error_of::<PyBufferError>(message).into());
        }
        match std::mem::replace(&mut loaned.state, State::Gone) {
            State::Filled(loan) => Outbound::new(loan),
            State::Ready(outbound) => Ok(outbound),
            State::Gone => Err(gone().into()),
        }
    }
}

/// Tensors that another process sent. Shared memory is used again when this object and all arrays made of it are
/// deleted.
///
/// For values that outlive the stream, `dlbridge.seal(message.tensors())` copies them into a sealed file.
#[pyclass(frozen, weakref, name = "Message", module = "dlbridge")]
pub(crate) struct MessageObject(pub(crate) Message);

#[pymethods]
impl MessageObject {
    /// A tensor over the memory of the message, read-only. A write through PyTorch, which ignores that, goes to
    /// a copy of the page.
    fn __getitem__(&self, name: &str) -> Result<TensorObject> {
        Ok(TensorObject::new(self.0.tensor(name).map_err(unknown)?))
    }

    /// A writable copy of a tensor, in memory of its own.
    fn copy(&self, py: Python<'_>, name: &str) -> Result<TensorObject> {
        Ok(TensorObject::new(py.detach(|| self.0.to_owned(name)).map_err(unknown)?))
    }

    /// The tensors by their names.
    fn tensors<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        dict(py, self.0.names().map(|name| Ok((name, self.0.tensor(name).map_err(unknown)?))))
    }

    /// The names of the tensors.
    fn keys(&self) -> Vec<&str> {
        self.0.names().collect()
    }

    /// The metadata, a dict of str.
    #[getter]
    fn metadata(&self) -> BTreeMap<String, String> {
        self.0.metadata().clone()
    }

    /// The size of all tensors in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.nbytes()
    }

    fn __len__(&self) -> usize {
        self.0.names().len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.0.names())?.try_iter()
    }
}

fn gone() -> PyErr {
    error_of::<PyValueError>(
        "expected a loan, found one that was sent or returned; call loan() again",
    )
}

fn unknown(error: dlbridge::Error) -> Error {
    match error {
        dlbridge::Error::UnknownName { name, .. } => Error::from(error_of::<PyKeyError>(name)),
        error => exception(error),
    }
}
