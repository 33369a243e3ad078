//! The compiler's message for a view that is indexed: `view[[i, j]]`.
//! Invariant: no type implements `ByReference`, so that no view hands out a `&T`.

use std::ops::{Index, IndexMut};

use super::view::{View, ViewMut};

/// No type implements it: its message is what `view[[i, j]]` shows.
#[diagnostic::on_unimplemented(
    message = "the elements of a view are read and written by value, not indexed",
    label = "a view has no references to its elements",
    note = "read one by `view.get(&[i, j])`, write one by `view.set(&[i, j], value)?`",
    note = "all of them: `view.iter()`, `view.rows()`, `view.map_inplace(...)`, `view.zip_inplace(...)`"
)]
pub trait ByReference {
    /// Is never called.
    fn never(&self) -> !;
}

#[doc(hidden)]
#[diagnostic::do_not_recommend]
impl<T, I> Index<I> for View<'_, T>
where
    Self: ByReference,
{
    type Output = T;

    fn index(&self, _: I) -> &T {
        self.never()
    }
}

#[doc(hidden)]
#[diagnostic::do_not_recommend]
impl<T, I> Index<I> for ViewMut<'_, T>
where
    Self: ByReference,
{
    type Output = T;

    fn index(&self, _: I) -> &T {
        self.never()
    }
}

#[doc(hidden)]
#[diagnostic::do_not_recommend]
impl<T, I> IndexMut<I> for ViewMut<'_, T>
where
    Self: ByReference,
{
    fn index_mut(&mut self, _: I) -> &mut T {
        self.never()
    }
}
