//! Where the memory of array types lies: one file for each crate and version.
//! Conversions do not belong here (see `adapters`): only what a type's author would vouch for.
//! Invariant: an implementation tells of memory that the value owns or borrows, and no more.

/// An owner that lends an array by dereferencing to it.
macro_rules! lend {
    ([$($generics:tt)*] $owner:ty => $array:ty) => {
        // SAFETY: the owner lends the array from the same place until it is used again (R10).
        unsafe impl<$($generics)*> Strided for $owner {
            type Elem = <$array as Strided>::Elem;

            #[inline]
            fn axes(&self) -> usize {
                <$array as Strided>::axes(self)
            }

            #[inline]
            fn describe(&self, lists: &mut crate::raw::arrays::Lists<'_>) -> Result<(), crate::Error> {
                <$array as Strided>::describe(self, lists)
            }

            #[inline]
            fn origin(&self) -> *const Self::Elem {
                <$array as Strided>::origin(self)
            }
        }
    };
}

/// The same, for an owner that has the array to itself.
macro_rules! lend_mut {
    ([$($generics:tt)*] $owner:ty => $array:ty) => {
        lend!([$($generics)*] $owner => $array);

        // SAFETY: a unique borrow of the owner is one of the array (R10).
        unsafe impl<$($generics)*> StridedMut for $owner {
            #[inline]
            fn origin_mut(&mut self) -> *mut Self::Elem {
                <$array as StridedMut>::origin_mut(self)
            }
        }
    };
}

// Below the macros, which they use.
#[cfg(feature = "arrow-60")]
pub(crate) mod arrow_60;
#[cfg(feature = "burn-0_22")]
pub(crate) mod burn_0_22;
#[cfg(feature = "candle-core-0_11")]
pub(crate) mod candle_core_0_11;
#[cfg(feature = "cudarc-0_19")]
pub(crate) mod cudarc_0_19;
#[cfg(feature = "faer-0_24")]
mod faer_0_24;
#[cfg(feature = "nalgebra-0_35")]
pub(crate) mod nalgebra_0_35;
#[cfg(feature = "ndarray-0_17")]
pub(crate) mod ndarray_0_17;
pub(crate) mod std_owners;

pub(crate) use std_owners::Scalar;

use super::Handle;
use super::borrowed::Borrowed;
use super::element::Element;
pub(crate) use super::layout::Lists;
use super::layout::OwnedLayout;
use super::parts::Memory;
use crate::{Access, Device, Error, Flags};

/// A host array whose elements lie at `origin`, as far apart as its strides say.
///
/// # Safety
///
/// While the value is borrowed, and while it stays where it is without being used, every element
/// that `describe`'s shape and strides reach from `origin` is alive and initialised; through
/// `&self`, nobody writes them.
pub(crate) unsafe trait Strided {
    type Elem: Element;

    fn axes(&self) -> usize;

    /// Writes shape and strides, in elements, to lists of length [`axes`](Self::axes).
    fn describe(&self, lists: &mut Lists<'_>) -> Result<(), Error>;

    fn origin(&self) -> *const Self::Elem;
}

/// A [`Strided`] array that may be written through a unique borrow.
///
/// # Safety
///
/// Through `&mut self`, nobody else reads or writes the elements from `origin_mut` on.
pub(crate) unsafe trait StridedMut: Strided {
    /// Called before `describe`: an array that copies what it shares changes its strides here.
    fn origin_mut(&mut self) -> *mut Self::Elem;
}

/// Exports an owned array, writable.
///
/// # Errors
///
/// Those of `Layout::measure`.
#[inline]
pub(crate) fn export<A>(array: A) -> Result<Handle, Error>
where
    A: StridedMut + Send + 'static,
{
    let rank = array.axes();
    // SAFETY: `StridedMut`'s duty (R10); the array moved in, so nobody else has it (R4).
    unsafe {
        Handle::export(array, rank, |array, mut lists| {
            let memory = memory(array.origin_mut(), Flags::NONE, Access::Exclusive);
            array.describe(&mut lists)?;
            Ok((lists.measure(A::Elem::DTYPE, Flags::NONE)?, memory))
        })
    }
}

/// Exports an immutable array, read-only.
///
/// # Errors
///
/// As for [`export`].
pub(crate) fn export_frozen<A>(array: A) -> Result<Handle, Error>
where
    A: Strided + Send + 'static,
{
    let rank = array.axes();
    // SAFETY: `Strided`'s duty (R10), and an array that is only borrowed is not written (R4).
    unsafe {
        Handle::export(array, rank, |array, mut lists| {
            array.describe(&mut lists)?;
            let layout = lists.measure(A::Elem::DTYPE, Flags::READ_ONLY)?;
            Ok((layout, memory(array.origin().cast_mut(), Flags::READ_ONLY, Access::Frozen)))
        })
    }
}

/// Describes an array that is only borrowed: read-only.
///
/// # Errors
///
/// As for [`export`].
#[inline]
pub(crate) fn borrow<A: Strided + ?Sized>(array: &A) -> Result<Borrowed<'_>, Error> {
    let layout = measure(array)?;
    let memory = memory(array.origin().cast_mut(), Flags::READ_ONLY, Access::Frozen);
    // SAFETY: `Strided`'s duty, for the borrow's lifetime (R10).
    Ok(unsafe { Borrowed::new(layout, memory) })
}

/// Describes an array that is borrowed mutably: writable, and nobody else's meanwhile.
///
/// # Errors
///
/// As for [`export`].
#[inline]
pub(crate) fn borrow_mut<A: StridedMut + ?Sized>(array: &mut A) -> Result<Borrowed<'_>, Error> {
    let memory = memory(array.origin_mut(), Flags::NONE, Access::Exclusive);
    let layout = measure(array)?;
    // SAFETY: `StridedMut`'s duty, for the borrow's lifetime (R10).
    Ok(unsafe { Borrowed::new(layout, memory) })
}

#[inline]
fn measure<A: Strided + ?Sized>(array: &A) -> Result<OwnedLayout, Error> {
    let (dtype, describe) = (A::Elem::DTYPE, |lists: &mut Lists<'_>| array.describe(lists));
    OwnedLayout::measure(array.axes(), dtype, Flags::NONE, describe)
}

fn memory<T: Element>(data: *mut T, flags: Flags, access: Access) -> Memory {
    Memory { data: data.cast(), byte_offset: 0, device: Device::CPU, flags, access }
}
