//! What the test programs share.
//! Odd producers and owners do not belong here (see `dlbridge_testing`).
#![allow(unsafe_code, reason = "importing a descriptor is unsafe by nature")]
#![allow(dead_code, reason = "each program uses a part of it")]

use std::collections::BTreeMap;

use dlbridge::sys::{DLManagedTensor, DLManagedTensorVersioned};
use dlbridge::{Error, ShapeField, Tensor, layout};
use dlbridge_testing::{CountingOwner, Foreign, Releases};
use proptest::collection::vec;
use proptest::prelude::*;

/// The elements of most tensors here.
pub(crate) const SIX: [f32; 6] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];

/// Imports a descriptor of DLPack 1.x whose elements, where the test reads any, lie in the
/// producer's memory.
pub(crate) fn import(foreign: Foreign) -> Result<Tensor, Error> {
    // SAFETY: each test describes memory that is there, or is refused, or does not read it.
    unsafe { foreign.import() }
}

/// The same for a descriptor of DLPack before 1.0.
pub(crate) fn import_legacy(foreign: Foreign) -> Result<Tensor, Error> {
    // SAFETY: as above.
    unsafe { foreign.import_legacy() }
}

/// Takes back a descriptor that [`Tensor::into_raw`] made.
pub(crate) fn take_back(tensor: *mut DLManagedTensorVersioned) -> Tensor {
    // SAFETY: just made, and owned by the test.
    unsafe { Tensor::from_raw(tensor) }.expect("the gate takes our own exports")
}

/// Takes back a descriptor that [`Tensor::into_raw_legacy`] made.
pub(crate) fn take_back_legacy(tensor: *mut DLManagedTensor) -> Tensor {
    // SAFETY: just made, and owned by the test.
    unsafe { Tensor::from_raw(tensor) }.expect("the gate takes our own exports")
}

/// Calls the deleter of a descriptor of DLPack 1.x that is owned.
pub(crate) fn delete(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: alive until its deleter is called.
    if let Some(deleter) = unsafe { (*tensor).deleter } {
        // SAFETY: owned by the test, which forgets it.
        unsafe { deleter(tensor) };
    }
}

/// Calls the deleter of a descriptor of DLPack before 1.0 that is owned.
pub(crate) fn delete_legacy(tensor: *mut DLManagedTensor) {
    // SAFETY: alive until its deleter is called.
    if let Some(deleter) = unsafe { (*tensor).deleter } {
        // SAFETY: owned by the test, which forgets it.
        unsafe { deleter(tensor) };
    }
}

/// Memory of Rust and of a producer, in two rows, with the count of its releases.
pub(crate) fn owned_and_imported() -> [(Tensor, Releases); 2] {
    let owner = CountingOwner::new(SIX);
    let drops = owner.drops();
    let owned = Tensor::builder(owner).shape([2, 3]).build::<f32>().expect("it fits");
    let foreign = Foreign::new(&[2, 3], &SIX);
    let releases = foreign.releases();
    [(owned, drops), (import(foreign).expect("legal"), releases)]
}

/// The elements of a tensor of float32.
pub(crate) fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.view::<f32>().expect("floats").to_vec()
}

/// Every index of a shape, in row-major order: the brute-force model of a walk.
pub(crate) fn indices(shape: &[i64]) -> Vec<Vec<usize>> {
    if shape.contains(&0) {
        return Vec::new();
    }
    let mut all = vec![Vec::new()];
    for &extent in shape {
        let longer = |index: &Vec<usize>| {
            let index = index.clone();
            (0..usize::try_from(extent).expect("no extent is negative")).map(move |i| {
                let mut index = index.clone();
                index.push(i);
                index
            })
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// The offset of an index's element, in elements, exactly.
pub(crate) fn offset(index: &[usize], strides: &[i64]) -> i128 {
    index.iter().zip(strides).map(|(&i, &stride)| i as i128 * i128::from(stride)).sum()
}

/// Every offset of a layout, in row-major order, exactly.
pub(crate) fn offsets(shape: &[i64], strides: &[i64]) -> Vec<i128> {
    indices(shape).iter().map(|index| offset(index, strides)).collect()
}

/// Whether two indices of a layout reach the same element.
pub(crate) fn overlaps(shape: &[i64], strides: &[i64]) -> bool {
    let mut seen = BTreeMap::new();
    offsets(shape, strides).into_iter().any(|at| seen.insert(at, ()).is_some())
}

/// A shape of few elements, and its strides: contiguous ones, or any.
pub(crate) fn layouts() -> impl Strategy<Value = (Vec<i64>, Vec<i64>)> {
    let extent = prop_oneof![Just(1_i64), Just(2), Just(3), Just(4), Just(6), Just(0)];
    vec(extent, 0..5).prop_flat_map(|shape| {
        let mut contiguous = vec![0; shape.len()];
        layout::contiguous_strides(&shape, &mut contiguous);
        let any = vec(-6..7_i64, shape.len());
        (Just(shape), prop_oneof![Just(contiguous), any])
    })
}

/// A tensor over exactly the memory that a layout reaches, element `i` of which is `i`.
pub(crate) fn exact(shape: &[i64], strides: &[i64]) -> Tensor {
    let span = layout::span(shape, strides).expect("small");
    let owner: Vec<i64> = (0..span.extent() as i64).collect();
    let builder = Tensor::builder(owner).shape(shape).strides(strides);
    builder.offset(span.low.unsigned_abs()).build::<i64>().expect("exactly what it reaches")
}

/// The error for a tensor of another number of axes.
pub(crate) fn other_ndim(expected: usize, found: usize) -> Error {
    Error::ShapeMismatch { field: ShapeField::Ndim, expected, found }
}

/// The error for an axis of another extent.
pub(crate) fn other_extent(axis: usize, expected: usize, found: usize) -> Error {
    Error::ShapeMismatch { field: ShapeField::Extent { axis }, expected, found }
}

/// Whether a tensor was rejected for its ndim, where a matrix was expected.
pub(crate) fn is_no_matrix(error: &Error) -> bool {
    matches!(error, Error::ShapeMismatch { field: ShapeField::Ndim, expected: 2, .. })
}

/// The error for another number of elements.
pub(crate) fn other_length(expected: usize, found: usize) -> Error {
    Error::ShapeMismatch { field: ShapeField::Length, expected, found }
}
