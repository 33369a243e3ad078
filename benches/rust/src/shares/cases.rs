//! What is measured. Each case takes an array that was made before, uses the first element of what
//! it becomes, and drops it.
//! Invariant: the first case of a group is what the others are compared with.

use dlbridge::Tensor;
use dlpark::allocation::dynamic;
use dlpark::ffi::DLManagedTensorVersioned;
use dlpark::{TryFromDlpack, versioned};
use ndarray::{Array2, ArrayView2, ArrayViewD, Ix2};

use super::floor;

/// A group of cases over arrays of one shape.
pub struct Group {
    /// Its name.
    pub name: &'static str,
    /// The shape of the arrays.
    pub shape: (usize, usize),
    /// How many arrays a round takes.
    pub batch: usize,
    /// What is measured.
    pub cases: Vec<Case>,
}

/// A way to do it: by whom, and the code.
pub type Case = (&'static str, fn(Array2<f32>) -> f32);

/// Everything that is measured.
pub fn groups() -> Vec<Group> {
    let first = Group {
        name: "ndarray -> Tensor -> view",
        shape: (2, 3),
        batch: 1000,
        cases: there_and_back(),
    };
    #[cfg(feature = "crates")]
    let others = super::crates::groups();
    #[cfg(not(feature = "crates"))]
    let others = Vec::new();
    std::iter::once(first).chain(others).collect()
}

/// An array that becomes a tensor and is seen as an array again.
pub fn there_and_back() -> Vec<Case> {
    vec![
        ("one-box floor", |array| {
            let managed = floor::share(array);
            // SAFETY: shared just now.
            let view = unsafe { floor::view(managed) };
            let first = view[[0, 0]];
            // SAFETY: the view is used no more.
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
            // SAFETY: made of an array just now.
            let dlpack: versioned::Dlpack = unsafe { boxed.finish() };
            // SAFETY: nobody writes to it.
            let view = unsafe { ArrayViewD::<f32>::try_from_dlpack(&dlpack, ()) };
            view.expect("floats on the CPU")[[0, 0]]
        }),
        ("dlpk", |array| {
            let tensor = dlpk::DLPackTensor::try_from(array).expect("an array");
            let view: ArrayView2<'_, f32> = tensor.as_ref().try_into().expect("floats on the CPU");
            view[[0, 0]]
        }),
    ]
}
