//! Tools for testing adapters and bindings: fake producers, counting owners, and the suites that every
//! conversion must pass.
//!
//! A failed check panics with a message that names it.
//!
//! | to test | call |
//! | --- | --- |
//! | a conversion from your type to a `Tensor` | [`conformance::owner`] |
//! | a conversion from a borrow of it to a `TensorRef` | [`conformance::borrowed`] |
//! | a conversion from a `&Tensor` to your type | [`conformance::reader`] |
//! | a conversion of a whole `Tensor` to your type | [`conformance::taker`] |
//! | the import of an unusual descriptor | [`Foreign`] |
//! | who drops an owner, how often, and what if that panics | [`CountingOwner`] |
//! | the order of work on CUDA streams, without a GPU | [`FakeDriver`] |
//!
//! A whole adapter in two calls:
//!
//! ```
//! use dlbridge::Tensor;
//! use dlbridge_testing::conformance::{self, Expected};
//!
//! conformance::owner(|| {
//!     let values = vec![1.0_f32, 2.0, 3.0];
//!     let expected = Expected::new(&[3], &values).at(values.as_ptr());
//!     (Tensor::from(values), expected)
//! });
//!
//! let refused = conformance::reader(|tensor| Vec::<f32>::try_from(tensor));
//! assert!(refused.is_empty(), "a copy takes every layout: {refused:?}");
//! ```

pub mod conformance;
mod fake_driver;
mod foreign;
mod owner;

pub use fake_driver::FakeDriver;
pub use foreign::Foreign;
pub use owner::{CountingOwner, PanicOnBorrow, PanicOnDrop, Releases};
