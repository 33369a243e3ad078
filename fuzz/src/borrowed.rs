//! Target `borrowed`: one tensor, broadcast up to the largest extents, borrowed in every way; each
//! borrow is exported to C and imported again. Target `gate` has hostile descriptors.
//! Invariant: the library created every descriptor.

use dlbridge::{DescriptorError, Error, Plain, Tensor, TensorMut, TensorRef};

use crate::axes::{Axes, repeats};
use crate::facts::assert_named;
use crate::input::Input;
use crate::model;
use crate::value::{Value, bits};

/// Borrows one tensor.
///
/// # Panics
///
/// If the builder accepts or rejects a layout differently from the model, or a borrow differs.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let count = 1 + input.below(48);
    match input.below(3) {
        0 => each::<u8>((0..count).map(|i| i as u8).collect(), &mut input),
        1 => each::<i64>((0..count as i64).collect(), &mut input),
        _ => each::<f64>((0..count).map(|i| i as f64).collect(), &mut input),
    }
}

fn each<T: Value + Plain>(mut memory: Vec<T>, input: &mut Input<'_>) {
    if input.rarely(8) {
        return slices(&mut memory, input);
    }
    let ndim = input.below(6);
    let mut axes = Axes { at: 0, extents: Vec::new(), strides: Vec::new() };
    for _ in 0..ndim {
        let stride = if input.rarely(2) { 0 } else { input.small_stride() };
        let extent = if stride == 0 { repeats(input) as i64 } else { input.below(4) as i64 };
        axes.extents.push(extent.into());
        axes.strides.push(stride.into());
    }
    axes.at = input.below(memory.len()).try_into().expect("a place");
    let is_inside =
        axes.places().is_some_and(|(low, high)| 0 <= low && high < memory.len() as i128);
    let judged = axes.judge(T::DTYPE);
    let numbers = |numbers: &[i128]| numbers.iter().map(|&n| n as i64).collect::<Vec<_>>();
    let (shape, strides) = (numbers(&axes.extents), numbers(&axes.strides));
    let builder = Tensor::builder(memory.clone()).shape(&shape).strides(&strides);
    let made = builder.offset(axes.at as usize).build::<T>();
    let is_empty = shape.contains(&0);
    match (made, judged) {
        (Ok(mut tensor), Ok(_)) => {
            assert!(is_inside || is_empty, "{axes:?}");
            borrowed(&mut tensor, &axes, &memory, input);
        }
        (Err(error), Err(reasons)) => assert_named(&error, &reasons),
        (Err(error), Ok(_)) => {
            assert!(!is_inside, "{error:?} of {axes:?}");
            assert!(matches!(
                error,
                Error::OutOfBounds { .. } | Error::Descriptor(DescriptorError::SizeOverflow { .. })
            ));
        }
        (Ok(tensor), Err(reasons)) => panic!("built {tensor:?}, although {reasons:?}"),
    }
}

/// Borrows in every way, and imports the descriptor of each borrow again.
fn borrowed<T: Value + Plain>(
    tensor: &mut Tensor,
    axes: &Axes,
    memory: &[T],
    input: &mut Input<'_>,
) {
    axes.check(&tensor.as_tensor_ref(), memory, input);
    let mut raw = tensor.as_raw();
    if input.rarely(2) && tensor.is_contiguous() {
        // A contiguous tensor may leave out its strides.
        raw.strides = std::ptr::null_mut();
    }
    let implied = raw.strides.is_null();
    {
        // SAFETY: described by `tensor`, which outlives this.
        let again = unsafe { TensorRef::from_raw(&raw) }.expect("our own");
        assert_eq!((again.shape(), again.len()), (tensor.shape(), tensor.len()));
        assert!(again.is_read_only() && again.view::<T>().is_ok());
        if !implied {
            axes.check(&again, memory, input);
            again.with_raw(|raw| {
                // SAFETY: valid until this function returns.
                let third = unsafe { TensorRef::from_raw(raw) }.expect("our own");
                axes.check(&third, memory, input);
            });
        }
    }
    if tensor.len() <= 400 {
        let mut view = tensor.view_mut::<T>().expect("exclusive");
        let values: Vec<T> = (0..view.len()).map(|i| memory[i % memory.len()]).collect();
        view.copy_from_slice(&values).expect("as long");
        let shape = tensor.shape().to_vec();
        let after = tensor.view::<T>().expect("as before");
        // If several elements share memory, the last write wins.
        for i in 0..values.len() {
            let place = model::offset_of_nth(i, &shape, tensor.strides());
            let last = (0..values.len())
                .rfind(|&j| model::offset_of_nth(j, &shape, tensor.strides()) == place);
            let wanted = values[last.expect("itself")];
            let found = after.get(model::index_of(i, &shape)).expect("inside");
            assert_eq!(found.bits(), wanted.bits(), "element {i}");
        }
    }
    let slice = tensor.as_slice_mut::<T>();
    assert_eq!(slice.is_ok(), model::is_contiguous(tensor.shape(), tensor.strides()));
}

/// Borrows slices, shared and mutable.
fn slices<T: Value + Plain>(memory: &mut [T], input: &mut Input<'_>) {
    let end = input.below(memory.len() + 1);
    let part = &mut memory[..end];
    let wanted = bits(part.iter().copied());
    let axes = Axes { at: 0, extents: vec![end as i128], strides: vec![1] };
    let copy = part.to_vec();
    axes.check(&TensorRef::from(&*part), &copy, input);
    let mut tensor = TensorMut::from(&mut *part);
    assert_eq!(bits(tensor.as_slice_mut::<T>().expect("a slice").to_vec()), wanted);
    tensor.view_mut::<T>().expect("writable").map_inplace(|value| value);
    tensor.with_raw(|raw| {
        // SAFETY: valid until this function returns.
        let again = unsafe { TensorRef::from_raw(raw) }.expect("our own");
        axes.check(&again, &copy, input);
    });
    let other = TensorRef::from(&*part).view::<bool>().map(drop);
    let error = Error::DTypeMismatch { found: T::DTYPE, expected: dlbridge::DType::BOOL };
    assert_named(&other.unwrap_err(), &[error]);
}
