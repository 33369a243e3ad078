//! From capsules to tensors: one array, or a column that comes in chunks.
//! Invariant: an array and a stream are moved out of their capsules, so that one thread uses each; each
//! is released once.

use std::ptr;

use dlbridge::Tensor;
use pyo3::prelude::*;

use super::column::{ColumnType, Unparsed};
use super::{Array, ArrowArray, ArrowArrayStream, ArrowSchema, Owned, STREAM, Schema, content};
use crate::ffi::memory::ForeignMemory;
use crate::release::Owner;
use crate::{Error, Result};

/// Imports the values of the capsules that the method `name` returned: numbers without nulls, read-only,
/// since arrays are immutable; and whether they are the column of a table.
pub(crate) fn import(
    name: &str,
    schema: &Bound<'_, PyAny>,
    array: &Bound<'_, PyAny>,
) -> Result<(Tensor, bool)> {
    let place = content::<ArrowSchema>(schema)?;
    content::<ArrowArray>(array)?;
    // SAFETY: a capsule of this name holds this struct, which is not freed while the capsule lives (F4);
    // no Python code runs while it is read.
    let column = Unparsed::read(name, Schema(unsafe { &*place }))?.parse(schema.py())?;
    let array = Owned::<ArrowArray>::of(array)?;
    let memory = column.memory(name, Array(&array.0))?;
    Ok((Chunk { array, memory }.tensor()?, column.is_of_table()))
}

/// An array, and where its values are.
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

    /// Copies the values, which are contiguous, to the start of other memory.
    ///
    /// # Panics
    ///
    /// If it is smaller.
    fn copy_to(&self, target: &mut [u8]) -> Result<usize> {
        let (size, data) = (self.memory.reach()?.above, self.memory.data());
        if size != 0 && data.is_null() {
            return Err(Error::buffer("buffers: expected the address of values, found null"));
        }
        if let Some(target) = target[..size].first_mut() {
            // SAFETY: contiguous, and so many bytes long (SAFETY.md, T3); as many of the target.
            unsafe { ptr::copy_nonoverlapping(data.cast(), ptr::from_mut(target), size) };
        }
        Ok(size)
    }
}

/// A stream, and the type of its chunks.
pub(crate) struct Chunks {
    stream: Owned<ArrowArrayStream>,
    column: ColumnType,
}

impl Chunks {
    /// Moves a stream out of its capsule.
    pub(crate) fn open(capsule: &Bound<'_, PyAny>) -> Result<Self> {
        let py = capsule.py();
        let mut stream = Owned::<ArrowArrayStream>::of(capsule)?;
        let schema = stream.filled(py, stream.0.get_schema)?;
        let column = Unparsed::read(STREAM, Schema(&schema.0))?.parse(py)?;
        Ok(Self { stream, column })
    }

    /// The next chunk that has values. Signals are handled before each chunk: the producer may be a query of minutes.
    pub(crate) fn next(&mut self, py: Python<'_>) -> Result<Option<Chunk>> {
        loop {
            py.check_signals()?;
            let mut array = self.stream.filled(py, self.stream.0.get_next)?;
            if !array.is_live() {
                return Ok(None);
            }
            let memory = self.column.memory(STREAM, Array(&array.0))?;
            if memory.shape[0] != 0 {
                return Ok(Some(Chunk { array, memory }));
            }
        }
    }

    /// Whether the chunks are of a table, not of a column.
    pub(crate) fn are_of_table(&self) -> bool {
        self.column.is_of_table()
    }

    /// The tensor of a column without values.
    pub(crate) fn empty(&self) -> Result<Tensor> {
        Ok(Tensor::zeros(self.column.dtype, self.column.shape_of(0))?)
    }
}

impl Chunk {
    /// A copy of the values of chunks.
    pub(crate) fn joined(py: Python<'_>, chunks: &[Self]) -> Result<Tensor> {
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
        let mut copy = Tensor::zeros(first.dtype, &shape)?;
        let mut rest = copy.as_bytes_mut()?;
        for chunk in chunks {
            py.check_signals()?;
            let size = chunk.copy_to(rest)?;
            rest = &mut rest[size..];
        }
        Ok(copy)
    }
}
