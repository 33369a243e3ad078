//! A column that comes in chunks, from the capsule that `__arrow_c_stream__` returned.
//! Invariant: the stream is moved out of its capsule, so that one thread uses it; it and each array
//! are released once.

use dlbridge::Tensor;
use pyo3::prelude::*;

use super::column::{ColumnType, Unparsed};
use super::{Array, ArrowArrayStream, Chunk, Owned, STREAM, Schema};
use crate::{Error, Result};

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

    /// The tensor of a column without values.
    pub(crate) fn empty(&self) -> Result<Tensor> {
        Ok(Tensor::zeros(self.column.dtype, &self.column.shape_of(0))?)
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
