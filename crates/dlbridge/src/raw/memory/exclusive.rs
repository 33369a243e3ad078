//! Mutable access to elements through a unique borrow of the handle or description that has them.
//! Access to memory of another class belongs to `tensor/raw/mod.rs`.

use super::write::ElementsMut;
use crate::Error;
use crate::raw::borrowed::Borrowed;
use crate::raw::{Checked, Element, Handle, Plain};

/// A description of memory that can be borrowed mutably.
pub(crate) trait Described {
    fn described(&self) -> Checked<'_>;
}

impl Described for Handle {
    fn described(&self) -> Checked<'_> {
        self.checked()
    }
}

impl Described for Borrowed<'_> {
    fn described(&self) -> Checked<'_> {
        self.checked()
    }
}

pub(crate) fn slice_mut<T: Plain>(memory: &mut impl Described) -> Result<&mut [T], Error> {
    // SAFETY: `memory` is borrowed mutably as long as the slice (R2).
    unsafe { memory.described().slice_mut() }
}

pub(crate) fn bytes_mut(memory: &mut impl Described) -> Result<&mut [u8], Error> {
    // SAFETY: `memory` is borrowed mutably as long as the bytes (R2).
    unsafe { memory.described().bytes_mut() }
}

pub(crate) fn elements_mut<T: Element>(
    memory: &mut impl Described,
) -> Result<ElementsMut<'_, T>, Error> {
    let checked = memory.described();
    checked.check_exclusive()?;
    // SAFETY: `memory` is borrowed mutably as long, and no other code can reach the elements (R4).
    unsafe { ElementsMut::new(checked) }
}
