//! Descriptors, handles and elements, through raw pointers. Nothing here knows `Tensor`: `tensor/` wraps it.
//!
//! Only folders named `memory`, memory files of adapters and `Layout::again` have unsafe code. Every SAFETY
//! note cites a duty of the caller or one of these invariants, or one of those in `SAFETY.md`: the trust in a
//! producer (`T`), in a consumer (`C`) and in a foreign interface (`F`). `cargo xtask lint` rejects other notes.
//!
//! - **R1, checked.** A [`Checked`] is made from a [`Layout`](crate::layout::Layout), and only measuring
//!   makes one: the element count, the size in bytes and the byte span fit `isize`. `data` is not null
//!   unless there are no elements, and no element's address wraps around the address space.
//! - **R2, alive.** While a `Checked<'a>` exists, the owner of its memory, shape and strides is
//!   borrowed for `'a`, so that none of them is freed or moved.
//! - **R3, once.** A producer's managed descriptor is owned by at most one [`Handle`], which calls
//!   its deleter once, or exports it and forgets it. A header counts its handles: the last one
//!   frees it, and only a unique one writes it, exports it to a consumer or takes its owner out. A
//!   header that is shared lends its second descriptor, to one consumer at a time, which counts as a
//!   handle.
//! - **R4, class.** Elements of class [`Access::Exclusive`](crate::Access) are reachable by no other
//!   code; elements of class `Frozen` are written by no code, consumers included (C1). Gaps between
//!   elements may belong to other code: no reference ever covers one.
//! - **R5, references.** `&[T]` and `&mut [T]` are formed only over memory of class `Exclusive`
//!   or `Frozen` (or by a caller's promise), for [`Plain`] types, aligned, of the same dtype.
//!   All other memory is read through raw pointers or [`ReadCell`].
//! - **R6, header.** The header of an export is one allocation; the fields that freeing it needs, and
//!   the mark of what is lent, are outside the part that a consumer can reach.
//! - **R7, own.** A resource that this library allocated, counted or locked (a header, a buffer, a
//!   reference) belongs to this library until it exports or frees it: once, with the layout that it
//!   was allocated with.
//! - **R8, values.** An [`Element`] has the size of its dtype and no padding, and its `read`
//!   and `copy_run` make valid values of any bytes.
//! - **R9, threads.** A type with a manual `Send` or `Sync` owns or borrows plain elements, an owner
//!   that is `Send`, or an address that is never dereferenced here.
//! - **R10, places.** A `Strided` array describes elements that it owns or borrows and that stay
//!   in place, initialised, until it is used again.
#![allow(unsafe_code)]

pub(crate) mod buffer;
mod copy;
pub(crate) mod descriptor;
pub(crate) mod element;
pub(crate) mod handle;
pub(crate) mod iter;
pub(crate) mod owner;
#[cfg(feature = "rayon")]
mod parallel;
pub(crate) mod read;
pub(crate) mod release;
pub(crate) mod slice;
#[cfg(feature = "rayon")]
mod threads;
pub(crate) mod unwind;
pub(crate) mod write;

pub(crate) use descriptor::{Checked, checked};
pub use element::{Element, Plain};
pub(crate) use handle::Handle;
pub use iter::Iter;
pub(crate) use iter::RowElements;
pub use read::ReadCell;
#[cfg(feature = "rayon")]
pub use threads::thread_pool;
