//! `inspect`: the fields of a producer's descriptor, before normalisation. The doctor judges them.
//! Invariant: every value but the protocol's name comes from the descriptor itself.

use dlbridge_pyo3::{Result, import_as_consumer};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Describe the tensor that an object exports, as a dict; see `dlbridge.inspect`.
#[pyfunction]
#[pyo3(signature = (x, /))]
pub(crate) fn inspect<'py>(x: &Bound<'py, PyAny>) -> Result<Bound<'py, PyDict>> {
    let py = x.py();
    import_as_consumer(x.as_borrowed(), |tensor, protocol| {
        let producer = dlbridge::ffi::raw_fields(tensor);
        let facts = PyDict::new(py);
        facts.set_item("protocol", protocol.to_string())?;
        facts.set_item("version", producer.and_then(|raw| raw.version))?;
        facts.set_item("flags", tensor.flags().to_string())?;
        facts.set_item("readonly", tensor.is_read_only())?;
        facts.set_item("copied", tensor.is_copied())?;
        facts.set_item("dtype", tensor.dtype().to_string())?;
        facts.set_item("device", tensor.device().to_string())?;
        facts.set_item("shape", PyTuple::new(py, tensor.shape())?)?;
        facts.set_item("strides", PyTuple::new(py, tensor.strides())?)?;
        facts.set_item("explicit_strides", producer.is_none_or(|raw| raw.has_strides))?;
        facts.set_item("byte_offset", producer.map_or(0, |raw| raw.byte_offset))?;
        facts.set_item("data_ptr", tensor.data_ptr().addr())?;
        facts.set_item("nbytes", tensor.nbytes())?;
        Ok(facts)
    })
}
