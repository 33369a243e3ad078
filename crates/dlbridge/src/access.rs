//! Who else may touch a tensor's memory while Rust holds it.
//! The rules that follow from a class are in `raw/memory/slice.rs`; the stance is in `SAFETY.md`.
//! Invariant: a class is decided when a tensor is made and only ever becomes weaker.

use std::fmt;

/// Who else may touch a tensor's memory. It decides which ways of reading and writing are safe.
///
/// | class | memory | `view` | `as_slice` | `as_slice_mut` |
/// | --- | --- | --- | --- | --- |
/// | `Exclusive` | nobody else has it | yes | yes | yes |
/// | `Frozen` | others may read, nobody writes | yes | yes | no |
/// | `Shared` | another language may write at any time | yes | no | no |
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Nobody else can reach the memory: a Rust owner that was moved in, or a copy that the
    /// producer made for us.
    Exclusive = 0,
    /// Nobody writes: an immutable Rust owner such as `Arc<[T]>`, or a read-only copy made for us.
    ///
    /// Its exports are flagged read-only, and a consumer is trusted to keep the flag (C1 of
    /// `SAFETY.md`). **PyTorch, Paddle and TVM-FFI do not:** what they write changes a `&[T]` that
    /// Rust holds, or ends the process where a `&'static [T]` lies in read-only pages. For them,
    /// export a copy ([`to_contiguous`](crate::Tensor::to_contiguous)), or memory that Rust reads through
    /// views alone: a `Vec` that was [shared writable](crate::Tensor::into_shared).
    Frozen = 1,
    /// Anything that another language may write meanwhile, read-only or not for us.
    Shared = 2,
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
