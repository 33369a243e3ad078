//! The flags of a versioned descriptor. Unknown bits are kept for newer versions of DLPack.

use std::fmt;
use std::ops::{BitOr, BitOrAssign, Sub};

/// Properties of the memory, as its producer states them: the `flags` of DLPack's `DLManagedTensorVersioned`.
///
/// ```
/// use dlbridge::Flags;
///
/// let flags = Flags::READ_ONLY | Flags::IS_COPIED;
/// assert!(flags.contains(Flags::READ_ONLY));
/// assert_eq!(flags.to_string(), "READ_ONLY | IS_COPIED");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Flags(pub u64);

impl Flags {
    /// No flag: writable, not a copy.
    pub const NONE: Self = Self(0);
    /// The consumer must not write.
    pub const READ_ONLY: Self = Self(dlbridge_sys::DLPACK_FLAG_BITMASK_READ_ONLY);
    /// The producer made a copy for this consumer, the only one to access it until the deleter is called.
    pub const IS_COPIED: Self = Self(dlbridge_sys::DLPACK_FLAG_BITMASK_IS_COPIED);
    /// Numbers narrower than a byte are padded to one byte each, not packed.
    pub const SUBBYTE_PADDED: Self = Self(dlbridge_sys::DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED);

    const NAMES: [(Self, &'static str); 3] = [
        (Self::READ_ONLY, "READ_ONLY"),
        (Self::IS_COPIED, "IS_COPIED"),
        (Self::SUBBYTE_PADDED, "SUBBYTE_PADDED"),
    ];

    /// Every flag that has a name here.
    pub(crate) const NAMED: Self =
        Self(Self::READ_ONLY.0 | Self::IS_COPIED.0 | Self::SUBBYTE_PADDED.0);

    /// Whether every bit of `other` is set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl Sub for Flags {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = *self;
        let mut separator = "";
        for (flag, name) in Self::NAMES {
            if self.contains(flag) {
                write!(f, "{separator}{name}")?;
                separator = " | ";
                rest = rest - flag;
            }
        }
        match (rest.0, separator) {
            (0, "") => f.write_str("none"),
            (0, _) => Ok(()),
            (bits, _) => write!(f, "{separator}{bits:#x}"),
        }
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({self})")
    }
}
