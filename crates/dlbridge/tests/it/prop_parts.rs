//! Random parts of random layouts against a model that never looks at a stride: the list of elements
//! that each part leaves.
//! Cases with a name are in `parts.rs`.

use crate::common::indices;
use dlbridge::{Error, ErrorKind, Parts, Tensor, TensorMut, layout};
use proptest::collection::vec;
use proptest::prelude::*;

/// A part of an array whose elements are numbered. Arguments may be wrong.
#[derive(Clone, Debug)]
enum Cut {
    Select(usize, usize),
    Slice(usize, usize, usize),
    StepBy(usize, isize),
    Flip(usize),
    Transpose,
    Permute(Vec<usize>),
    Squeeze(usize),
    Unsqueeze(usize),
    Reshape(Vec<i64>),
    BroadcastTo(Vec<i64>),
}

fn cut() -> impl Strategy<Value = Cut> {
    let axis = || 0..4_usize;
    let step = prop_oneof![6 => -4..5_isize, 1 => Just(isize::MIN), 1 => Just(isize::MAX)];
    prop_oneof![
        (axis(), 0..5_usize).prop_map(|(axis, index)| Cut::Select(axis, index)),
        (axis(), 0..4_usize, 0..6_usize)
            .prop_map(|(axis, start, end)| Cut::Slice(axis, start, end)),
        (axis(), step).prop_map(|(axis, step)| Cut::StepBy(axis, step)),
        axis().prop_map(Cut::Flip),
        Just(Cut::Transpose),
        (0..5_usize)
            .prop_flat_map(|rank| Just((0..rank).collect::<Vec<_>>()).prop_shuffle())
            .prop_map(Cut::Permute),
        vec(0..4_usize, 0..4).prop_map(Cut::Permute),
        axis().prop_map(Cut::Squeeze),
        axis().prop_map(Cut::Unsqueeze),
        vec(-1..7_i64, 0..5).prop_map(Cut::Reshape),
        vec(0..5_i64, 0..5).prop_map(Cut::BroadcastTo),
    ]
}

/// Shapes of few elements that are often the same again.
fn shape() -> impl Strategy<Value = Vec<i64>> {
    vec(prop_oneof![Just(1_i64), Just(2), Just(3), Just(4), Just(6), Just(0)], 0..5)
}

pub(crate) fn layouts() -> impl Strategy<Value = (Vec<i64>, Vec<i64>)> {
    shape().prop_flat_map(|shape| {
        let mut contiguous = vec![0; shape.len()];
        layout::contiguous_strides(&shape, &mut contiguous);
        let any = vec(-6..7_i64, shape.len());
        (Just(shape), prop_oneof![Just(contiguous), any])
    })
}

/// A layout, perhaps permuted, and another shape with as many elements.
fn reshapes() -> impl Strategy<Value = ((Vec<i64>, Vec<i64>), Vec<i64>)> {
    let factors = |shape: &[i64]| -> Vec<i64> {
        let of = |&extent: &i64| match extent {
            4 => vec![2, 2],
            6 => vec![2, 3],
            other => vec![other],
        };
        shape.iter().flat_map(of).collect()
    };
    (layouts(), any::<bool>()).prop_flat_map(move |((mut shape, mut strides), is_transposed)| {
        let factors = factors(&shape);
        if is_transposed {
            shape.reverse();
            strides.reverse();
        }
        let joined = vec(any::<bool>(), factors.len());
        let wanted = (Just(factors).prop_shuffle(), joined).prop_map(|(factors, joined)| {
            let mut wanted: Vec<i64> = Vec::new();
            for (factor, joins) in factors.into_iter().zip(joined) {
                match wanted.last_mut() {
                    Some(last) if joins => *last *= factor,
                    _ => wanted.push(factor),
                }
            }
            wanted
        });
        (Just((shape, strides)), wanted)
    })
}

/// The elements of a part in row-major order.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    shape: Vec<i64>,
    values: Vec<i64>,
}

impl Model {
    fn at(&self, index: &[usize]) -> i64 {
        let place = index.iter().zip(&self.shape).fold(0, |at, (&i, &n)| at * n as usize + i);
        self.values[place]
    }

    /// An array of another shape, each index of which is an index of this.
    fn like(&self, shape: Vec<i64>, from: impl Fn(&[usize]) -> Vec<usize>) -> Self {
        let values = indices(&shape).iter().map(|index| self.at(&from(index))).collect();
        Self { shape, values }
    }

    fn with_axis(&self, axis: usize, extent: usize, from: impl Fn(usize) -> usize) -> Self {
        let mut shape = self.shape.clone();
        shape[axis] = extent as i64;
        self.like(shape, |index| {
            let mut index = index.to_vec();
            index[axis] = from(index[axis]);
            index
        })
    }

    fn without(&self, axis: usize, at: usize) -> Self {
        let mut shape = self.shape.clone();
        shape.remove(axis);
        self.like(shape, |index| {
            let mut index = index.to_vec();
            index.insert(axis, at);
            index
        })
    }

    /// What becomes of this; `None` where there is no such part.
    fn cut(&self, cut: &Cut) -> Option<Self> {
        let rank = self.shape.len();
        let extent = |axis: usize| self.shape.get(axis).map(|&extent| extent as usize);
        Some(match *cut {
            Cut::Select(axis, index) if index < extent(axis)? => self.without(axis, index),
            Cut::Slice(axis, start, end) if start <= end && end <= extent(axis)? => {
                self.with_axis(axis, end - start, |i| start + i)
            }
            Cut::StepBy(axis, step) if step != 0 => {
                let extent = extent(axis)?;
                let mut taken: Vec<usize> = (0..extent).collect();
                if step < 0 {
                    taken.reverse();
                }
                let taken: Vec<_> = taken.into_iter().step_by(step.unsigned_abs()).collect();
                self.with_axis(axis, taken.len(), |i| taken[i])
            }
            Cut::Flip(axis) => {
                let extent = extent(axis)?;
                self.with_axis(axis, extent, |i| extent - 1 - i)
            }
            Cut::Transpose => {
                let shape = self.shape.iter().rev().copied().collect();
                self.like(shape, |index| index.iter().rev().copied().collect())
            }
            Cut::Permute(ref axes) => {
                let mut sorted = axes.clone();
                sorted.sort_unstable();
                if sorted != (0..rank).collect::<Vec<_>>() {
                    return None;
                }
                let shape = axes.iter().map(|&axis| self.shape[axis]).collect();
                self.like(shape, |index| {
                    let mut from = vec![0; rank];
                    axes.iter().zip(index).for_each(|(&axis, &i)| from[axis] = i);
                    from
                })
            }
            Cut::Squeeze(axis) if extent(axis)? == 1 => self.without(axis, 0),
            Cut::Unsqueeze(axis) if axis <= rank => {
                let mut shape = self.shape.clone();
                shape.insert(axis, 1);
                Self { shape, values: self.values.clone() }
            }
            Cut::Reshape(ref wanted) => {
                let len = self.values.len() as i64;
                let known: i64 = wanted.iter().filter(|&&extent| extent != -1).product();
                let open = wanted.iter().filter(|&&extent| extent == -1).count();
                if open > 1 || (open == 1 && known == 0) {
                    return None;
                }
                let rest = if open == 1 { len / known } else { 1 };
                if known * rest != len {
                    return None;
                }
                let shape = wanted.iter().map(|&extent| if extent == -1 { rest } else { extent });
                Self { shape: shape.collect(), values: self.values.clone() }
            }
            Cut::BroadcastTo(ref wanted) => {
                let front = wanted.len().checked_sub(rank)?;
                let fits = |(&old, &new): (&i64, &i64)| old == new || old == 1;
                if !self.shape.iter().zip(&wanted[front..]).all(fits) {
                    return None;
                }
                self.like(wanted.clone(), |index| {
                    let inner = index[front..].iter().zip(&self.shape);
                    inner.map(|(&i, &extent)| if extent == 1 { 0 } else { i }).collect()
                })
            }
            _ => return None,
        })
    }

    /// Whether strides exist that reach these elements in this order. The elements' numbers are their
    /// places.
    fn has_strides(&self) -> bool {
        let Some(&first) = self.values.first() else { return true };
        let rank = self.shape.len();
        let step = |axis: usize| {
            let mut index = vec![0; rank];
            index[axis] = 1;
            if self.shape[axis] > 1 { self.at(&index) - first } else { 0 }
        };
        let steps: Vec<i64> = (0..rank).map(step).collect();
        indices(&self.shape).iter().zip(&self.values).all(|(index, &value)| {
            let reached: i64 = index.iter().zip(&steps).map(|(&i, &step)| i as i64 * step).sum();
            first + reached == value
        })
    }
}

/// A part by its verb.
macro_rules! apply {
    ($tensor:expr, $cut:expr) => {
        match $cut {
            Cut::Select(axis, index) => $tensor.select(*axis, *index),
            Cut::Slice(axis, start, end) => $tensor.slice(*axis, *start..*end),
            Cut::StepBy(axis, step) => $tensor.step_by(*axis, *step),
            Cut::Flip(axis) => $tensor.flip(*axis),
            Cut::Transpose => Ok($tensor.transpose()),
            Cut::Permute(axes) => $tensor.permute(axes),
            Cut::Squeeze(axis) => $tensor.squeeze(*axis),
            Cut::Unsqueeze(axis) => $tensor.unsqueeze(*axis),
            Cut::Reshape(shape) => $tensor.reshape(shape),
            Cut::BroadcastTo(shape) => apply!(broadcast $tensor, shape),
        }
    };
    (broadcast $tensor:expr, $shape:expr) => {
        $tensor.broadcast_to($shape)
    };
}

/// A tensor over exactly the memory that a layout reaches, element `i` of which is `i`.
pub(crate) fn exact(shape: &[i64], strides: &[i64]) -> Tensor {
    let span = layout::span(shape, strides).expect("small");
    let owner: Vec<i64> = (0..span.extent() as i64).collect();
    let builder = Tensor::builder(owner).shape(shape).strides(strides);
    builder.offset(span.low.unsigned_abs()).build::<i64>().expect("exactly what it reaches")
}

fn model_of(tensor: &Tensor) -> Model {
    let values = tensor.view::<i64>().expect("i64").to_vec();
    Model { shape: tensor.shape().to_vec(), values }
}

/// Makes parts of parts as long as there are any, and compares all kinds of tensor with the model.
fn compare(shape: &[i64], strides: &[i64], cuts: &[Cut]) -> Result<(), TestCaseError> {
    let source = exact(shape, strides);
    let view = source.view::<i64>().expect("i64");
    let mut model = model_of(&source);
    let mut part = view.unsqueeze(0).and_then(|part| part.squeeze(0)).expect("the same");
    let mut borrowed = source.as_tensor_ref();
    let mut shared = exact(shape, strides).into_shared();
    let mut owned = exact(shape, strides);
    for cut in cuts {
        let next = model.cut(cut);
        let found = apply!(part, cut);
        let error = match (next, found) {
            (Some(next), Ok(found)) => {
                let has_strides = next.has_strides();
                prop_assert!(has_strides, "{:?} is {:?}", cut, found);
                (model, part) = (next, found);
                borrowed = apply!(borrowed, cut).expect("as the view");
                shared = apply!(shared, cut).expect("as the view");
                owned = apply!(owned, cut).expect("as the view");
                None
            }
            (None, Err(error)) => Some(error),
            (Some(next), Err(error)) => {
                let copies = error.kind() == ErrorKind::Layout;
                prop_assert!(copies && !next.has_strides(), "{:?} of {:?}: {}", cut, part, error);
                Some(error)
            }
            (None, Ok(found)) => panic!("{cut:?} of {part:?} is {found:?}"),
        };
        if let Some(error) = error {
            prop_assert_eq!(apply!(borrowed, cut).err(), Some(error.clone()));
            prop_assert_eq!(apply!(shared, cut).err(), Some(error));
            break;
        }
    }
    let Model { shape, values } = &model;
    prop_assert_eq!(part.shape(), &shape[..]);
    prop_assert_eq!(&part.to_vec(), values);
    for (index, value) in indices(shape).iter().zip(values) {
        prop_assert_eq!(part.get(index), Some(*value));
    }
    prop_assert_eq!(borrowed.shape(), &shape[..]);
    prop_assert_eq!(&borrowed.view::<i64>().expect("i64").to_vec(), values);
    prop_assert_eq!(&model_of(&shared), &model);
    prop_assert_eq!(&model_of(&owned), &model);
    Ok(())
}

/// As above, for what is written: each part is filled with its row-major numbers.
fn compare_writes(shape: &[i64], strides: &[i64], cuts: &[Cut]) -> Result<(), TestCaseError> {
    macro_rules! apply_mut {
        ($tensor:expr) => {
            cuts.iter().take_while(|cut| !matches!(cut, Cut::BroadcastTo(_))).try_fold(
                $tensor,
                |tensor, cut| match cut {
                    Cut::Select(axis, index) => tensor.select(*axis, *index),
                    Cut::Slice(axis, start, end) => tensor.slice(*axis, *start..*end),
                    Cut::StepBy(axis, step) => tensor.step_by(*axis, *step),
                    Cut::Flip(axis) => tensor.flip(*axis),
                    Cut::Permute(axes) => tensor.permute(axes),
                    Cut::Squeeze(axis) => tensor.squeeze(*axis),
                    Cut::Unsqueeze(axis) => tensor.unsqueeze(*axis),
                    Cut::Reshape(shape) => tensor.reshape(shape),
                    Cut::Transpose | Cut::BroadcastTo(_) => Ok(tensor.transpose()),
                },
            )
        };
    }
    let len = layout::span(shape, strides).expect("small").extent();
    let mut model = model_of(&exact(shape, strides));
    for cut in cuts.iter().take_while(|cut| !matches!(cut, Cut::BroadcastTo(_))) {
        match model.cut(cut) {
            Some(next) if next.has_strides() => model = next,
            _ => return Ok(()),
        }
    }
    let mut wanted: Vec<i64> = (0..len as i64).collect();
    let values: Vec<i64> = (0..model.values.len() as i64).map(|i| -1 - i).collect();
    for (&place, &value) in model.values.iter().zip(&values) {
        wanted[place as usize] = value;
    }
    let mut tensor = exact(shape, strides);
    let mut part = apply_mut!(tensor.view_mut::<i64>().expect("exclusive")).expect("as the model");
    prop_assert_eq!(part.shape(), &model.shape[..]);
    part.reborrow().copy_from_slice(&values).expect("as long");
    prop_assert_eq!(&tensor.into_owner::<Vec<i64>>().expect("a vector"), &wanted);
    if layout::is_contiguous(shape, strides) {
        let mut memory: Vec<i64> = (0..len as i64).collect();
        let whole = TensorMut::from(&mut memory[..]).reshape(shape).expect("as many");
        let mut part = apply_mut!(whole).expect("as the model");
        let mut part = part.view_mut::<i64>().expect("exclusive");
        part.copy_from_slice(&values).expect("as long");
        prop_assert_eq!(&memory, &wanted);
    }
    Ok(())
}

proptest! {
    #[test]
    fn parts_of_parts_have_the_elements_of_the_model(
        (shape, strides) in layouts(),
        cuts in vec(cut(), 1..5),
    ) {
        compare(&shape, &strides, &cuts)?;
        compare_writes(&shape, &strides, &cuts)?;
    }

    #[test]
    fn a_reshape_is_free_wherever_strides_exist(((shape, strides), wanted) in reshapes()) {
        compare(&shape, &strides, &[Cut::Reshape(wanted)])?;
    }

    #[test]
    fn two_halves_have_each_element_once((shape, strides) in layouts(), axis in 0..5_usize, at in 0..5_usize) {
        let mut tensor = exact(&shape, &strides);
        let whole = model_of(&tensor);
        let view = tensor.view::<i64>().expect("i64");
        let inside = whole.shape.get(axis).is_some_and(|&extent| at as i64 <= extent);
        let halves = view.split_at(axis, at);
        prop_assert_eq!(halves.is_ok(), inside);
        if let Ok((front, back)) = halves {
            let mut all = [front.to_vec(), back.to_vec()].concat();
            let mut wanted = whole.values.clone();
            all.sort_unstable();
            wanted.sort_unstable();
            prop_assert_eq!(all, wanted);
        }
        match tensor.view_mut::<i64>().expect("exclusive").split_at(axis, at) {
            Ok((mut front, mut back)) => {
                front.fill(-1);
                back.fill(-2);
                let taken = front.len();
                let left = tensor.view::<i64>().expect("i64").iter().filter(|&value| value == -1);
                prop_assert_eq!(left.count(), taken, "one half wrote into the other");
            }
            Err(Error::Overlapping) => prop_assert!(layout::may_overlap(&shape, &strides)),
            Err(_) => prop_assert!(!inside),
        }
    }
}
