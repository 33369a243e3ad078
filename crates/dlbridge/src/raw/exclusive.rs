//! Mutable access through a unique borrow of whatever owns or borrows the memory.
//! Access on a caller's word does not belong here.
//! Invariant: the borrow that is lent out is the one that was lent in.

use super::borrowed::Borrowed;
use super::element::Element;
use super::write::ElementsMut;
use super::{Handle, Parts, Plain};
use crate::Error;

/// What checked parts are borrowed from.
pub(crate) trait Lender {
    fn lend(&self) -> Parts<'_>;
}

impl Lender for Handle {
    fn lend(&self) -> Parts<'_> {
        self.parts()
    }
}

impl Lender for Borrowed<'_> {
    fn lend(&self) -> Parts<'_> {
        self.parts()
    }
}

pub(crate) fn slice_mut<T: Plain>(lender: &mut impl Lender) -> Result<&mut [T], Error> {
    // SAFETY: the lender is borrowed mutably for as long (R2).
    unsafe { lender.lend().slice_mut() }
}

pub(crate) fn elements_mut<T: Element>(
    lender: &mut impl Lender,
) -> Result<ElementsMut<'_, T>, Error> {
    let parts = lender.lend();
    parts.check_exclusive()?;
    // SAFETY: the lender is borrowed mutably for as long, and nobody else has the elements (R4).
    unsafe { ElementsMut::new(parts) }
}
