//! The suite for conversions that take a [`Tensor`] by value. Its tensors are those of `reader`.

use std::fmt::Debug;

use dlbridge::{Element, Error, Tensor};

use super::Refusal;
use super::reader::every;

/// Tests a conversion that takes a tensor by value with every layout that it may meet. `take` converts,
/// and returns the elements in row-major order, or the converted value.
///
/// Each tensor must be read correctly or rejected; the rejected ones are returned. Another dtype, and
/// memory that the host cannot read, must be rejected. Each deleter must be called once: when the
/// converted value is dropped, or when the tensor is rejected.
///
/// ```
/// use dlbridge_testing::conformance;
///
/// let refused = conformance::taker::<f64, _>(|tensor| {
///     let kept = std::sync::Arc::new(tensor);
///     Ok(kept.as_slice()?.to_vec())
/// });
/// assert!(refused.iter().any(|refusal| refusal.tensor == "contiguous, shared"));
/// ```
///
/// # Panics
///
/// If the conversion does not conform, saying where.
#[track_caller]
pub fn taker<T, I>(mut take: impl FnMut(Tensor) -> Result<I, Error>) -> Vec<Refusal>
where
    T: Element + PartialEq + Debug,
    I: IntoIterator<Item = T>,
{
    every(|_, _, tensor, _| take(tensor))
}
