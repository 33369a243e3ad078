//! The answer to a call of our own `__dlpack__`.

use super::Refusal;
use crate::Device;

/// The keywords of a call, but for `stream`, which is one of the device in the answer
/// (array API 2024.12, `dl_device`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// The newest version that the consumer reads.
    pub max_version: Option<(u32, u32)>,
    /// The device that the consumer wants the memory on.
    pub dl_device: Option<Device>,
    /// Whether the consumer wants a copy (`true`) or insists on none (`false`).
    pub copy: Option<bool>,
}

/// How to answer a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Whether the capsule is versioned. Otherwise it is legacy, which read-only memory cannot be
    /// (`Tensor::check_legacy`).
    pub versioned: bool,
    /// Whether the capsule holds a copy.
    pub copy: bool,
    /// The device of the memory in the capsule: the one that a stream belongs to.
    pub device: Device,
}

impl Request {
    /// The answer for memory on `device`.
    ///
    /// # Errors
    ///
    /// Another device than that: only memory that the host can read is copied, and to the host alone.
    pub fn answer(self, device: Device) -> Result<Answer, Refusal> {
        let wanted = self.dl_device.unwrap_or(device);
        let is_moved = wanted != device;
        let can_move = wanted == Device::CPU && device.is_host_accessible();
        if is_moved && !(can_move && self.copy != Some(false)) {
            let message =
                format!("dl_device: expected {device}, where the memory is, found {wanted}");
            return Err(Refusal(message));
        }
        Ok(Answer {
            // A consumer that names no version, or one below 1, reads the legacy ABI only.
            versioned: self.max_version.is_some_and(|(major, _)| major >= 1),
            copy: is_moved || self.copy == Some(true),
            device: wanted,
        })
    }

    /// The same request to a producer that shares no read-only memory.
    ///
    /// # Errors
    ///
    /// A request with `copy=False`.
    pub fn copied(self) -> Result<Self, Refusal> {
        if self.copy == Some(false) {
            let message =
                "copy: expected True or None, found False; read-only memory is not shared";
            return Err(Refusal(message.to_owned()));
        }
        Ok(Self { copy: Some(true), ..self })
    }
}
