//! The suite for conversions that take a [`Tensor`] by value. Its tensors are those of `reader`.
#![allow(unsafe_code, reason = "odd tensors come from foreign descriptors")]

use std::fmt::Debug;

use super::Refusal;
use super::reader::{illegal, legal};
use crate::{Element, Error, Tensor};

/// Gives a conversion that takes a tensor by value every layout that it may meet. `take` converts,
/// and gives back the elements in row-major order, or what was made of the tensor, to be read.
///
/// Each tensor must be read as it is or refused; the refused ones are returned. Another dtype, and
/// memory that the host cannot read, must be refused. Each tensor must be released once: when
/// what was made of it is dropped, or when it is refused.
///
/// ```
/// use dlbridge::testing::conformance;
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
        // SAFETY: as above; nobody reads what lies on a device (T3, T7).
        let tensor = unsafe { foreign.import() }.expect("a legal tensor");
        assert!(take(tensor).is_err(), "{name}: must be refused");
        releases.expect(1, name);
    }
    refused
}
