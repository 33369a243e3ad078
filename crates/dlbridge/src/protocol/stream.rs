//! The numbers of streams, as the array API standard has them.
//!
//! A number means a stream only together with a device.

use super::Refusal;
use crate::{Device, DeviceKind};

/// The number that asks for no synchronisation.
pub const NO_SYNC: i64 = -1;

/// A family of devices whose streams have numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Platform {
    /// CUDA's devices, and its managed memory.
    Cuda,
    /// ROCm's devices.
    Rocm,
}

/// The platform whose streams order work on a device's memory; `None` for a device without streams.
/// Pinned memory (`cuda_host`, `rocm_host`) is host memory to the array API standard, which has no
/// streams there.
#[must_use]
pub fn platform(device: Device) -> Option<Platform> {
    match device.kind {
        DeviceKind::CUDA | DeviceKind::CUDA_MANAGED => Some(Platform::Cuda),
        DeviceKind::ROCM => Some(Platform::Rocm),
        _ => None,
    }
}

/// The number of a device's default stream, which `None` means; `None` for a device without streams.
#[must_use]
pub fn default_on(device: Device) -> Option<i64> {
    platform(device).map(|platform| match platform {
        Platform::Cuda => 1,
        Platform::Rocm => 0,
    })
}

/// The number to name a stream of a device by; `None` for a device without streams, where none is
/// named.
///
/// # Errors
///
/// A number that is no stream of this device.
pub fn number_on(stream: Option<i64>, device: Device) -> Result<Option<i64>, Refusal> {
    let Some(number) = stream else { return Ok(default_on(device)) };
    let (is_stream, expected) = match platform(device) {
        Some(_) if number == NO_SYNC => return Ok(stream),
        None if number == NO_SYNC => return Ok(None),
        // 0 could mean any of three.
        Some(Platform::Cuda) => {
            (number > 0, "None, -1, 1 (legacy default), 2 (per-thread default) or an address")
        }
        Some(Platform::Rocm) => {
            (number == 0 || number > 2, "None, -1, 0 (default) or an address above 2")
        }
        None => (false, "None or -1"),
    };
    if is_stream { Ok(stream) } else { Err(refusal(expected, device, &number.to_string())) }
}

/// The refusal of a value that is no stream at all.
#[must_use]
pub fn not_a_stream(found: &str, device: Device) -> Refusal {
    let expected = if platform(device).is_some() { "the number of a stream" } else { "None or -1" };
    refusal(expected, device, found)
}

fn refusal(expected: &str, device: Device, found: &str) -> Refusal {
    Refusal(format!("stream: expected {expected} for {device}, found {found}"))
}
