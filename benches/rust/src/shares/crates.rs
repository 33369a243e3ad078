//! Cases like those of `cases.rs`, with other crates. Building them takes most of the build time.

use arrow_array::ArrayRef;
use burn_std::TensorData;
use candle_core::{Device, IndexOp};
use dlbridge::Tensor;
use dlpark::allocation::dynamic;
use dlpark::ffi::DLManagedTensorVersioned;
use dlpark::{TryFromDlpack, versioned};
use faer::MatRef;

use super::cases::{Case, Group};

/// The groups, over small and over large arrays.
pub fn groups() -> Vec<Group> {
    let to_candle: Vec<Case> = vec![
        ("by hand, moving the Vec", |array| {
            let (shape, values) = (array.dim(), array.into_raw_vec_and_offset().0);
            let candle = candle_core::Tensor::from_vec(values, shape, &Device::Cpu);
            candle.and_then(|made| made.i((0, 0))?.to_scalar()).expect("it fits")
        }),
        ("dlbridge, one copy", |array| {
            let candle = Tensor::from(array).copy_as::<candle_core::Tensor>().expect("floats");
            candle.i((0, 0)).and_then(|first| first.to_scalar()).expect("floats")
        }),
        ("dlbridge, moving the Vec", |array| {
            let shape = [array.nrows() as i64, array.ncols() as i64];
            let tensor = Tensor::builder(array.into_raw_vec_and_offset().0).shape(&shape);
            let candle = tensor.build::<f32>().expect("it fits").into_as::<candle_core::Tensor>().expect("a vector");
            candle.i((0, 0)).and_then(|first| first.to_scalar()).expect("floats")
        }),
        ("dlpark, one copy", |array| {
            let boxed: dynamic::Initialized<DLManagedTensorVersioned> =
                Box::new(array).try_into().expect("an array");
            // SAFETY: just created from an array.
            let dlpack: versioned::Dlpack = unsafe { boxed.finish() };
            // SAFETY: no code writes to it.
            let candle = unsafe { candle_core::Tensor::try_from_dlpack(&dlpack, ()) };
            let candle = candle.expect("floats on the CPU");
            candle.i((0, 0)).and_then(|first| first.to_scalar()).expect("floats")
        }),
    ];
    let to_burn: Vec<Case> = vec![
        ("by hand, moving the Vec", |array| {
            let (shape, values) = (array.dim(), array.into_raw_vec_and_offset().0);
            let data = TensorData::new(values, [shape.0, shape.1]);
            data.as_slice::<f32>().expect("floats")[0]
        }),
        ("dlbridge", |array| {
            let data = TensorData::try_from(Tensor::from(array)).expect("exclusive");
            data.as_slice::<f32>().expect("floats")[0]
        }),
    ];
    let to_faer: Vec<Case> = vec![
        ("by hand, from raw parts", |array| {
            let (shape, strides) = (array.dim(), array.strides());
            let (rows, columns) = (strides[0], strides[1]);
            // SAFETY: the array's own memory and layout, while it lives.
            let view = unsafe {
                faer::MatRef::from_raw_parts(array.as_ptr(), shape.0, shape.1, rows, columns)
            };
            view[(0, 0)]
        }),
        ("dlbridge", |array| {
            let tensor = Tensor::from(array);
            tensor.view_as::<MatRef<f32>>().expect("exclusive")[(0, 0)]
        }),
    ];
    let to_arrow: Vec<Case> = vec![
        ("by hand, moving the Vec", |array| {
            let values = arrow_array::Float32Array::from(array.into_raw_vec_and_offset().0);
            values.value(0)
        }),
        ("dlbridge, as lists", |array| {
            use arrow_array::cast::AsArray;
            use arrow_array::types::Float32Type;
            let lists = ArrayRef::try_from(Tensor::from(array)).expect("exclusive");
            lists.as_fixed_size_list().values().as_primitive::<Float32Type>().value(0)
        }),
    ];
    let (small, large) = ((2, 3), (512, 512));
    let group = |name, shape, batch, cases| Group { name, shape, batch, cases };
    let mut groups = Vec::new();
    for (shape, batch) in [(small, 1000), (large, 20)] {
        groups.push(group("ndarray -> candle", shape, batch, to_candle.clone()));
        groups.push(group("ndarray -> burn", shape, batch, to_burn.clone()));
        groups.push(group("ndarray -> faer", shape, batch, to_faer.clone()));
        groups.push(group("ndarray -> arrow", shape, batch, to_arrow.clone()));
    }
    groups
}
