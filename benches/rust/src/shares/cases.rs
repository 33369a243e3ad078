//! The measured cases. Each converts an existing array, reads the first element of the result, and
//! drops it.
//! Invariant: the first case of a group is the reference of the others.

use dlbridge::Tensor;
use dlpark::allocation::dynamic;
use dlpark::ffi::DLManagedTensorVersioned;
use dlpark::{TryFromDlpack, versioned};
use ndarray::{Array2, ArrayView2, ArrayViewD};

use super::floor;

/// A group of cases over arrays of one shape.
pub struct Group {
    /// Its name.
    pub name: &'static str,
    /// The shape of the arrays.
    pub shape: (usize, usize),
    /// The number of arrays per round.
    pub batch: usize,
    /// The measured cases.
    pub cases: Vec<Case>,
}

/// A case: the name of the library and the code.
pub type Case = (&'static str, fn(Array2<f32>) -> f32);

/// The group that needs no other crates than ndarray and the peers.
pub fn group() -> Group {
    Group {
        name: "ndarray -> Tensor -> view",
        shape: (2, 3),
        batch: 1000,
        cases: there_and_back(),
    }
}

/// Converts an array to a tensor, and views that as an array.
pub fn there_and_back() -> Vec<Case> {
    vec![
        ("one-box floor", |array| {
            let managed = floor::share(array);
            // SAFETY: shared just now.
            let view = unsafe { floor::view(managed) };
            let first = view[[0, 0]];
            // SAFETY: the view is no longer used.
            unsafe { floor::release(managed) };
            first
        }),
        ("dlbridge", |array| {
            let tensor = Tensor::from(array);
            tensor.view_as::<ArrayView2<f32>>().expect("exclusive")[[0, 0]]
        }),
        ("dlpark", |array| {
            let boxed: dynamic::Initialized<DLManagedTensorVersioned> =
                Box::new(array).try_into().expect("an array");
            // SAFETY: just created from an array.
            let dlpack: versioned::Dlpack = unsafe { boxed.finish() };
            // SAFETY: no code writes to it.
            let view = unsafe { ArrayViewD::<f32>::try_from_dlpack(&dlpack, ()) };
            view.expect("floats on the CPU")[[0, 0]]
        }),
    ]
}
