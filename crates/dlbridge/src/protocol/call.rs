//! A call of `__dlpack__`, from both sides: how a producer's is called and what its answer means, and
//! how a call of our own is answered.

use super::{Refusal, VERSION, stream};
use crate::Device;

/// The keywords of one call of `__dlpack__`. A keyword that is `None` is not passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Keywords {
    /// The newest version that this library reads.
    pub max_version: Option<(u32, u32)>,
    /// The number of the stream that waits for the memory.
    pub stream: Option<i64>,
    /// The device that the memory is wanted on.
    pub dl_device: Option<Device>,
    /// Whether a copy is wanted, or none.
    pub copy: Option<bool>,
}

impl Keywords {
    /// `max_version` alone: the first call for memory as it is.
    pub const SHARED: Self =
        Self { max_version: Some(VERSION), stream: None, dl_device: None, copy: None };

    /// The first call for memory on `device` that is ready on `stream`.
    ///
    /// # Errors
    ///
    /// A stream that the device does not have.
    pub fn on_stream(stream: Option<i64>, device: Device) -> Result<Self, Refusal> {
        Ok(Self { stream: stream::number_on(stream, device)?, ..Self::SHARED })
    }

    /// The same call to a producer that does not know `max_version`; `None` for a call that a producer
    /// without it cannot answer.
    #[must_use]
    pub fn legacy(self) -> Option<Self> {
        let is_basic = self.dl_device.is_none() && self.copy.is_none();
        (is_basic && self.max_version.is_some()).then_some(Self { max_version: None, ..self })
    }
}

/// The exception that a call of `__dlpack__` raised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Raised<'a> {
    /// A `TypeError`, with its message.
    TypeError(&'a str),
    /// An `AttributeError`, of an object without that method.
    NoMethod,
    /// A `BufferError`.
    BufferError,
    /// Any other.
    Other,
}

/// What follows a call that failed. Everything but a second call, and these two other ways, passes the
/// exception on: a producer that rejects its own tensor may describe the same memory as plain through
/// another protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// A second call, with these keywords.
    Call(Keywords),
    /// The object does not speak DLPack: it is a capsule, or has another protocol.
    OtherProtocols,
    /// The buffer protocol may describe what a capsule could not, such as read-only memory. If it does
    /// not, the exception is passed on.
    Buffer,
    /// The exception is passed on.
    Raise,
}

/// What follows a call with `keywords` that raised.
#[must_use]
pub fn after(raised: Raised<'_>, keywords: Keywords) -> Next {
    match raised {
        Raised::TypeError(message) if knows_no_keyword(message) => {
            keywords.legacy().map_or(Next::Raise, Next::Call)
        }
        Raised::NoMethod => Next::OtherProtocols,
        Raised::BufferError => Next::Buffer,
        Raised::TypeError(_) | Raised::Other => Next::Raise,
    }
}

/// Whether the message of a `TypeError` says that the producer does not know the keywords of
/// DLPack 1.0. A `TypeError` from inside a producer does not: a second call would run it twice.
fn knows_no_keyword(message: &str) -> bool {
    // The words of CPython, Cython and PyO3, those for methods that take no keyword at all, and
    // those of pybind11 and nanobind.
    let words = ["max_version", "__dlpack__() takes no keyword", "incompatible function arguments"];
    words.into_iter().any(|words| mentions(message, words))
}

/// Whether a message has these words. `str::contains` is compiled for each text, and is a hundred times as large.
#[must_use]
#[inline(never)]
pub fn mentions(message: &str, words: &str) -> bool {
    message.as_bytes().windows(words.len()).any(|part| part == words.as_bytes())
}

/// Whether an import may copy, or must.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CopyMode {
    /// The producer decides. Every known one shares its memory.
    #[default]
    IfNeeded,
    /// Never: a producer's copy is refused.
    Never,
    /// Always. In host memory this library makes the copy, which is
    /// [`Exclusive`](crate::Access::Exclusive). On another device the producer makes it, and may keep it:
    /// such a copy is [`Shared`](crate::Access::Shared), as all imported memory is.
    Always,
}

/// How memory as a producer shares it becomes what was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// It is that already.
    Keep,
    /// By a copy in ordinary host memory, made by this library: producers differ in what they make of
    /// `copy=True`.
    CopyOnHost,
    /// By a second call of the producer, for this device.
    Call(Device),
}

impl CopyMode {
    /// The value of the keyword `copy`.
    #[must_use]
    pub fn keyword(self) -> Option<bool> {
        match self {
            Self::IfNeeded => None,
            Self::Never => Some(false),
            Self::Always => Some(true),
        }
    }

    /// How memory on `found`, which the producer copied or not, is delivered on `wanted`. `copies` says of a device
    /// whether the caller copies its memory to the host.
    #[must_use]
    pub fn delivery(
        self,
        found: Device,
        is_copied: bool,
        wanted: Option<Device>,
        copies: fn(Device) -> bool,
    ) -> Delivery {
        let wanted = wanted.unwrap_or(found);
        if wanted != found {
            // Pinned memory is not `cpu`: it is copied even if the address would do.
            return if wanted == Device::CPU && copies(found) && self != Self::Never {
                Delivery::CopyOnHost
            } else {
                Delivery::Call(wanted)
            };
        }
        match self {
            // Also where the producer made a copy, which it may keep.
            Self::Always if wanted.is_host_accessible() => Delivery::CopyOnHost,
            Self::Always if is_copied => Delivery::Keep,
            Self::Always => Delivery::Call(wanted),
            Self::Never | Self::IfNeeded => Delivery::Keep,
        }
    }

    /// Checks memory that is delivered.
    ///
    /// # Errors
    ///
    /// A copy that was not to be made.
    pub fn check(self, is_copied: bool) -> Result<(), Refusal> {
        if self == Self::Never && is_copied {
            let message = "copy: expected the producer's own memory, found a copy";
            return Err(Refusal(message.to_owned()));
        }
        Ok(())
    }
}

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
    /// The answer for memory on `device`. `copies` says of a device whether the caller copies its memory to the host.
    ///
    /// # Errors
    ///
    /// If another device is requested, unless it is the host and the caller copies there.
    pub fn answer(self, device: Device, copies: fn(Device) -> bool) -> Result<Answer, Refusal> {
        let wanted = self.dl_device.unwrap_or(device);
        let is_moved = wanted != device;
        let can_move = wanted == Device::CPU && copies(device);
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
