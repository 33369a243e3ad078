//! Memory of this process for a tensor that travels by bytes.
//! Invariant: a buffer is in one place: with its owner, or in the tensor that fills it.

use std::sync::{Arc, Mutex, PoisonError};

use dlbridge::Error;

use crate::ALIGN;

/// Bytes that begin at a multiple of 64, with room for `len` of them.
#[derive(Default, Debug)]
pub(super) struct Buffer {
    /// Never grows beyond what was allocated, so that it stays at its place.
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Room for bytes that are read one after the other.
    pub(super) fn with_room(len: usize) -> Result<Self, Error> {
        let out_of_memory = || Error::OutOfMemory { size: len };
        let size = len.checked_add(ALIGN).ok_or_else(out_of_memory)?;
        let mut memory = Vec::<u8>::new();
        memory.try_reserve_exact(size).map_err(|_| out_of_memory())?;
        // At most `ALIGN` minus one, or `usize::MAX` where the machine cannot say.
        let start = Some(memory.as_ptr().align_offset(ALIGN)).filter(|&start| start < ALIGN);
        let start = start.unwrap_or_default();
        memory.resize(start, 0);
        Ok(Self { memory, start, len })
    }

    pub(super) fn zeroed(len: usize) -> Result<Self, Error> {
        let mut buffer = Self::with_room(len)?;
        buffer.memory.resize(buffer.start + len, 0);
        Ok(buffer)
    }

    /// How many bytes are missing.
    pub(super) fn room(&self) -> usize {
        self.start + self.len - self.memory.len()
    }

    /// Moves the first of `bytes` into it, as many as are missing.
    pub(super) fn fill_from(&mut self, bytes: &mut Vec<u8>) {
        let found = bytes.len().min(self.room());
        self.memory.extend(bytes.drain(..found));
    }

    /// Fills it by `read`, which appends. What comes beyond its end is put in `bytes`.
    pub(super) fn fill_by<T>(
        &mut self,
        bytes: &mut Vec<u8>,
        read: impl FnOnce(&mut Vec<u8>) -> T,
    ) -> T {
        let done = read(&mut self.memory);
        let end = self.start + self.len;
        if self.memory.len() > end {
            bytes.extend(self.memory.drain(end..));
        }
        done
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory[self.start..]
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..]
    }
}

/// Where a buffer is while no tensor has it.
pub(super) type Home = Arc<Mutex<Option<Buffer>>>;

/// A buffer that goes home when it is dropped.
#[derive(Debug)]
pub(super) struct Lent {
    buffer: Buffer,
    home: Home,
}

impl Lent {
    pub(super) fn new(buffer: Buffer) -> (Self, Home) {
        let home = Home::default();
        (Self { buffer, home: Arc::clone(&home) }, home)
    }
}

impl AsMut<[u8]> for Lent {
    fn as_mut(&mut self) -> &mut [u8] {
        self.buffer.as_mut()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = Some(buffer);
    }
}
