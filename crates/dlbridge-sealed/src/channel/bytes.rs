//! An end that sends values as bytes: to another machine, and on systems where no memory is shared safely.
//! Invariant: only `flush` and `wait` wait, and they hold no lock then.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dlbridge::{DType, Error, Tensor};
use rustix::event::PollFlags;

use super::api::{End, left, lock};
use super::buffer::Buffer;
use super::connection::{BorrowedFd, Connection, OwnedFd};
use super::loan::{Buffers, Filled, Loan, Ready};
use super::message::Message;
use super::wire::{self, Entry, HEAD, Head, Kind, broken};
use crate::ALIGN;

/// How many bytes are read before it is known what they are.
const READ: usize = 16 << 10;
/// Messages that are read while this end sends: more stay in the socket.
const INBOX: usize = 256;
/// What is between two tensors of a message.
const GAP: [u8; ALIGN] = [0; ALIGN];

#[derive(Debug)]
pub(super) struct ByBytes {
    connection: Connection,
    /// The most bytes of a message, in both directions.
    limit: usize,
    reading: Mutex<Reading>,
    writing: Mutex<VecDeque<Frame>>,
}

impl ByBytes {
    pub(super) fn new(socket: OwnedFd, limit: usize) -> Self {
        let connection = Connection::new(socket);
        Self { connection, limit, reading: Mutex::default(), writing: Mutex::default() }
    }

    /// Reads what has come, until there are so many messages. An error ends the stream.
    fn read(&self, reading: &mut Reading, most: usize) {
        while reading.end.is_none() && reading.has_room(most, self.limit) {
            let end = match reading.read(&self.connection) {
                Ok(None) => return,
                Ok(Some(0)) if reading.is_between_frames() => Ok(()),
                Ok(Some(0)) => Err(broken("a frame that ends early".into())),
                Ok(Some(_)) => match reading.parse(self.limit) {
                    Ok(()) => continue,
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            reading.end = Some(end);
            (reading.bytes, reading.coming) = (Vec::new(), None);
            self.connection.close();
        }
    }

    /// Writes as much as the socket takes. Whether nothing is left.
    fn write(&self, writing: &mut VecDeque<Frame>) -> Result<bool, Error> {
        while let Some(frame) = writing.front_mut() {
            let parts: Vec<_> = frame.rest().map(IoSlice::new).collect();
            if parts.is_empty() {
                writing.pop_front();
                continue;
            }
            match self.connection.write(&parts) {
                Ok(Some(written)) => frame.written += written,
                Ok(None) => return Ok(false),
                Err(error) => {
                    writing.clear();
                    return Err(error);
                }
            }
        }
        Ok(true)
    }
}

impl End for ByBytes {
    fn shares_memory(&self) -> bool {
        false
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.connection.socket()
    }

    fn loan(
        &self,
        tensors: &[(&str, DType, &[i64])],
        _timeout: Duration,
    ) -> Result<Option<Loan>, Error> {
        Loan::by_bytes(tensors, self.limit).map(Some)
    }

    fn post(&self, message: &Ready) -> Result<(), Error> {
        let frame = Frame::new(message)?;
        let mut writing = lock(&self.writing);
        writing.push_back(frame);
        self.write(&mut writing).map(drop)
    }

    fn flush(&self, timeout: Duration) -> Result<bool, Error> {
        let end = Instant::now().checked_add(timeout);
        loop {
            let is_done = self.write(&mut lock(&self.writing))?;
            let left = left(end);
            if is_done || left.is_some_and(|left| left.is_zero()) {
                return Ok(is_done);
            }
            // The other end may wait for this one to read.
            let mut reading = lock(&self.reading);
            self.read(&mut reading, INBOX);
            let is_reading = reading.end.is_none() && reading.has_room(INBOX, self.limit);
            drop(reading);
            let input = if is_reading { PollFlags::IN } else { PollFlags::empty() };
            self.connection.wait(PollFlags::OUT | input, left)?;
        }
    }

    fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        let end = Instant::now().checked_add(timeout);
        loop {
            let is_ready = {
                let mut reading = lock(&self.reading);
                self.read(&mut reading, 1);
                !reading.inbox.is_empty() || reading.end.is_some()
            };
            let left = left(end);
            if is_ready || left.is_some_and(|left| left.is_zero()) {
                return Ok(is_ready);
            }
            self.connection.wait(PollFlags::IN, left)?;
        }
    }

    fn take(&self) -> Option<Result<Option<Message>, Error>> {
        let mut reading = lock(&self.reading);
        self.read(&mut reading, 1);
        if let Some(message) = reading.inbox.pop_front() {
            reading.nbytes -= message.nbytes();
            return Some(Ok(Some(message)));
        }
        reading.end.clone().map(|end| end.map(|()| None))
    }

    fn kept(&self) -> (usize, usize) {
        (0, 0)
    }

    fn close(&self) {
        self.connection.close();
    }
}

/// A message that the socket has not taken yet.
#[derive(Debug)]
struct Frame {
    head: [u8; HEAD],
    message: Arc<Buffers>,
    written: usize,
}

impl Frame {
    fn new(message: &Ready) -> Result<Self, Error> {
        let message = match &message.0 {
            Filled::Buffers(buffers) => Arc::clone(buffers),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Filled::Slot(held) => {
                let (description, buffers) = (held.plan.description.clone(), vec![held.copy()?]);
                Arc::new(Buffers { description, buffers })
            }
        };
        let size = message.values().map(<[u8]>::len).sum();
        let described = message.description.len();
        let head = Head { described, values: size, ..Head::new(Kind::Bytes, 0, 0) };
        Ok(Self { head: head.encode(), message, written: 0 })
    }

    /// What is still to be written.
    fn rest(&self) -> impl Iterator<Item = &[u8]> {
        let mut written = self.written;
        let parts = [&self.head[..], &self.message.description].into_iter();
        parts.chain(self.message.values()).filter_map(move |part| {
            let done = written.min(part.len());
            written -= done;
            Some(&part[done..]).filter(|rest| !rest.is_empty())
        })
    }
}

impl Buffers {
    /// The values of tensors, and the gaps between them.
    fn values(&self) -> impl Iterator<Item = &[u8]> {
        let mut end = 0_usize;
        self.buffers.iter().flat_map(move |buffer| {
            let gap = end.next_multiple_of(ALIGN) - end;
            end += gap + buffer.as_ref().len();
            [&GAP[..gap], buffer.as_ref()]
        })
    }
}

#[derive(Default, Debug)]
struct Reading {
    /// What no frame has taken yet.
    bytes: Vec<u8>,
    /// A message whose values are on their way.
    coming: Option<Coming>,
    inbox: VecDeque<Message>,
    /// The bytes of the messages in the inbox.
    nbytes: usize,
    /// Why nothing more comes: the end of the stream, or an error.
    end: Option<Result<(), Error>>,
}

impl Reading {
    fn has_room(&self, most: usize, limit: usize) -> bool {
        self.inbox.len() < most && self.nbytes <= limit
    }

    fn is_between_frames(&self) -> bool {
        self.bytes.is_empty() && self.coming.is_none()
    }

    /// The number of bytes that were read, 0 at the end of the stream; `None` if there are none yet.
    fn read(&mut self, connection: &Connection) -> Result<Option<usize>, Error> {
        if let Some(coming) = self.coming.as_mut().filter(|coming| coming.gap == 0) {
            return coming.buffer.fill_by(&mut self.bytes, |bytes| connection.read(bytes));
        }
        self.bytes.reserve(READ);
        connection.read(&mut self.bytes)
    }

    /// Takes whole messages from what was read, and the values of the next one.
    fn parse(&mut self, limit: usize) -> Result<(), Error> {
        loop {
            if let Some(mut coming) = self.coming.take() {
                if !coming.advance(&mut self.bytes)? {
                    self.coming = Some(coming);
                    return Ok(());
                }
                let message = Message::own(coming.entries, coming.tensors);
                self.nbytes += message.nbytes();
                self.inbox.push_back(message);
            }
            let Some(head) = self.bytes.first_chunk::<HEAD>() else { return Ok(()) };
            let head = Head::decode(head, true)?;
            if head.values > limit {
                let size = head.values;
                return Err(broken(format!(
                    "a message of {size} bytes, where at most {limit} are allowed"
                )));
            }
            let start = HEAD + head.described;
            let Some(description) = self.bytes.get(HEAD..start) else { return Ok(()) };
            self.coming =
                Some(Coming::new(wire::describe(description, head.values)?, head.values)?);
            self.bytes.drain(..start);
        }
    }
}

/// A message whose values are on their way.
#[derive(Debug)]
struct Coming {
    entries: Vec<Entry>,
    /// Those that are complete.
    tensors: Vec<Tensor>,
    /// How many bytes come before the next tensor.
    gap: usize,
    /// The memory of the next tensor.
    buffer: Buffer,
}

impl Coming {
    fn new(entries: Vec<Entry>, size: usize) -> Result<Self, Error> {
        let mut end = 0_usize;
        for Entry { name, offset, len, .. } in &entries {
            if *offset != end.next_multiple_of(ALIGN) {
                return Err(broken(format!(
                    "tensor {name:?} at {offset}, after one that ends at {end}"
                )));
            }
            end = offset + len;
        }
        if end != size {
            return Err(broken(format!("a message of {size} bytes with tensors of {end}")));
        }
        let buffer = Buffer::with_room(entries.first().map_or(0, |entry| entry.len))?;
        Ok(Self { entries, tensors: Vec::new(), gap: 0, buffer })
    }

    /// Takes values from `bytes`. Whether the message is complete.
    fn advance(&mut self, bytes: &mut Vec<u8>) -> Result<bool, Error> {
        while let Some(entry) = self.entries.get(self.tensors.len()) {
            let skipped = self.gap.min(bytes.len());
            bytes.drain(..skipped);
            self.gap -= skipped;
            if self.gap > 0 {
                return Ok(false);
            }
            self.buffer.fill_from(bytes);
            if self.buffer.room() > 0 {
                return Ok(false);
            }
            let buffer = std::mem::take(&mut self.buffer);
            let tensor = Tensor::builder(buffer).dtype(entry.dtype).shape(&entry.shape);
            self.tensors.push(tensor.build::<u8>()?);
            if let Some(next) = self.entries.get(self.tensors.len()) {
                self.gap = next.offset - (entry.offset + entry.len);
                self.buffer = Buffer::with_room(next.len)?;
            }
        }
        Ok(true)
    }
}
