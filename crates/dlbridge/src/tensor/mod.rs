//! `Tensor`, the owning handle, and the types that borrow, share or view one.

// First, so that the page of `Tensor` opens with these methods.
mod owned;

mod accessors;
mod builder;
mod in_place;
#[cfg(feature = "rayon")]
mod parallel;
mod parts;
mod raw;
mod rows;
mod tensor_ref;
mod view;

pub use self::parts::ViewPart;
pub use builder::Builder;
pub use in_place::ChunksMut;
pub use owned::Tensor;
pub(crate) use owned::debug;
#[cfg(feature = "rayon")]
pub use parallel::ParIter;
pub use parts::Parts;
pub use raw::{ArcTensor, TensorSlice, TensorSliceMut, ffi};
pub use rows::{AxisIter, Indexed, Pieces, Rows, Zip};
pub use tensor_ref::{TensorMut, TensorRef};
pub use view::{View, ViewMut};
