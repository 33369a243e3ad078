//! The suites for conversions from a [`Tensor`], borrowed or taken by value, to another type. Their tensors are all legal.
#![allow(unsafe_code, reason = "odd tensors come from foreign descriptors")]

use std::fmt::Debug;

use dlbridge::{Access, DType, Device, DeviceKind, Element, Error, Tensor, TypeCode};

use crate::{Foreign, Releases};

/// A legal tensor that a conversion would not take.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// Which of the suite's tensors: `"reversed"`, `"0-d"`, ...
    pub tensor: &'static str,
    /// What the conversion said.
    pub error: Error,
}

/// Numbers whose bytes make elements of any type: every byte of element `i` is `i + 1`, so that
/// elements differ and `bool`s are true.
fn numbers(size: usize, count: u8) -> Vec<u8> {
    (1..=count).flat_map(|i| std::iter::repeat_n(i, size)).collect()
}

/// Tests a conversion from a borrowed tensor with every layout that it may meet. `read` converts, and
/// returns the elements in row-major order.
///
/// Each tensor must be read correctly or rejected; the rejected ones are returned. Another dtype, and
/// memory that the host cannot read, must be rejected. Each deleter must be called once.
///
/// ```
/// use dlbridge_testing::conformance;
///
/// let refused = conformance::reader(|tensor| Ok(tensor.as_slice::<f64>()?.to_vec()));
/// let names: Vec<_> = refused.iter().map(|refusal| refusal.tensor).collect();
/// assert!(names.contains(&"reversed") && !names.contains(&"contiguous"));
/// ```
///
/// # Panics
///
/// If the conversion does not conform, saying where.
#[track_caller]
pub fn reader<T, I>(mut read: impl FnMut(&Tensor) -> Result<I, Error>) -> Vec<Refusal>
where
    T: Element + PartialEq + Debug,
    I: IntoIterator<Item = T>,
{
    every(|name, access, tensor, releases| {
        if let Some(access) = access {
            assert_eq!(tensor.access(), access, "{name}: access class");
        }
        let found = read(&tensor).map(|found| found.into_iter().collect::<Vec<T>>());
        releases.expect(0, name);
        found
    })
}

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

/// Tests a conversion, which gets the tensor and its name, and the access class of a legal one.
#[track_caller]
fn every<T, I>(
    mut convert: impl FnMut(&str, Option<Access>, Tensor, &Releases) -> Result<I, Error>,
) -> Vec<Refusal>
where
    T: Element + PartialEq + Debug,
    I: IntoIterator<Item = T>,
{
    let mut refused = Vec::new();
    for (name, access, foreign) in legal::<T>() {
        let foreign = foreign.class(access);
        let releases = foreign.releases();
        // SAFETY: the shapes and strides of `legal` stay inside the memory (T3).
        let tensor = unsafe { foreign.import() }.expect("a legal tensor");
        let wanted = tensor.view::<T>().expect("a view takes every layout").to_vec();
        match convert(name, Some(access), tensor, &releases) {
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
        assert!(convert(name, None, tensor, &releases).is_err(), "{name}: must be refused");
        releases.expect(1, name);
    }
    refused
}

fn legal<T: Element>() -> Vec<(&'static str, Access, Foreign)> {
    let size = size_of::<T>();
    let of = |shape: &[i64]| Foreign::of_bytes(T::DTYPE, shape, &numbers(size, 12));
    use Access::{Exclusive, Frozen, Shared};
    vec![
        ("contiguous", Exclusive, of(&[2, 6])),
        ("contiguous, read-only", Frozen, of(&[2, 6])),
        ("contiguous, shared", Shared, of(&[2, 6])),
        ("null strides", Exclusive, of(&[3, 4]).null_strides()),
        ("one axis", Exclusive, of(&[12])),
        ("0-d", Exclusive, of(&[])),
        ("0-d, null lists", Exclusive, of(&[]).null_shape().null_strides()),
        ("3-d", Exclusive, of(&[2, 3, 2])),
        ("9-d", Exclusive, of(&[1, 1, 2, 1, 3, 1, 1, 2, 1])),
        ("column-major", Exclusive, of(&[3, 4]).strides(&[1, 3])),
        ("every second", Exclusive, of(&[6]).strides(&[2])),
        ("reversed", Exclusive, of(&[12]).strides(&[-1]).data_at(11 * size)),
        ("rows reversed", Exclusive, of(&[3, 4]).strides(&[-4, 1]).data_at(8 * size)),
        ("broadcast", Exclusive, of(&[3, 4]).strides(&[0, 1])),
        ("sliding windows", Exclusive, of(&[10, 3]).strides(&[1, 1])),
        ("byte offset", Exclusive, of(&[2, 3]).byte_offset(6 * size as u64)),
        ("extent 1, odd stride", Exclusive, of(&[1, 4]).strides(&[i64::MIN, 1])),
        ("odd address", Exclusive, of(&[5]).data_at(1)),
        ("no elements", Exclusive, of(&[0])),
        ("no elements, null data", Exclusive, of(&[3, 0]).data(std::ptr::null_mut())),
        ("no elements, odd strides", Exclusive, of(&[2, 0, 3]).strides(&[-9, 7, i64::MAX])),
        ("pinned", Exclusive, of(&[12]).device("cuda_host:1".parse().expect("a name"))),
    ]
}

fn illegal<T: Element>() -> Vec<(&'static str, Foreign)> {
    let of = || Foreign::of_bytes(T::DTYPE, &[4], &numbers(size_of::<T>(), 4));
    let exclusive = |foreign: Foreign| foreign.class(Access::Exclusive);
    let other = DType { code: TypeCode(99), ..T::DTYPE };
    let lanes = T::DTYPE.lanes + 1;
    vec![
        ("another dtype", exclusive(of().dtype(other))),
        ("one lane more", exclusive(of().dtype(T::DTYPE.with_lanes(lanes)).strides(&[0]))),
        ("device memory", exclusive(of().device(Device::cuda(0)))),
        ("device memory, shared", of().device(Device::cuda(0))),
        ("unknown device", exclusive(of().device(Device::new(DeviceKind(99), 0)))),
    ]
}
