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
            fn describe(&self, shape: &mut [i64], strides: &mut [i64]) {
                <$array as Strided>::describe(self, shape, strides);
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
use super::header::Memory;
use crate::{Access, Device, Error, Flags};

/// A host array whose elements lie at `origin`, as far apart as its strides say.
///
/// # Safety
///
/// While the value is borrowed, and while it stays where it is without being used, every element
/// that `describe`'s shape and strides reach from `origin` is alive and initialised, and no extent
/// is negative; through `&self`, nobody writes them.
pub(crate) unsafe trait Strided {
    type Elem: Element;

    fn axes(&self) -> usize;

    /// Writes shape and strides, in elements, to lists of length [`axes`](Self::axes).
    fn describe(&self, shape: &mut [i64], strides: &mut [i64]);

    fn origin(&self) -> *const Self::Elem;
}

/// A [`Strided`] array that may be written through a unique borrow.
///
/// # Safety
///
/// Through `&mut self`, nobody else reads or writes the elements from `origin_mut` on.
pub(crate) unsafe trait StridedMut: Strided {
    fn origin_mut(&mut self) -> *mut Self::Elem;
}

/// Exports an owned array, writable.
#[inline]
pub(crate) fn export<A>(array: A) -> Result<Handle, Error>
where
    A: StridedMut + Send + 'static,
{
    let rank = array.axes();
    let describe = |array: &mut A, shape: &mut [i64], strides: &mut [i64]| {
        array.describe(shape, strides);
        Ok(memory(array.origin_mut(), Flags::NONE, Access::Exclusive))
    };
    // SAFETY: `StridedMut`'s duty; the array moved in, so nobody else has it.
    unsafe { Handle::export(array, rank, describe) }
}

/// Exports an immutable array, read-only.
pub(crate) fn export_frozen<A>(array: A) -> Result<Handle, Error>
where
    A: Strided + Send + 'static,
{
    let rank = array.axes();
    let describe = |array: &mut A, shape: &mut [i64], strides: &mut [i64]| {
        array.describe(shape, strides);
        Ok(memory(array.origin().cast_mut(), Flags::READ_ONLY, Access::Frozen))
    };
    // SAFETY: `Strided`'s duty, and an array that is only borrowed is not written.
    unsafe { Handle::export(array, rank, describe) }
}

/// Describes an array that is only borrowed: read-only.
#[inline]
pub(crate) fn borrow<A: Strided + ?Sized>(array: &A) -> Borrowed<'_> {
    let describe = |shape: &mut [i64], strides: &mut [i64]| array.describe(shape, strides);
    let memory = memory(array.origin().cast_mut(), Flags::READ_ONLY, Access::Frozen);
    // SAFETY: `Strided`'s duty, for the borrow's lifetime.
    unsafe { Borrowed::new(memory, array.axes(), describe) }
}

/// Describes an array that is borrowed mutably: writable, and nobody else's meanwhile.
#[inline]
pub(crate) fn borrow_mut<A: StridedMut + ?Sized>(array: &mut A) -> Borrowed<'_> {
    let memory = memory(array.origin_mut(), Flags::NONE, Access::Exclusive);
    let describe = |shape: &mut [i64], strides: &mut [i64]| array.describe(shape, strides);
    // SAFETY: `StridedMut`'s duty, for the borrow's lifetime; `describe` reads only metadata.
    unsafe { Borrowed::new(memory, array.axes(), describe) }
}

fn memory<T: Element>(data: *mut T, flags: Flags, access: Access) -> Memory {
    let data = data.cast();
    Memory { data, byte_offset: 0, dtype: T::DTYPE, device: Device::CPU, flags, access }
}
