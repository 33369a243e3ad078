//! The options of an import.

use dlbridge::Device;
use dlbridge::protocol::import::CopyMode;

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
