//! `Tensor`, the owning handle, and the types that borrow, share or view one.

// First, so that the page of `Tensor` opens with these methods.
mod tensors;

mod accessors;
mod builder;
mod in_place;
mod memory;
#[cfg(feature = "rayon")]
mod parallel;
mod parts;
mod rows;
mod view;

pub use self::parts::ViewPart;
pub use builder::Builder;
pub use in_place::ChunksMut;
pub use memory::{ArcTensor, TensorSlice, TensorSliceMut, ffi};
#[cfg(feature = "rayon")]
pub use parallel::ParIter;
pub use parts::Parts;
pub use rows::{AxisIter, ByReference, Indexed, Pieces, Rows, Zip};
pub use tensors::{Tensor, TensorMut, TensorRef};
pub use view::{View, ViewMut};
