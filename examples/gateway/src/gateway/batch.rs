//! The rows of one request, and of the requests that a worker answers together.

use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use dlbridge::{ArcTensor, DType, Parts};
use dlbridge_sealed::{Builder, Filling, SealedTensors};

use super::model::{FEATURES, ROW};
use super::queue::Request;

/// The most bytes that are copied together. A request of this size is a batch of its own.
pub(super) const BATCH: usize = 256 << 10;

/// The input of a request.
pub(super) enum Rows {
    /// A few rows, which are copied into one file with those of other requests.
    Bytes(Vec<u8>),
    /// Many rows, in a file of their own, and their size in bytes.
    Sealed(SealedTensors, usize),
}

impl Rows {
    /// Reads rows of `len` bytes. Many rows go to the file that the worker maps.
    pub(super) fn read(mut body: impl Read, len: usize, may_seal: bool) -> Result<Self> {
        if len < BATCH || !may_seal {
            let mut bytes = vec![0; len];
            body.read_exact(&mut bytes)?;
            return Ok(Self::Bytes(bytes));
        }
        let mut filling = allocate(len / ROW)?;
        filling.read_from("x", body)?;
        Ok(Self::Sealed(filling.seal()?, len))
    }

    /// The size in bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Sealed(_, len) => *len,
        }
    }
}

/// Requests that go to a worker together.
pub(super) struct Batch {
    pub requests: Vec<Request>,
    /// How many workers have failed to answer.
    pub failures: usize,
}

/// The rows of each of [`OUTPUTS`](super::model::OUTPUTS), or what the model says in their place.
pub(super) type Answer = Result<Vec<ArcTensor>, String>;

impl Batch {
    /// Several requests of [`Rows::Bytes`], or any one.
    pub(super) fn new(requests: Vec<Request>) -> Self {
        Self { requests, failures: 0 }
    }

    /// How many rows there are.
    pub(super) fn rows(&self) -> usize {
        self.requests.iter().map(|request| request.rows.len() / ROW).sum()
    }

    /// All rows as the tensor `x` in one sealed file, with an `id` that the answer repeats.
    pub(super) fn sealed(&self) -> Result<SealedTensors> {
        if let [Request { rows: Rows::Sealed(file, _), .. }] = &self.requests[..] {
            return Ok(file.try_clone()?);
        }
        let mut filling = allocate(self.rows())?;
        filling.read_from("x", &self.bytes().collect::<Vec<_>>().concat()[..])?;
        Ok(filling.seal()?)
    }

    /// The rows of each request that are in no file.
    pub(super) fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.requests.iter().filter_map(|request| match &request.rows {
            Rows::Bytes(bytes) => Some(&bytes[..]),
            Rows::Sealed(..) => None,
        })
    }

    /// Answers each request with its rows.
    pub(super) fn reply(self, answer: &Answer) {
        let mut start = 0;
        for request in self.requests {
            let end = start + request.rows.len() / ROW;
            let part = answer.as_ref().map_err(String::clone).and_then(|outputs| {
                // The same memory, counted: it is freed after the last connection has sent its rows.
                let part = outputs[request.output.index].slice(0, start..end);
                part.map_err(|error| error.to_string())
            });
            // A client that has gone needs no answer.
            let _ = request.reply.send(part);
            start = end;
        }
    }
}

fn allocate(rows: usize) -> Result<Filling> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let id = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
    let shape = [i64::try_from(rows)?, FEATURES as i64];
    Ok(Builder::new().tensor("x", DType::F32, &shape).metadata("id", id).allocate()?)
}
