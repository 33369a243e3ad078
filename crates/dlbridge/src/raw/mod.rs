//! Descriptors and memory, by raw pointers. No public API of `Tensor` belongs here: `tensor/` wraps it.
//!
//! Unsafe code stands in this folder and in other files and folders named `raw`. Every SAFETY note names a caller's duty or one of these invariants. `T1` to
//! `T10` are the trust in a foreign producer, `C1` to `C3` that in a consumer, which `SAFETY.md`
//! lists. `cargo xtask lint` refuses a note that does neither.
//!
//! - **R1, checked.** A [`Parts`] is made of a [`Layout`](crate::layout::Layout), which is made by measuring
//!   alone: the element count, the size in bytes and the byte span fit `isize`. `data` is not null
//!   unless there are no elements, and no element's address wraps around the address space.
//! - **R2, alive.** While a `Parts<'a>` exists, whatever owns its memory, shape and strides is
//!   borrowed for `'a`, so that none of them is freed or moved.
//! - **R3, once.** A producer's managed descriptor is owned by at most one [`Handle`], which calls
//!   its deleter once, or gives it away and forgets it. A header counts its handles: the last one
//!   releases it, and only an only one writes it, gives it away or takes its owner out.
//! - **R4, class.** [`Access::Exclusive`](crate::Access) is said only of elements that nobody else
//!   can reach, `Frozen` only of elements that nobody writes: a consumer of its export is trusted
//!   not to (C1). Gaps between elements may be somebody else's: no reference ever covers one.
//! - **R5, references.** `&[T]` and `&mut [T]` are formed only over memory of class `Exclusive`
//!   or `Frozen` (or on a caller's word), for [`Plain`] types, aligned, of the same dtype.
//!   Everything else is read through raw pointers or [`ReadCell`].
//! - **R6, header.** The header of an export is one allocation; what is needed to free it stands
//!   outside the part that a consumer can reach.
//! - **R7, own.** What this library allocated, counted or locked itself (a header, a buffer, a
//!   reference) is its alone until it gives it away or back: once, with the layout that it was made
//!   with.
//! - **R8, values.** An [`Element`] is as large as its dtype says, without padding, and its `read`
//!   and `copy_run` make valid values of any bytes.
//! - **R9, threads.** What is `Send` or `Sync` by hand owns or lends plain elements, an owner that
//!   is `Send`, or an address that nothing here looks behind.
//! - **R10, places.** A `Strided` array tells of elements that it owns or borrows and that stay
//!   where they are, initialised, until it is used again.
#![allow(unsafe_code)]

pub(crate) mod descriptor;
pub(crate) mod element;
pub(crate) mod memory;

pub(crate) use descriptor::{Handle, Parts, borrowed, parts};
pub use element::{Element, Plain};
pub use memory::{Iter, ReadCell};
pub(crate) use memory::{RowElements, buffer, elements, exclusive, placement, write};
