//! The traits behind every adapter: array types that become tensors ([`Strided`]), tensors that
//! become views of another crate ([`ViewOf`]), and the functions that check before they convert.
//! The memory file of each adapter implements them for the types of its crate.
#![allow(unsafe_code)]

/// Implements [`Strided`] for an owner that dereferences to an array.
macro_rules! owner_of_array {
    ([$($generics:tt)*] $owner:ty => $array:ty $(, $owns:expr)?) => {
        // SAFETY: the owner has the array in the same place until it is used again (R10).
        unsafe impl<$($generics)*> Strided for $owner {
            type Elem = <$array as Strided>::Elem;
            $(const OWNS: crate::memory::handle::header::Owns = $owns;)?

            #[inline]
            fn axes(&self) -> usize {
                <$array as Strided>::axes(self)
            }

            #[inline]
            fn describe(&self, lists: &mut crate::layout::Lists<'_>) -> Result<(), crate::Error> {
                <$array as Strided>::describe(self, lists)
            }

            #[inline]
            fn origin(&self) -> *const Self::Elem {
                <$array as Strided>::origin(self)
            }
        }
    };
}

/// Also implements [`StridedMut`], for the unique owner of an array.
macro_rules! owner_of_array_mut {
    ([$($generics:tt)*] $owner:ty => $array:ty $(, $owns:expr)?) => {
        owner_of_array!([$($generics)*] $owner => $array $(, $owns)?);

        // SAFETY: a unique borrow of the owner is one of the array (R10).
        unsafe impl<$($generics)*> StridedMut for $owner {
            #[inline]
            fn origin_mut(&mut self) -> *mut Self::Elem {
                <$array as StridedMut>::origin_mut(self)
            }
        }
    };
}

use super::describable;
use crate::layout::{Lists, OwnedLayout};
use crate::memory::checked::Memory;
use crate::memory::descriptor::Borrowed;
use crate::memory::handle::header::Owns;
use crate::memory::{Checked, Handle, Plain};
use crate::{Access, Device, Element, Error, Flags, Tensor, TensorMut, TensorRef, View};

/// A host array: the address of its first element, its shape and its strides.
///
/// # Safety
///
/// While the value is borrowed, and while it stays in place without being used, every element
/// that `describe`'s shape and strides reach from `origin` is alive and initialised; through
/// `&self`, no code writes them.
pub(crate) unsafe trait Strided {
    type Elem: Element;
    /// What the value can drop. [`Owns::Elements`] is a promise that it can drop no tensor.
    const OWNS: Owns = Owns::Anything;

    fn axes(&self) -> usize;

    /// Writes shape and strides, in elements, to lists of length [`axes`](Self::axes).
    fn describe(&self, lists: &mut Lists<'_>) -> Result<(), Error>;

    fn origin(&self) -> *const Self::Elem;
}

/// A [`Strided`] array that may be written through a unique borrow.
///
/// # Safety
///
/// Through `&mut self`, no other code reads or writes the elements from `origin_mut` on.
pub(crate) unsafe trait StridedMut: Strided {
    /// Called before `describe`: a copy-on-write array copies here, which can change its strides.
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
    let ndim = array.axes();
    // SAFETY: `StridedMut`'s duty (R10); the array moved in, so no other code has it (R4).
    unsafe {
        Handle::export(array, A::OWNS, ndim, |array, mut lists| {
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
    let ndim = array.axes();
    // SAFETY: `Strided`'s duty (R10), and an array that is only borrowed is not written (R4).
    unsafe {
        Handle::export(array, A::OWNS, ndim, |array, mut lists| {
            array.describe(&mut lists)?;
            let layout = lists.measure(A::Elem::DTYPE, Flags::READ_ONLY)?;
            Ok((layout, memory(array.origin().cast_mut(), Flags::READ_ONLY, Access::Frozen)))
        })
    }
}

/// Describes a borrowed array, read-only.
///
/// # Panics
///
/// If no tensor can have the array's layout.
#[inline]
#[track_caller]
pub(crate) fn borrow<A: Strided + ?Sized>(array: &A) -> TensorRef<'_> {
    let layout = describable(measure(array));
    let memory = memory(array.origin().cast_mut(), Flags::READ_ONLY, Access::Frozen);
    // SAFETY: `Strided`'s duty, for the borrow's lifetime (R10).
    TensorRef::from_borrowed(unsafe { Borrowed::new(layout, memory) })
}

/// Describes a mutably borrowed array, writable and exclusive.
///
/// # Panics
///
/// If no tensor can have the array's layout.
#[inline]
#[track_caller]
pub(crate) fn borrow_mut<A: StridedMut + ?Sized>(array: &mut A) -> TensorMut<'_> {
    let memory = memory(array.origin_mut(), Flags::NONE, Access::Exclusive);
    let layout = describable(measure(array));
    // SAFETY: `StridedMut`'s duty, for the borrow's lifetime (R10).
    TensorMut(unsafe { Borrowed::new(layout, memory) })
}

#[inline]
fn measure<A: Strided + ?Sized>(array: &A) -> Result<OwnedLayout, Error> {
    let (dtype, describe) = (A::Elem::DTYPE, |lists: &mut Lists<'_>| array.describe(lists));
    OwnedLayout::measure(array.axes(), dtype, Flags::NONE, describe)
}

fn memory<T: Element>(data: *mut T, flags: Flags, access: Access) -> Memory {
    Memory { data: data.cast(), byte_offset: 0, device: Device::CPU, flags, access }
}

/// A view type of another crate, over elements that are borrowed for `'a`.
pub(crate) trait ViewOf<'a>: Sized {
    type Elem: Plain;

    /// Makes the view, if the type can have the shape and strides of `checked`.
    ///
    /// # Safety
    ///
    /// `data` is the address of the first element of `checked`: host memory of this type, aligned.
    /// For `'a`, the elements are alive, and no code writes them.
    unsafe fn over(data: *const Self::Elem, checked: &Checked<'_>) -> Result<Self, Error>;
}

/// A mutable view type of another crate, over elements that are borrowed for `'a`.
pub(crate) trait ViewMutOf<'a>: Sized {
    type Elem: Plain;

    /// Makes the view, if the type can have the shape and strides of `checked`.
    ///
    /// # Safety
    ///
    /// `data` is the address of the first element of `checked`: host memory of this type, aligned.
    /// No two indices reach the same element. For `'a`, the elements are alive, and no other code
    /// reads or writes them.
    unsafe fn over_mut(data: *mut Self::Elem, checked: &Checked<'_>) -> Result<Self, Error>;
}

/// A borrow of a tensor from which elements can be read for `'a`.
///
/// # Safety
///
/// For `'a`, the elements of `checked` are alive and of the class that `checked` states (R2, R4).
pub(crate) unsafe trait Source<'a> {
    fn checked(&self) -> Checked<'_>;
}

/// A borrow of a tensor through which elements can be written for `'a`.
///
/// # Safety
///
/// As for [`Source`]; for `'a`, the tensor is borrowed mutably.
pub(crate) unsafe trait SourceMut<'a> {
    fn checked(&self) -> Checked<'_>;
}

// SAFETY: the tensor that owns the memory is borrowed for `'a` (R2).
unsafe impl<'a> Source<'a> for &'a Tensor {
    #[inline(always)]
    fn checked(&self) -> Checked<'_> {
        (**self).checked()
    }
}

// SAFETY: the borrow that the tensor stands for outlives `'a` (R2).
unsafe impl<'a> Source<'a> for &'a TensorRef<'_> {
    #[inline(always)]
    fn checked(&self) -> Checked<'_> {
        (**self).checked()
    }
}

// SAFETY: the same.
unsafe impl<'a> Source<'a> for &'a TensorMut<'_> {
    #[inline(always)]
    fn checked(&self) -> Checked<'_> {
        (**self).checked()
    }
}

// SAFETY: the tensor stands for a borrow of `'a`, which does not end with it (R2).
unsafe impl<'a> Source<'a> for TensorRef<'a> {
    #[inline(always)]
    fn checked(&self) -> Checked<'_> {
        TensorRef::checked(self)
    }
}

// SAFETY: a view borrows its elements for `'a` (R2).
unsafe impl<'a, T: Element> Source<'a> for View<'a, T> {
    #[inline(always)]
    fn checked(&self) -> Checked<'_> {
        *self.elements.checked()
    }
}

// SAFETY: the tensor that owns the memory is borrowed mutably for `'a` (R2).
unsafe impl<'a> SourceMut<'a> for &'a mut Tensor {
    #[inline(always)]
    fn checked(&self) -> Checked<'_> {
        (**self).checked()
    }
}

// SAFETY: the same, and the borrow that it stands for outlives `'a`.
unsafe impl<'a> SourceMut<'a> for &'a mut TensorMut<'_> {
    #[inline(always)]
    fn checked(&self) -> Checked<'_> {
        (**self).checked()
    }
}

// SAFETY: the tensor stands for a unique borrow of `'a`, and is gone afterwards (R2).
unsafe impl<'a> SourceMut<'a> for TensorMut<'a> {
    #[inline(always)]
    fn checked(&self) -> Checked<'_> {
        TensorMut::checked(self)
    }
}

/// Makes a view of the elements, if no other code can write them.
///
/// # Errors
///
/// `DTypeMismatch`, `SharedMemory`, `NotHostAccessible`, `Misaligned`, and those of the view type.
#[inline]
pub(crate) fn view<'a, V: ViewOf<'a>>(source: impl Source<'a>) -> Result<V, Error> {
    let checked = source.checked();
    checked.check_dtype(V::Elem::DTYPE)?;
    checked.check_unwritten()?;
    let data = checked.typed_data::<V::Elem>()?;
    // SAFETY: checked just now; alive, and of a class that no code writes, for `'a` (R4,
    // `Source`'s duty).
    unsafe { V::over(data, &checked) }
}

/// Makes a mutable view of the elements, if no other code can reach them.
///
/// # Errors
///
/// `ReadOnly`, `Overlapping`, and those of [`view`].
#[inline]
pub(crate) fn view_mut<'a, V: ViewMutOf<'a>>(source: impl SourceMut<'a>) -> Result<V, Error> {
    let checked = source.checked();
    checked.check_dtype(V::Elem::DTYPE)?;
    checked.check_exclusive()?;
    checked.check_distinct()?;
    let data = checked.typed_data::<V::Elem>()?;
    // SAFETY: checked just now; borrowed mutably for `'a` (`SourceMut`'s duty), and of the class
    // that no other code has (R4).
    unsafe { V::over_mut(data, &checked) }
}
