//! `inspect`: the fields of a producer's descriptor, before normalisation. The doctor judges them.
//! Invariant: every value but the protocol's name comes from the descriptor itself.

use dlbridge_pyo3::{Entries, Result, import_as_consumer};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Describe the tensor that an object exports, as a dict; see `dlbridge.inspect`.
#[pyfunction]
#[pyo3(signature = (x, /))]
pub(crate) fn inspect<'py>(x: &Bound<'py, PyAny>) -> Result<Bound<'py, PyDict>> {
    let py = x.py();
    import_as_consumer(x.as_borrowed(), |tensor, protocol| {
        let producer = dlbridge::ffi::raw_fields(tensor);
        let facts = Entries::new(py)?;
        facts.set("protocol", &*protocol.to_string())?;
        facts.set("version", producer.and_then(|raw| raw.version))?;
        facts.set("flags", &*tensor.flags().to_string())?;
        facts.set("readonly", tensor.is_read_only())?;
        facts.set("copied", tensor.is_copied())?;
        facts.set("dtype", &*tensor.dtype().to_string())?;
        facts.set("device", &*tensor.device().to_string())?;
        facts.set("shape", tensor.shape())?;
        facts.set("strides", tensor.strides())?;
        facts.set("explicit_strides", producer.is_none_or(|raw| raw.has_strides))?;
        facts.set("byte_offset", producer.map_or(0, |raw| raw.byte_offset))?;
        facts.set("data_ptr", tensor.data_ptr().addr())?;
        facts.set("nbytes", tensor.nbytes())?;
        Ok(facts.into_dict())
    })
}
