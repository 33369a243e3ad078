//! What a handle notes of a tensor beside its descriptor, in one word.
//! Deciding any of it does not belong here (see `validate` and `handle`).
//! Invariant: each note has its own bits, and reads as it was written.

use crate::{Access, Flags};

/// What the descriptor of a handle is a part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Root {
    /// An export of this library that never left Rust.
    Header = 1 << 16,
    /// A producer's tensor of DLPack 1.x.
    Versioned = 1 << 17,
    /// A producer's tensor of DLPack before 1.0.
    Legacy = 1 << 18,
    /// A plain descriptor, which somebody else keeps.
    Borrowed = 1 << 19,
}

/// The flags that have a name, the class, the root, whether memory is shared with a producer's
/// tensor, whether a binding drops it, whether an export keeps it, and whether it is read-only for
/// want of a flag. One word, which is moved in a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Marks(usize);

const FLAGS: usize = Flags::NAMED.0 as usize;
const ACCESS_AT: u32 = 8;
const ROOTS: usize = 0xf << 16;
const SHARES_FOREIGN: usize = 1 << 24;
const BOUND: usize = 1 << 25;
const KEPT: usize = 1 << 26;
const LEGACY_READ_ONLY: usize = 1 << 27;

impl Marks {
    #[inline]
    pub(crate) const fn new(flags: Flags, access: Access) -> Self {
        const { assert!(FLAGS < 1 << ACCESS_AT) };
        Self((flags.0 & Flags::NAMED.0) as usize | (access as usize) << ACCESS_AT)
    }

    /// Of foreign memory that lies at an address: a copy made for us is ours alone (trust T5).
    #[inline]
    pub(crate) const fn imported(flags: Flags) -> Self {
        const { assert!(Flags::READ_ONLY.0 == 1 << 0 && Flags::IS_COPIED.0 == 1 << 1) };
        // What is no copy is shared, read-only or not: two numbers for one class save a branch.
        let access = (flags.0 ^ Flags::IS_COPIED.0) & 0b11;
        Self((flags.0 & Flags::NAMED.0 | access << ACCESS_AT) as usize)
    }

    #[inline]
    pub(crate) const fn with_root(self, root: Root) -> Self {
        Self(self.0 & !ROOTS | root as usize)
    }

    #[inline]
    pub(crate) const fn with_foreign(self, is_foreign: bool) -> Self {
        if is_foreign { Self(self.0 | SHARES_FOREIGN) } else { self }
    }

    /// The same, of memory that is read-only because its producer's descriptor cannot say that it may
    /// be written, or that is read-only for another reason, or not at all.
    #[inline]
    pub(crate) const fn with_legacy_read_only(self, is_legacy_read_only: bool) -> Self {
        Self(self.0 & !LEGACY_READ_ONLY | if is_legacy_read_only { LEGACY_READ_ONLY } else { 0 })
    }

    /// The same, for memory that is also another handle's.
    #[inline]
    pub(crate) const fn beside(self, other: Self) -> Self {
        self.with_foreign(other.is_foreign()).with_legacy_read_only(other.is_legacy_read_only())
    }

    /// The same, with a drop that a language binding does (see `binding`) or that calls the deleter.
    #[inline]
    pub(crate) const fn with_bound(self, is_bound: bool) -> Self {
        Self(self.0 & !BOUND | if is_bound { BOUND } else { 0 })
    }

    /// The same, kept by an export.
    #[inline]
    pub(crate) const fn with_kept(self) -> Self {
        Self(self.0 | KEPT)
    }

    /// The same tensor with other flags and another class.
    #[inline]
    pub(crate) const fn with(self, flags: Flags, access: Access) -> Self {
        let kept = self.0 & (ROOTS | SHARES_FOREIGN | BOUND | KEPT | LEGACY_READ_ONLY);
        Self(kept | Self::new(flags, access).0)
    }

    /// The same, with the flags and the class of another handle of the memory.
    #[inline]
    pub(crate) const fn of_class(self, other: Self) -> Self {
        self.with(other.flags(), other.access()).with_legacy_read_only(other.is_legacy_read_only())
    }

    /// Of the flags that have a name, those that hold.
    #[inline]
    pub(crate) const fn flags(self) -> Flags {
        Flags((self.0 & FLAGS) as u64)
    }

    #[inline]
    pub(crate) const fn access(self) -> Access {
        match self.0 >> ACCESS_AT & 0xff {
            0 => Access::Exclusive,
            1 => Access::Frozen,
            _ => Access::Shared,
        }
    }

    #[inline]
    pub(crate) const fn root(self) -> Root {
        if self.0 & Root::Versioned as usize != 0 {
            Root::Versioned
        } else if self.0 & Root::Header as usize != 0 {
            Root::Header
        } else if self.0 & Root::Legacy as usize != 0 {
            Root::Legacy
        } else {
            Root::Borrowed
        }
    }

    /// Whether the memory is a producer's: owned, or shared with the handle that owns it.
    #[inline]
    pub(crate) const fn is_foreign(self) -> bool {
        let owns = matches!(self.root(), Root::Versioned | Root::Legacy);
        owns || self.0 & SHARES_FOREIGN != 0
    }

    /// Whether an export keeps the handle.
    #[inline]
    pub(crate) const fn is_kept(self) -> bool {
        self.0 & KEPT != 0
    }

    /// Whether the memory is read-only only because nothing says that it may be written.
    #[inline]
    pub(crate) const fn is_legacy_read_only(self) -> bool {
        self.0 & LEGACY_READ_ONLY != 0
    }

    /// Whether a language binding drops the tensor.
    #[inline]
    pub(crate) const fn is_bound(self) -> bool {
        self.0 & BOUND != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_copy_is_not_shared() {
        let (read_only, copied) = (Flags::READ_ONLY, Flags::IS_COPIED);
        for (flags, access) in [
            (Flags::NONE, Access::Shared),
            (read_only, Access::Shared),
            (copied, Access::Exclusive),
            (copied | read_only, Access::Frozen),
        ] {
            for more in [Flags::NONE, Flags::SUBBYTE_PADDED, Flags(1 << 40)] {
                let marks = Marks::imported(flags | more).with_root(Root::Legacy);
                assert_eq!((marks.access(), marks.root()), (access, Root::Legacy));
                assert_eq!(marks.flags(), (flags | more) - Flags(1 << 40));
            }
        }
    }

    #[test]
    fn each_note_reads_as_it_was_written() {
        let flags = Flags::READ_ONLY | Flags::SUBBYTE_PADDED;
        for access in [Access::Exclusive, Access::Frozen, Access::Shared] {
            for root in [Root::Header, Root::Versioned, Root::Legacy, Root::Borrowed] {
                let marks = Marks::new(flags | Flags(1 << 40), access).with_root(root);
                assert_eq!((marks.flags(), marks.access(), marks.root()), (flags, access, root));
                let marks = marks.with(Flags::IS_COPIED, Access::Shared);
                assert_eq!((marks.flags(), marks.access()), (Flags::IS_COPIED, Access::Shared));
                let is_foreign = matches!(root, Root::Versioned | Root::Legacy);
                assert_eq!(marks.with_foreign(false).is_foreign(), is_foreign);
                let marks = marks.with_foreign(true).with(flags, access);
                assert!(marks.is_foreign() && marks.root() == root && !marks.is_bound());
                let bound = marks.with_bound(true).with(flags, access).with_root(root);
                assert!(bound.is_bound() && bound.with_bound(false) == marks);
                let kept = marks.with_kept().with(flags, access).with_root(root);
                assert!(kept.is_kept() && !marks.is_kept() && kept.root() == root);
                let legacy = marks.with_legacy_read_only(true).with(flags, access).with_root(root);
                assert!(
                    legacy.is_legacy_read_only() && legacy.with_legacy_read_only(false) == marks
                );
                let other = Marks::new(flags, access).with_root(Root::Header).beside(legacy);
                assert!(
                    other.is_legacy_read_only()
                        && other.is_foreign()
                        && other.root() == Root::Header
                );
            }
        }
    }
}
