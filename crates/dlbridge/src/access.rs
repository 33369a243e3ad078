//! Which other code may access the memory of a tensor while Rust holds it (`Access`), and what its producer says of it
//! (`Flags`).
//! A class is fixed when a tensor is made, and only ever becomes weaker; `SAFETY.md` gives the reasons.

use std::fmt;
use std::ops::{BitOr, BitOrAssign, Sub};

/// Which other code may access the memory of a tensor. The class decides which accesses are safe.
///
/// | class | memory | `view` | `as_slice` | `as_slice_mut` |
/// | --- | --- | --- | --- | --- |
/// | `Exclusive` | no other code can reach it | yes | yes | yes |
/// | `Frozen` | other code may read it, none writes it | yes | yes | no |
/// | `Shared` | another language may write at any time | yes | no | no |
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// No other code can reach the memory: a Rust owner that was moved in, or a copy that this library
    /// made ([`to_contiguous`](crate::Tensor::to_contiguous)).
    Exclusive = 0,
    /// No code writes the memory: an immutable Rust owner such as `Arc<[T]>`, or exclusive memory that
    /// was [frozen](crate::Tensor::into_frozen).
    ///
    /// Its exports are flagged read-only, and consumers are trusted to honour the flag (C1 of
    /// `SAFETY.md`). **PyTorch, Paddle and TVM-FFI do not:** their writes change a `&[T]` that
    /// Rust holds, or end the process if a `&'static [T]` is in read-only pages. For them,
    /// export a copy ([`to_contiguous`](crate::Tensor::to_contiguous)), or memory that Rust reads only
    /// through views: a `Vec` that was [shared writable](crate::Tensor::into_shared).
    Frozen = 1,
    /// Another language may write the memory at any time, even if it is read-only here. All imported
    /// memory is of this class, also a copy (`IS_COPIED`): nothing proves that only this consumer has it.
    Shared = 2,
}

impl Access {
    /// The class of memory that another library describes. No flag makes it a stronger one:
    /// `IS_COPIED` says that the producer made a copy, not that no other code has it (T5). NumPy, for
    /// instance, passes each copy to `__array_finalize__` of a subclass, which may keep it.
    pub(crate) const IMPORTED: Self = Self::Shared;

    /// The class of memory that is only read from now on, or for as long as it is borrowed.
    #[inline]
    pub(crate) const fn to_read(self) -> Self {
        match self {
            Self::Exclusive | Self::Frozen => Self::Frozen,
            Self::Shared => Self::Shared,
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusive => "exclusive",
            Self::Frozen => "frozen",
            Self::Shared => "shared",
        })
    }
}

// The flags of a versioned descriptor. Unknown bits are kept for newer versions of DLPack.

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
