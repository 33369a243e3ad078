//! What an importer may ask for.

use dlbridge::Device;
use dlbridge::protocol::import::CopyMode;

use crate::stream::Stream;

/// What an importer may ask for. The default shares the producer's memory, wherever it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImportOptions {
    /// The device that the tensor is to be on; the producer's own if `None`.
    pub device: Option<Device>,
    /// Whether to copy.
    pub copy: CopyMode,
    /// The stream that is to wait until device memory is ready; whatever the producer does of its
    /// own if `None`. Host memory has none.
    pub stream: Option<Stream>,
}
