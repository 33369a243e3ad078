//! Access classes: which other code may access the memory of a tensor while Rust holds it.
//! A class is fixed when a tensor is made, and only ever becomes weaker; `SAFETY.md` gives the reasons.

use std::fmt;

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
