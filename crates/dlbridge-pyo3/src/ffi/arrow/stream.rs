//! A column that comes in chunks, from the capsule that `__arrow_c_stream__` returned.
//! Invariant: the stream is moved out of its capsule, so that one thread uses it; it and each array
//! are released once.

use std::ffi::{CStr, c_int};
use std::ptr;

use dlbridge::Tensor;
use pyo3::prelude::*;

use super::column::{ColumnType, Unparsed};
use super::{Array, ArrowArray, ArrowArrayStream, ArrowSchema, Owned, Schema, content};
use crate::ffi::memory::ForeignMemory;
use crate::ffi::versions::with_critical_section;
use crate::release::Owner;
use crate::{Error, Result};

/// The method of an object with chunks, for messages.
const STREAM: &str = "__arrow_c_stream__";

/// A stream, and the type of its chunks.
pub(crate) struct Chunks {
    stream: Owned<ArrowArrayStream>,
    column: ColumnType,
}

impl Chunks {
    /// Moves a stream out of its capsule.
    pub(crate) fn open(capsule: &Bound<'_, PyAny>) -> Result<Self> {
        let py = capsule.py();
        let mut stream = with_critical_section(capsule, || {
            let place = content::<ArrowArrayStream>(capsule)?;
            // SAFETY: a capsule of this name holds this struct, guarded from other threads (F4).
            Ok::<_, Error>(unsafe { Owned::take(place) })
        })?;
        if !stream.is_live() {
            let message = format!("{STREAM}: expected a live stream, found a released one");
            return Err(Error::buffer(message));
        }
        let mut schema = Owned::<ArrowSchema>::empty();
        let place = schema.as_mut_ptr();
        let get_schema = stream.get().get_schema;
        call(py, &mut stream, |stream| {
            // SAFETY: a live stream, used by this thread alone, and a place for the schema (F5).
            get_schema.map(|get_schema| unsafe { get_schema(stream, place) })
        })?;
        // SAFETY: filled in by the stream, and owned here (F8).
        let column = Unparsed::read(STREAM, unsafe { Schema::at(schema.get()) })?.parse(py)?;
        Ok(Self { stream, column })
    }

    /// The next chunk that has values.
    pub(crate) fn next(&mut self, py: Python<'_>) -> Result<Option<Chunk>> {
        loop {
            let mut array = Owned::<ArrowArray>::empty();
            let place = array.as_mut_ptr();
            let get_next = self.stream.get().get_next;
            call(py, &mut self.stream, |stream| {
                // SAFETY: as for the schema (F5).
                get_next.map(|get_next| unsafe { get_next(stream, place) })
            })?;
            if !array.is_live() {
                return Ok(None);
            }
            // SAFETY: filled in by the stream, and owned here (F8).
            let memory = self.column.memory(STREAM, unsafe { Array::at(array.get()) })?;
            if memory.shape[0] != 0 {
                return Ok(Some(Chunk { array, memory }));
            }
        }
    }

    /// The tensor of a column without values.
    pub(crate) fn empty(&self) -> Result<Tensor> {
        Ok(Tensor::zeros(self.column.dtype, &self.column.shape_of(0))?)
    }
}

/// A part of a column, and where its values are.
pub(crate) struct Chunk {
    array: Owned<ArrowArray>,
    memory: ForeignMemory,
}

impl Chunk {
    /// A tensor over the values.
    pub(crate) fn tensor(self) -> Result<Tensor> {
        // SAFETY: the values are there until the array is released (SAFETY.md, T3).
        unsafe { self.memory.tensor(Owner::new(self.array)) }
    }

    /// A copy of the values of chunks.
    pub(crate) fn joined(chunks: &[Self]) -> Result<Tensor> {
        let first = &chunks[0].memory;
        let rows =
            chunks.iter().try_fold(0_i64, |rows, chunk| rows.checked_add(chunk.memory.shape[0]));
        let (Some(rows), None) = (rows, &first.strides) else {
            return Err(Error::buffer(format!(
                "{STREAM}: expected chunks of rows in the order of their memory; join them first: \
                 x.combine_chunks() in pyarrow"
            )));
        };
        let mut shape = first.shape.clone();
        shape[0] = rows;
        let copy = Tensor::zeros(first.dtype, &shape)?;
        let mut offset = 0;
        for Self { memory: chunk, .. } in chunks {
            let size = chunk.reach()?.above;
            if size == 0 {
                continue;
            }
            if chunk.data.is_null() {
                return Err(Error::buffer("buffers: expected the address of values, found null"));
            }
            let target = copy.data_ptr().cast::<u8>().wrapping_add(offset);
            // SAFETY: the chunk is contiguous, and so many bytes long (SAFETY.md, T3); the copy is new, and as
            // long as all chunks together, since each chunk has the rows that were added up (R1).
            unsafe { ptr::copy_nonoverlapping(chunk.data.cast::<u8>(), target, size) };
            offset += size;
        }
        Ok(copy)
    }
}

/// Calls a function of a stream, detached, since its threads may need the GIL (DuckDB runs a query).
fn call(
    py: Python<'_>,
    stream: &mut Owned<ArrowArrayStream>,
    function: impl FnOnce(*mut ArrowArrayStream) -> Option<c_int>,
) -> Result<()> {
    struct Detached<T>(T);
    // SAFETY: a struct of Arrow may be used by any thread, and the one that detaches goes on with it
    // (R9).
    unsafe impl<T> Send for Detached<T> {}

    let place = stream.as_mut_ptr();
    let work = Detached((function, place));
    let status = py.detach(move || {
        let Detached((function, place)) = { work };
        function(place)
    });
    let status = match status {
        Some(0) => return Ok(()),
        Some(status) => format!("error {status}"),
        None => "no function".to_owned(),
    };
    let get_last_error = stream.get().get_last_error;
    // SAFETY: a live stream whose last call failed (F5).
    let text = get_last_error.map(|get_last_error| unsafe { get_last_error(place) });
    let reason = match text {
        // SAFETY: NUL-terminated, and valid until the next call of the stream (F8).
        Some(text) if !text.is_null() => unsafe { CStr::from_ptr(text) }.to_string_lossy(),
        _ => "it gave no reason".into(),
    };
    Err(Error::buffer(format!("{STREAM}: expected a chunk, found {status}: {reason}")))
}
