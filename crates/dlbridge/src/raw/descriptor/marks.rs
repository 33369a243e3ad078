//! Per-handle metadata packed in one word: flags, access class, origin of the descriptor.

use crate::{Access, Flags};

/// The origin of a handle's descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Root {
    /// An export of this library that never left Rust.
    Header = 1 << 16,
    /// A versioned managed tensor of a producer.
    Versioned = 1 << 17,
    /// A legacy managed tensor of a producer.
    Legacy = 1 << 18,
    /// A plain descriptor, which the handle does not own.
    Borrowed = 1 << 19,
}

/// Metadata of a handle in one word, so that a handle is passed in two registers: the named flags, the
/// class, the root, and whether the memory is shared with a producer's tensor, dropped by a language
/// binding, kept by an export, or read-only for lack of a flag in the legacy ABI.
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

    /// The marks of imported memory that has an address: a copy made for this consumer is exclusive (T5).
    #[inline]
    pub(crate) const fn imported(flags: Flags) -> Self {
        const { assert!(Flags::READ_ONLY.0 == 1 << 0 && Flags::IS_COPIED.0 == 1 << 1) };
        // Tensors that are not copies encode as 2 or 3; both mean `Shared`.
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

    /// Sets whether the memory is read-only for lack of a flag in the legacy ABI.
    #[inline]
    pub(crate) const fn with_legacy_read_only(self, is_legacy_read_only: bool) -> Self {
        Self(self.0 & !LEGACY_READ_ONLY | if is_legacy_read_only { LEGACY_READ_ONLY } else { 0 })
    }

    /// Copies from `other`, another handle of the same memory, what holds for the memory.
    #[inline]
    pub(crate) const fn beside(self, other: Self) -> Self {
        self.with_foreign(other.is_foreign()).with_legacy_read_only(other.is_legacy_read_only())
    }

    /// Sets whether a language binding drops the tensor (see `binding`).
    #[inline]
    pub(crate) const fn with_bound(self, is_bound: bool) -> Self {
        Self(self.0 & !BOUND | if is_bound { BOUND } else { 0 })
    }

    /// Notes that an export keeps the handle.
    #[inline]
    pub(crate) const fn with_kept(self) -> Self {
        Self(self.0 | KEPT)
    }

    /// Replaces the flags and the class.
    #[inline]
    pub(crate) const fn with(self, flags: Flags, access: Access) -> Self {
        let kept = self.0 & (ROOTS | SHARES_FOREIGN | BOUND | KEPT | LEGACY_READ_ONLY);
        Self(kept | Self::new(flags, access).0)
    }

    /// Takes the flags and the class of another handle of the memory.
    #[inline]
    pub(crate) const fn of_class(self, other: Self) -> Self {
        self.with(other.flags(), other.access()).with_legacy_read_only(other.is_legacy_read_only())
    }

    /// The named flags that are set.
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

    /// Whether the memory is read-only only for lack of a flag in the legacy ABI.
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
