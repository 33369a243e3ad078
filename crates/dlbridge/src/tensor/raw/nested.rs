//! `Nested`: a tensor inside a value that may become the owner of another tensor. Its drop is part of
//! the loop in `raw/handle/release.rs`.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use crate::Tensor;
use crate::raw::handle::release::release;

/// A tensor inside a value that may become the owner of another tensor.
pub(crate) struct Nested(ManuallyDrop<Tensor>);

impl Nested {
    pub(crate) fn new(tensor: Tensor) -> Self {
        Self(ManuallyDrop::new(tensor))
    }

    pub(crate) fn into_inner(self) -> Tensor {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used again, nor dropped (R7).
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl Deref for Nested {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.0
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        // SAFETY: taken once, here (R7).
        let tensor = unsafe { ManuallyDrop::take(&mut self.0) };
        release(tensor.0);
    }
}
