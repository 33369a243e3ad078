//! Target `adapters`: views of ndarray, nalgebra and faer, created by safe calls, broadcast up to
//! the largest extents that those crates accept, and borrowed as tensors. `axes` computes the
//! expected result.
//! Invariant: no unsafe call creates a view.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use dlbridge::{Error, TensorRef};
use faer::{ColRef, MatRef, RowRef};
use nalgebra::{Dyn, MatrixView, U1};
use ndarray::{ArrayViewD, Axis, IxDyn, ShapeBuilder, Slice};

use crate::axes::{Axes, repeats};
use crate::input::Input;
use crate::value::Value;

/// Borrows one view.
///
/// # Panics
///
/// If the conversion accepts, rejects or reads a layout differently from the model.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let count = 1 + input.below(64);
    match input.below(3) {
        0 => each::<u8>(&(0..count).map(|i| i as u8).collect::<Vec<_>>(), &mut input),
        1 => each::<i64>(&(0..count as i64).collect::<Vec<_>>(), &mut input),
        _ => each::<f64>(&(0..count).map(|i| i as f64).collect::<Vec<_>>(), &mut input),
    }
}

fn each<T: Value + nalgebra::Scalar>(memory: &[T], input: &mut Input<'_>) {
    match input.below(3) {
        0 => with_ndarray(memory, input),
        1 => with_nalgebra(memory, input),
        _ => with_faer(memory, input),
    }
}

/// Converts a view, and compares the tensor, or the message of the panic, with the model.
fn compare<'a, T: Value>(
    axes: &Axes,
    memory: &[T],
    convert: impl FnOnce() -> TensorRef<'a>,
    input: &mut Input<'_>,
) {
    let reasons = match axes.judge(T::DTYPE) {
        Ok(_) => return axes.check(&convert(), memory, input),
        Err(reasons) => reasons,
    };
    let message = message_of_panic(|| drop(convert()));
    let named = |reason: &Error| message.ends_with(&reason.to_string());
    assert!(reasons.iter().any(named), "{message}, expected one of {reasons:?}");
}

thread_local! {
    /// Whether a panic of this thread is the expected result.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// The message of a panic that must happen. libFuzzer's hook, which ends the process, does not
/// run for it.
fn message_of_panic(convert: impl FnOnce()) -> String {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !EXPECTED.get() {
                hook(info);
            }
        }));
    });
    EXPECTED.set(true);
    let caught = catch_unwind(AssertUnwindSafe(convert));
    EXPECTED.set(false);
    let payload = caught.expect_err("a refusal of a layout that no tensor can have");
    *payload.downcast::<String>().expect("a formatted message")
}

fn with_ndarray<T: Value>(memory: &[T], input: &mut Input<'_>) {
    let shape = input.small_shape();
    let extents: Vec<usize> = shape.iter().map(|&extent| extent as usize).collect();
    let steps: Vec<usize> = extents.iter().map(|_| input.below(8)).collect();
    let len = extents.iter().product::<usize>();
    let (made, steps) = match memory.get(..len) {
        Some(memory) if input.rarely(2) => (ArrayViewD::from_shape(extents.clone(), memory), None),
        _ => {
            let shape = IxDyn(&extents).strides(IxDyn(&steps));
            (ArrayViewD::from_shape(shape, memory), Some(steps))
        }
    };
    let Ok(mut view) = made else { return };
    let strides: Vec<i128> = match steps {
        Some(steps) => steps.iter().map(|&step| step as i128).collect(),
        // ndarray chooses the strides of an empty array.
        None => view.strides().iter().map(|&stride| stride as i128).collect(),
    };
    let extents = extents.iter().map(|&extent| extent as i128).collect();
    let mut axes = Axes { at: 0, extents, strides };
    for _ in 0..input.below(5) {
        if view.ndim() == 0 {
            break;
        }
        let axis = input.below(view.ndim());
        match input.below(3) {
            0 => {
                if !view.is_empty() {
                    axes.at += (axes.extents[axis] - 1) * axes.strides[axis];
                }
                axes.strides[axis] *= -1;
                view.invert_axis(Axis(axis));
            }
            1 => {
                let other = input.below(view.ndim());
                view.swap_axes(axis, other);
                axes.extents.swap(axis, other);
                axes.strides.swap(axis, other);
            }
            _ => {
                let from = input.below(axes.extents[axis] as usize + 1);
                view.slice_axis_inplace(Axis(axis), Slice::from(from..));
                axes.at += from as i128 * axes.strides[axis];
                axes.extents[axis] -= from as i128;
            }
        }
    }
    let mut outer: Vec<usize> = (0..input.below(4)).map(|_| repeats(input)).collect();
    let repeated = outer.iter().map(|&extent| extent as i128).collect::<Vec<_>>();
    outer.extend(view.shape());
    let Some(view) = view.broadcast(IxDyn(&outer)) else { return };
    axes.extents.splice(0..0, repeated.iter().copied());
    axes.strides.splice(0..0, repeated.iter().map(|_| 0));
    // ndarray chooses the stride of an axis with one element.
    for (stride, &found) in axes.strides.iter_mut().zip(view.strides()) {
        let is_free = found == 0 || view.is_empty();
        *stride = if is_free { found as i128 } else { *stride };
    }
    compare(&axes, memory, || TensorRef::from(&view), input);
}

fn with_nalgebra<T: Value + nalgebra::Scalar>(memory: &[T], input: &mut Input<'_>) {
    let (rows, columns) = (repeats(input), repeats(input));
    let mut step = || if input.rarely(8) { repeats(input) } else { input.below(9) };
    let (row, column) = (step(), step());
    let numbers = [rows, columns, row, column].map(|number| number as i128);
    let [rows_, columns_, row_, column_] = numbers;
    let axes = Axes { at: 0, extents: vec![rows_, columns_], strides: vec![row_, column_] };
    // nalgebra asserts that `needed` is at most `held`, in arithmetic that could wrap.
    let needed = rows_
        .saturating_mul(row_)
        .saturating_add(columns_.saturating_mul(column_))
        .saturating_add(1);
    let held = memory.len() as i128 + row_ + column_;
    let most = i128::from(i64::MAX);
    let inside = axes.places().is_some_and(|(_, high)| high < memory.len() as i128);
    if needed > held || needed > most || held > most || !inside {
        return;
    }
    if columns == 1 && input.rarely(2) {
        let view = MatrixView::<T, Dyn, U1, Dyn, Dyn>::from_slice_with_strides_generic(
            memory,
            Dyn(rows),
            U1,
            Dyn(row),
            Dyn(column),
        );
        let axes = Axes { at: 0, extents: vec![rows_], strides: vec![row_] };
        return compare(&axes, memory, || TensorRef::from(&view), input);
    }
    let view = MatrixView::<T, Dyn, Dyn, Dyn, Dyn>::from_slice_with_strides_generic(
        memory,
        Dyn(rows),
        Dyn(columns),
        Dyn(row),
        Dyn(column),
    );
    compare(&axes, memory, || TensorRef::from(&view), input);
}

fn with_faer<T: Value>(memory: &[T], input: &mut Input<'_>) {
    let (more, len) = (repeats(input), memory.len() as i128);
    let column = ColRef::from_slice(memory);
    let mut axes = Axes { at: 0, extents: vec![len, more as i128], strides: vec![1, 0] };
    let mut view = match input.below(4) {
        0 => MatRef::from_repeated_col(column, more),
        1 => {
            (axes.extents, axes.strides) = (vec![more as i128, len], vec![0, 1]);
            MatRef::from_repeated_row(RowRef::from_slice(memory), more)
        }
        2 => {
            let other = repeats(input);
            (axes.extents, axes.strides) = (vec![more as i128, other as i128], vec![0, 0]);
            MatRef::from_repeated_ref(&memory[0], more, other)
        }
        _ => {
            let rows = 1 + input.below(memory.len());
            let columns = memory.len() / rows;
            (axes.extents, axes.strides) =
                (vec![rows as i128, columns as i128], vec![1, rows as i128]);
            MatRef::from_column_major_slice(&memory[..rows * columns], rows, columns)
        }
    };
    if input.rarely(2) {
        view = view.transpose();
        axes.extents.reverse();
        axes.strides.reverse();
    }
    // A reversed empty matrix may begin outside its elements.
    if !axes.extents.contains(&0) && input.rarely(2) {
        view = view.reverse_rows();
        axes.at += (axes.extents[0] - 1) * axes.strides[0];
        axes.strides[0] *= -1;
    }
    match input.below(3) {
        0 if axes.extents[1] > 0 => {
            let j = input.below(axes.extents[1].min(64) as usize);
            let column = view.col(j);
            axes.at += j as i128 * axes.strides[1];
            axes.extents.truncate(1);
            axes.strides.truncate(1);
            compare(&axes, memory, || TensorRef::from(&column), input);
        }
        1 if axes.extents[0] > 0 => {
            let i = input.below(axes.extents[0].min(64) as usize);
            let row = view.row(i);
            axes.at += i as i128 * axes.strides[0];
            axes.extents.remove(0);
            axes.strides.remove(0);
            compare(&axes, memory, || TensorRef::from(&row), input);
        }
        _ => compare(&axes, memory, || TensorRef::from(&view), input),
    }
}
