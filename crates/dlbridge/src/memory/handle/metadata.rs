//! Per-handle metadata packed in one word: flags, access class, origin of the descriptor.

use crate::{Access, Flags};

/// The origin of a handle's descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
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
/// class, the origin, and whether the memory is shared with a producer's tensor, dropped by a language
/// binding, owned by a chain of exports, read-only for lack of a flag in the legacy ABI, or under a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Metadata(usize);

const FLAGS: usize = Flags::NAMED.0 as usize;
const ACCESS_AT: u32 = 8;
const ORIGINS: usize = 0xf << 16;
const SHARES_FOREIGN: usize = 1 << 24;
const BOUND: usize = 1 << 25;
const CHAINED: usize = 1 << 26;
const LEGACY_READ_ONLY: usize = 1 << 27;
const LEASED: usize = 1 << 28;

impl Metadata {
    #[inline]
    pub(crate) const fn new(flags: Flags, access: Access) -> Self {
        const { assert!(FLAGS < 1 << ACCESS_AT) };
        Self((flags.0 & Flags::NAMED.0) as usize | (access as usize) << ACCESS_AT)
    }

    /// The metadata of a producer's tensor. A legacy one is read-only for lack of a flag.
    #[inline(always)]
    pub(crate) const fn imported(flags: Flags, origin: Origin, is_bound: bool) -> Self {
        let is_legacy = matches!(origin, Origin::Legacy);
        Self::new(flags, Access::IMPORTED)
            .with_origin(origin)
            .with_bound(is_bound)
            .with_legacy_read_only(is_legacy)
    }

    #[inline]
    pub(crate) const fn with_origin(self, origin: Origin) -> Self {
        Self(self.0 & !ORIGINS | origin as usize)
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
    pub(crate) const fn with_memory_of(self, other: Self) -> Self {
        self.with_foreign(other.is_foreign())
            .with_legacy_read_only(other.is_legacy_read_only())
            .with_lease(other.is_leased())
    }

    /// Sets whether a lease is in the chain of owners.
    #[inline]
    pub(crate) const fn with_lease(self, is_leased: bool) -> Self {
        Self(self.0 & !LEASED | if is_leased { LEASED } else { 0 })
    }

    /// Sets whether a language binding drops the tensor (see `release`).
    #[inline]
    pub(crate) const fn with_bound(self, is_bound: bool) -> Self {
        Self(self.0 & !BOUND | if is_bound { BOUND } else { 0 })
    }

    /// Sets that a chain of exports owns the handle.
    #[inline]
    pub(crate) const fn with_chained(self) -> Self {
        Self(self.0 | CHAINED)
    }

    /// Replaces the flags and the class.
    #[inline]
    pub(crate) const fn with(self, flags: Flags, access: Access) -> Self {
        const UNCHANGED: usize =
            ORIGINS | SHARES_FOREIGN | BOUND | CHAINED | LEGACY_READ_ONLY | LEASED;
        let unchanged = self.0 & UNCHANGED;
        Self(unchanged | Self::new(flags, access).0)
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
    pub(crate) const fn origin(self) -> Origin {
        if self.0 & Origin::Versioned as usize != 0 {
            Origin::Versioned
        } else if self.0 & Origin::Header as usize != 0 {
            Origin::Header
        } else if self.0 & Origin::Legacy as usize != 0 {
            Origin::Legacy
        } else {
            Origin::Borrowed
        }
    }

    /// Whether the memory is a producer's: owned, or shared with the handle that owns it.
    #[inline]
    pub(crate) const fn is_foreign(self) -> bool {
        let owns = matches!(self.origin(), Origin::Versioned | Origin::Legacy);
        owns || self.0 & SHARES_FOREIGN != 0
    }

    /// Whether a chain of exports owns the handle.
    #[inline]
    pub(crate) const fn is_chained(self) -> bool {
        self.0 & CHAINED != 0
    }

    /// Whether the memory is read-only only for lack of a flag in the legacy ABI.
    #[inline]
    pub(crate) const fn is_legacy_read_only(self) -> bool {
        self.0 & LEGACY_READ_ONLY != 0
    }

    /// Whether a lease is in the chain of owners.
    #[inline]
    pub(crate) const fn is_leased(self) -> bool {
        self.0 & LEASED != 0
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
    fn each_field_reads_as_it_was_written() {
        let flags = Flags::READ_ONLY | Flags::SUBBYTE_PADDED;
        for access in [Access::Exclusive, Access::Frozen, Access::Shared] {
            for origin in [Origin::Header, Origin::Versioned, Origin::Legacy, Origin::Borrowed] {
                let metadata = Metadata::new(flags | Flags(1 << 40), access).with_origin(origin);
                assert_eq!(
                    (metadata.flags(), metadata.access(), metadata.origin()),
                    (flags, access, origin)
                );
                let metadata = metadata.with(Flags::IS_COPIED, Access::Shared);
                assert_eq!(
                    (metadata.flags(), metadata.access()),
                    (Flags::IS_COPIED, Access::Shared)
                );
                let is_foreign = matches!(origin, Origin::Versioned | Origin::Legacy);
                assert_eq!(metadata.with_foreign(false).is_foreign(), is_foreign);
                let metadata = metadata.with_foreign(true).with(flags, access);
                assert!(
                    metadata.is_foreign() && metadata.origin() == origin && !metadata.is_bound()
                );
                let bound = metadata.with_bound(true).with(flags, access).with_origin(origin);
                assert!(bound.is_bound() && bound.with_bound(false) == metadata);
                let chained = metadata.with_chained().with(flags, access).with_origin(origin);
                assert!(
                    chained.is_chained() && !metadata.is_chained() && chained.origin() == origin
                );
                let legacy =
                    metadata.with_legacy_read_only(true).with(flags, access).with_origin(origin);
                assert!(
                    legacy.is_legacy_read_only() && legacy.with_legacy_read_only(false) == metadata
                );
                let other =
                    Metadata::new(flags, access).with_origin(Origin::Header).with_memory_of(legacy);
                assert!(
                    other.is_legacy_read_only()
                        && other.is_foreign()
                        && other.origin() == Origin::Header
                );
            }
        }
    }
}
