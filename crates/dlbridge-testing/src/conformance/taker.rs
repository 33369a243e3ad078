//! The suite for conversions that take a [`Tensor`] by value. Its tensors are those of `reader`.
#![allow(unsafe_code, reason = "odd tensors come from foreign descriptors")]

use std::fmt::Debug;

use dlbridge::{Element, Error, Tensor};

use super::Refusal;
use super::reader::{illegal, legal};

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
    let mut refused = Vec::new();
    for (name, _, foreign) in legal::<T>() {
        let releases = foreign.releases();
        // SAFETY: the shapes and strides of `legal` stay inside the memory (T3).
        let tensor = unsafe { foreign.import() }.expect("a legal tensor");
        let wanted = tensor.view::<T>().expect("a view takes every layout").to_vec();
        match take(tensor) {
            Ok(found) => {
                let found: Vec<T> = found.into_iter().collect();
                assert_eq!(found, wanted, "{name}: elements in row-major order");
            }
            Err(error) => refused.push(Refusal { tensor: name, error }),
        }
        releases.expect(1, name);
    }
    for (name, foreign) in illegal::<T>() {
        let releases = foreign.releases();
        // SAFETY: as above; no code reads device memory (T3, T7).
        let tensor = unsafe { foreign.import() }.expect("a legal tensor");
        assert!(take(tensor).is_err(), "{name}: must be refused");
        releases.expect(1, name);
    }
    refused
}
