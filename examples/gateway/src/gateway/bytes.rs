//! The same by bytes, to compare with: what a gateway does without shared memory. A product does not
//! need this file.
//!
//! A message is the number of its bytes, as 8 bytes in little-endian order, and the bytes.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Result, ensure};
use dlbridge::Tensor;

use super::batch::{Answer, Batch};
use super::model::{OUTPUTS, ROW};

/// Sends all rows and receives the outputs, one after the other.
pub(super) fn ask(mut socket: &UnixStream, batch: &Batch) -> Result<Answer> {
    let rows = batch.rows();
    socket.write_all(&((rows * ROW) as u64).to_le_bytes())?;
    for bytes in batch.bytes() {
        socket.write_all(bytes)?;
    }
    let outputs = OUTPUTS.iter().map(|output| {
        let shape = output.shape(rows);
        let mut tensor = Tensor::zeros(output.dtype, &shape)?;
        let mut found = [0; 8];
        socket.read_exact(&mut found)?;
        let (found, expected) = (u64::from_le_bytes(found), tensor.nbytes() as u64);
        ensure!(found == expected, "expected {expected} bytes, found {found}");
        socket.read_exact(tensor.as_bytes_mut()?)?;
        Ok(tensor.into_frozen())
    });
    outputs.collect::<Result<_>>().map(Ok)
}
