//! What a handle notes of a tensor beside its descriptor, in one word.
//! Deciding any of it does not belong here (see `parse` and `managed`).
//! Invariant: each note has its own bits, and reads as it was written.

use crate::{Access, Flags};

/// What the descriptor of a handle is a part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Root {
    /// An export of this library that never left Rust.
    Header = 0,
    /// A producer's tensor of DLPack 1.x.
    Versioned = 1,
    /// A producer's tensor of DLPack before 1.0.
    Legacy = 2,
    /// A plain descriptor, which somebody else keeps.
    Lent = 3,
}

/// The flags that have a name, the class, the root, whether the strides were made here, and whether
/// memory is shared with a producer's tensor. One word, since handles are moved a lot, and the
/// padding of small fields is moved in pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Marks(usize);

const FLAGS: usize = Flags::NAMED.0 as usize;
const ACCESS_AT: u32 = 8;
const ROOT_AT: u32 = 16;
const OWNS_STRIDES: usize = 1 << 24;
const SHARES_FOREIGN: usize = 1 << 25;

impl Marks {
    #[inline]
    pub(super) const fn new(flags: Flags, access: Access) -> Self {
        const { assert!(FLAGS < 1 << ACCESS_AT) };
        Self((flags.0 & Flags::NAMED.0) as usize | (access as usize) << ACCESS_AT)
    }

    #[inline]
    pub(super) const fn with_root(self, root: Root) -> Self {
        Self(self.0 & !(0xff << ROOT_AT) | (root as usize) << ROOT_AT)
    }

    #[inline]
    pub(super) const fn with_own_strides(self) -> Self {
        Self(self.0 | OWNS_STRIDES)
    }

    #[inline]
    pub(super) const fn with_foreign(self, is_foreign: bool) -> Self {
        if is_foreign { Self(self.0 | SHARES_FOREIGN) } else { self }
    }

    /// The same tensor with other flags and another class.
    #[inline]
    pub(super) const fn with(self, flags: Flags, access: Access) -> Self {
        let kept = self.0 & (0xff << ROOT_AT | OWNS_STRIDES | SHARES_FOREIGN);
        Self(kept | Self::new(flags, access).0)
    }

    /// Of the flags that have a name, those that hold.
    #[inline]
    pub(super) const fn flags(self) -> Flags {
        Flags((self.0 & FLAGS) as u64)
    }

    #[inline]
    pub(super) const fn access(self) -> Access {
        match self.0 >> ACCESS_AT & 0xff {
            0 => Access::Exclusive,
            1 => Access::Frozen,
            _ => Access::Shared,
        }
    }

    #[inline]
    pub(super) const fn root(self) -> Root {
        match self.0 >> ROOT_AT & 0xff {
            0 => Root::Header,
            1 => Root::Versioned,
            2 => Root::Legacy,
            _ => Root::Lent,
        }
    }

    /// Whether the memory is a producer's: owned, or shared with the handle that owns it.
    #[inline]
    pub(super) const fn is_foreign(self) -> bool {
        let owns = matches!(self.root(), Root::Versioned | Root::Legacy);
        owns || self.0 & SHARES_FOREIGN != 0
    }

    #[inline]
    pub(super) const fn owns_strides(self) -> bool {
        self.0 & OWNS_STRIDES != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_note_reads_as_it_was_written() {
        let flags = Flags::READ_ONLY | Flags::SUBBYTE_PADDED;
        for access in [Access::Exclusive, Access::Frozen, Access::Shared] {
            for root in [Root::Header, Root::Versioned, Root::Legacy, Root::Lent] {
                let marks = Marks::new(flags | Flags(1 << 40), access).with_root(root);
                assert_eq!((marks.flags(), marks.access(), marks.root()), (flags, access, root));
                assert!(!marks.owns_strides() && marks.with_own_strides().owns_strides());
                let marks = marks.with_own_strides().with(Flags::IS_COPIED, Access::Shared);
                assert_eq!((marks.flags(), marks.access()), (Flags::IS_COPIED, Access::Shared));
                assert_eq!((marks.root(), marks.owns_strides()), (root, true));
                let is_foreign = matches!(root, Root::Versioned | Root::Legacy);
                assert_eq!(marks.with_foreign(false).is_foreign(), is_foreign);
                let marks = marks.with_foreign(true).with(flags, access);
                assert!(marks.is_foreign() && marks.root() == root);
            }
        }
    }
}
