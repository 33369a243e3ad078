//! The Python object that keeps a tensor's memory, shown to the garbage collector: an object that keeps a tensor over its own memory is a cycle.
//!
//! Invariant: a reference is shown by one object, which then is the only one that has it. The collector subtracts each
//! reference that is shown from the count of its object, and frees an object that has none left. So a reference that
//! handles share is not shown at all, since a handle in Rust, which the collector does not know, may be among them.
//!
//! What `__traverse__` may touch:
//!
//! - the fields of the object, which is frozen, and which its dealloc takes off the collector's list before it frees them;
//! - the header of its tensor, of which it has a handle: the type of the owner, and the count of handles, which is atomic;
//! - an owner that is an object, an acquired buffer, or those of an array interface, which nothing writes while the header is
//!   alive.
//!
//! It runs in the middle of any allocation of Python, and without the GIL while all attached threads stand still, wherever
//! they are. So it takes no lock, calls no Python code, changes no reference count, and allocates nothing. A detached
//! thread may share the tensor meanwhile, but only by an object to which it has a reference: that object is in use, and so
//! is all that it keeps.
//!
//! A tensor of another owner never has a reference to show, so the collector need not know its object ([`is_shown`]).
//!
//! No function clears an object of the class: each cycle has an object that can be cleared, the one that keeps the tensor. Memory behind a
//! capsule or an Arrow struct is of unknown owners: a cycle through it is not found.

use dlbridge::ArcTensor;
use dlbridge::ffi::{has_owner, sole_owner};
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use super::acquired::Acquired;
use super::interface::Owners;
use crate::release::Owner;

/// Whether [`visit`] may show an object of this tensor, now or once other handles are dropped.
#[inline]
pub(crate) fn is_shown(tensor: &ArcTensor) -> bool {
    has_owner::<Owner<Py<PyAny>>>(tensor)
        || has_owner::<Owner<Acquired>>(tensor)
        || has_owner::<Owner<Owners>>(tensor)
}

/// Shows the collector the object that keeps the memory of a tensor.
pub(crate) fn visit(tensor: &ArcTensor, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
    // SAFETY: a reference to an object reaches its memory by the GIL alone (F1, R5).
    if let Some(object) = unsafe { sole_owner::<Owner<Py<PyAny>>>(tensor) } {
        return visit.call(&**object);
    }
    // SAFETY: a buffer reaches its memory by a pointer (F8, R5).
    if let Some(buffer) = unsafe { sole_owner::<Owner<Acquired>>(tensor) } {
        return visit.call(buffer.object());
    }
    // SAFETY: the same, of a buffer and of objects (F1, F8, R5).
    let Some(owners) = (unsafe { sole_owner::<Owner<Owners>>(tensor) }) else { return Ok(()) };
    visit.call(&owners.objects)?;
    visit.call(owners.buffer.as_ref().and_then(Acquired::object))
}
