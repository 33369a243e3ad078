//! The options of an import, what it made, and the protocols through which tensors are imported.
//! Invariant: one name for each protocol, the same in messages, docs and the Python module.

use std::fmt;

use dlbridge::protocol::call::CopyMode;
use dlbridge::{Device, Tensor};

use crate::stream::Stream;

/// The options of an import. The default shares the producer's memory, on the producer's device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImportOptions {
    /// The requested device; the producer's own if `None`.
    pub device: Option<Device>,
    /// Whether to copy: if needed (the default), never, or always.
    pub copy: CopyMode,
    /// The stream that waits until device memory is ready. With `None`, the memory is ready where
    /// the producer makes it so by default. Host memory has no stream.
    pub stream: Option<Stream>,
}

/// What [`import`](super::import()) made of a Python object.
#[derive(Debug)]
#[non_exhaustive]
pub struct Imported {
    /// A tensor over the object's memory, or over the copy that was requested.
    pub tensor: Tensor,
    /// The protocol that was used.
    pub protocol: Protocol,
    /// The stream after whose work the memory is ready; `None` for host memory, and for an import with
    /// [`Stream::NO_SYNC`], which requests no order.
    ///
    /// The C exchange API exports device memory while work may still be queued on the producer's
    /// current stream. This is that stream, so that the caller queues its work on it, or waits for it.
    pub stream: Option<Stream>,
}

/// The protocol through which a tensor was imported.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Protocol {
    /// The C exchange API that the object's type publishes: no Python call.
    ExchangeApi,
    /// NumPy's C API, for exact `numpy.ndarray` objects: no Python call.
    NumPy,
    /// `__dlpack__(max_version=...)`, answered with a versioned tensor.
    Versioned,
    /// `__dlpack__(max_version=...)`, answered with a legacy tensor all the same.
    Legacy,
    /// `__dlpack__()` of a producer without the keyword `max_version`.
    LegacyNoKeyword,
    /// A capsule as the argument.
    Capsule,
    /// `__cuda_array_interface__`: device memory, without DLPack.
    CudaArrayInterface,
    /// The buffer protocol, without DLPack, or of an array of JAX.
    Buffer,
    /// NumPy's `__array_interface__`, without DLPack.
    ArrayInterface,
    /// Arrow's `__arrow_c_array__`, without DLPack.
    Arrow,
    /// Arrow's `__arrow_c_stream__`, without DLPack.
    ArrowStream,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ExchangeApi => "C exchange API",
            Self::NumPy => "NumPy C API",
            Self::Versioned => "__dlpack__, versioned",
            Self::Legacy => "__dlpack__, legacy",
            Self::LegacyNoKeyword => "__dlpack__ without keywords",
            Self::Capsule => "capsule",
            Self::CudaArrayInterface => "__cuda_array_interface__",
            Self::Buffer => "buffer protocol",
            Self::ArrayInterface => "__array_interface__",
            Self::Arrow => "__arrow_c_array__",
            Self::ArrowStream => "__arrow_c_stream__",
        })
    }
}
