//! Reads a tensor through every method, and compares each result with the expected elements, which
//! `facts` computes.
//! Invariant: every refusal has a reason that the model gives as well.

use dlbridge::{Access, DType, Error, Plain, ShapeField, Tensor, TensorRef, View};
use ndarray::ArrayViewD;

use crate::facts::Facts;
use crate::input::Input;
use crate::model;
use crate::value::{ForType, Value, bits, for_type};

/// Code for the methods that owned and borrowed tensors share.
trait Readable {
    fn view<T: Value>(&self) -> Result<View<'_, T>, Error>;
    fn as_slice<T: Plain>(&self) -> Result<&[T], Error>;
    fn as_bytes(&self) -> Result<&[u8], Error>;
    fn as_array<T: Plain>(&self) -> Result<ArrayViewD<'_, T>, Error>;
    fn to_contiguous(&self) -> Result<Tensor, Error>;
}

macro_rules! readable {
    ($($ty:ty),*) => {$(
        impl Readable for $ty {
            fn view<T: Value>(&self) -> Result<View<'_, T>, Error> {
                self.view()
            }

            fn as_slice<T: Plain>(&self) -> Result<&[T], Error> {
                self.as_slice()
            }

            fn as_bytes(&self) -> Result<&[u8], Error> {
                self.as_bytes()
            }

            fn as_array<T: Plain>(&self) -> Result<ArrayViewD<'_, T>, Error> {
                self.view_as::<ArrayViewD<T>>()
            }

            fn to_contiguous(&self) -> Result<Tensor, Error> {
                self.to_contiguous()
            }
        }
    )*};
}

readable!(Tensor, TensorRef<'_>);

/// Reads all elements of an owned tensor with the metadata of `facts`.
pub(crate) fn check(tensor: &Tensor, facts: &Facts, input: &mut Input<'_>) {
    all(tensor, facts, input);
}

/// The same for a borrowed tensor.
pub(crate) fn check_ref(tensor: &TensorRef<'_>, facts: &Facts, input: &mut Input<'_>) {
    all(tensor, facts, input);
}

fn all(tensor: &impl Readable, facts: &Facts, input: &mut Input<'_>) {
    if !model::is_host(facts.device.kind.0) {
        let wanted = Error::NotHostAccessible { device: facts.device };
        assert_eq!(tensor.to_contiguous().map(drop), Err(wanted.clone()));
        assert_eq!(tensor.as_bytes(), Err(wanted));
    } else if let Some(elements) = &facts.elements {
        let bytes = elements.concat();
        let copy = tensor.to_contiguous().expect("whole bytes of host memory");
        assert_eq!(copy.access(), Access::Exclusive);
        assert_eq!((copy.shape(), copy.dtype()), (&facts.shape[..], facts.dtype));
        assert_eq!(copy.as_bytes().expect("exclusive and contiguous"), bytes, "a contiguous copy");
        let may_borrow = facts.access != Access::Shared && facts.is_contiguous();
        assert_eq!(tensor.as_bytes().ok(), may_borrow.then_some(&bytes[..]), "bytes");
    }
    for_type(facts.dtype, Typed { tensor, facts, input });
}

struct Typed<'t, 'i, 'd, R> {
    tensor: &'t R,
    facts: &'t Facts,
    input: &'i mut Input<'d>,
}

impl<R: Readable> Typed<'_, '_, '_, R> {
    fn view<T: Value>(&mut self) {
        let Self { tensor, facts, input } = self;
        let view = tensor.view::<T>();
        if !model::is_host(facts.device.kind.0) {
            let wanted = Error::NotHostAccessible { device: facts.device };
            assert_eq!(view.map(drop), Err(wanted));
            return;
        }
        let view = view.expect("host memory of this type");
        assert_eq!((view.shape(), view.strides()), (&facts.shape[..], &facts.strides[..]));
        if let Some(elements) = &facts.elements {
            let wanted: Vec<T> = elements.iter().map(|bytes| T::of(bytes)).collect();
            check_view(view, &wanted, facts.is_aligned(align_of::<T>()), input);
        }
    }
}

impl<R: Readable> ForType for Typed<'_, '_, '_, R> {
    type Output = ();

    fn plain<T: Value + Plain + Default>(mut self) {
        self.view::<T>();
        let Self { tensor, facts, .. } = self;
        let other = tensor.view::<bool>().map(drop).unwrap_err();
        assert_eq!(other, Error::DTypeMismatch { found: facts.dtype, expected: DType::BOOL });
        let may_borrow = facts.access != Access::Shared
            && model::is_host(facts.device.kind.0)
            && facts.is_aligned(align_of::<T>());
        if may_borrow && facts.elements.is_none() {
            // No reference to elements that do not exist may be created.
            return;
        }
        let (slice, array) = (tensor.as_slice::<T>(), tensor.as_array::<T>());
        assert_eq!(
            slice.is_ok(),
            may_borrow && facts.is_contiguous(),
            "a slice: {:?}",
            slice.err()
        );
        assert_eq!(array.is_ok(), may_borrow, "an array: {:?}", array.err());
        let Some(elements) = &facts.elements else { return };
        let wanted = bits(elements.iter().map(|bytes| T::of(bytes)));
        if let Ok(slice) = slice {
            assert_eq!(bits(slice.iter().copied()), wanted, "a slice");
        }
        if let Ok(array) = array {
            assert!(array.shape().iter().zip(&facts.shape).all(|(&a, &b)| a as i64 == b));
            assert_eq!(bits(array.iter().copied()), wanted, "an array");
        }
    }

    fn bool(mut self) {
        self.view::<bool>();
        let other = self.tensor.as_slice::<u8>().unwrap_err();
        assert_eq!(other, Error::DTypeMismatch { found: DType::BOOL, expected: DType::U8 });
    }

    fn none(self) {
        let other = self.tensor.view::<u8>().map(drop).unwrap_err();
        assert_eq!(other, Error::DTypeMismatch { found: self.facts.dtype, expected: DType::U8 });
    }
}

/// Reads a view through every method; `wanted` has its elements in row-major order.
pub(crate) fn check_view<T: Value>(
    view: View<'_, T>,
    wanted: &[T],
    aligned: bool,
    input: &mut Input<'_>,
) {
    let all = bits(wanted.iter().copied());
    assert_eq!((view.len(), view.is_empty()), (wanted.len(), wanted.is_empty()));
    assert_eq!(bits(view.to_vec()), all, "to_vec");
    assert_eq!(bits(view), all, "into_iter");
    let mut folded = Vec::new();
    view.iter().for_each(|value| folded.push(value.bits()));
    assert_eq!(folded, all, "fold");
    let contiguous = model::is_contiguous(view.shape(), view.strides());
    let cells = view.as_cells();
    assert_eq!(cells.is_some(), wanted.is_empty() || contiguous && aligned, "cells");
    if let Some(cells) = cells {
        assert_eq!(bits(cells.iter().map(|cell| cell.get())), all, "cells");
    }
    let mut copy = wanted.to_vec();
    copy.reverse();
    view.copy_to_slice(&mut copy).expect("as long");
    assert_eq!(bits(copy.iter().copied()), all, "copy_to_slice");
    if copy.pop().is_some() {
        let error = Error::ShapeMismatch {
            field: ShapeField::Length,
            expected: copy.len(),
            found: wanted.len(),
        };
        assert_eq!(view.copy_to_slice(&mut copy), Err(error));
    }
    assert_eq!(view.item().ok().map(Value::bits), (all.len() == 1).then(|| all[0]), "item");
    by_index(view, &all, input);
    by_steps(view, &all, input);
}

/// Reads elements by index, inside and outside the shape.
fn by_index<T: Value>(view: View<'_, T>, all: &[u128], input: &mut Input<'_>) {
    let get = |index: &[usize]| view.get(index).map(Value::bits);
    for (i, &wanted) in all.iter().enumerate().take(300) {
        assert_eq!(get(&model::index_of(i, view.shape())), Some(wanted), "element {i}");
    }
    let inside = match all.len() {
        0 => vec![0; view.shape().len()],
        len => model::index_of(input.below(len), view.shape()),
    };
    for axis in 0..inside.len() {
        for outside in [view.shape()[axis] as usize, usize::MAX, i64::MAX as usize, 1 << 63] {
            let mut index = inside.clone();
            index[axis] = outside;
            assert_eq!(get(&index), None, "{index:?} of {:?}", view.shape());
        }
    }
    let longer = [&inside[..], &[0]].concat();
    assert_eq!(get(&longer), None, "an axis too many");
    if let Some((_, shorter)) = inside.split_last() {
        assert_eq!(get(shorter), None, "an axis too few");
    }
}

/// Advances an iterator as the input says, and compares it with the list.
fn by_steps<T: Value>(view: View<'_, T>, all: &[u128], input: &mut Input<'_>) {
    let mut iter = view.iter();
    let mut rest = all;
    for _ in 0..16 {
        assert_eq!(iter.len(), rest.len(), "len");
        assert_eq!(iter.size_hint(), (rest.len(), Some(rest.len())), "size_hint");
        match input.below(8) {
            0 => {
                let count = input.below(rest.len() + 2);
                assert_eq!(iter.nth(count).map(Value::bits), rest.get(count).copied(), "nth");
                rest = rest.get(count + 1..).unwrap_or_default();
            }
            1 => {
                let count = input.below(rest.len() + 2);
                let (taken, left) = rest.split_at(count.min(rest.len()));
                assert_eq!(bits(iter.by_ref().take(count)), taken, "take");
                rest = left;
            }
            2 => assert_eq!(bits(iter.clone()), rest, "the rest of a clone"),
            3 => {
                let mut folded = Vec::new();
                iter.clone().for_each(|value| folded.push(value.bits()));
                assert_eq!(folded, rest, "the rest, folded");
            }
            4 => {
                let step = 1 + input.below(5);
                let wanted: Vec<_> = rest.iter().copied().step_by(step).collect();
                assert_eq!(bits(iter.clone().step_by(step)), wanted, "step_by");
            }
            5 => assert_eq!(iter.clone().last().map(Value::bits), rest.last().copied(), "last"),
            _ => {
                assert_eq!(iter.next().map(Value::bits), rest.first().copied(), "next");
                rest = rest.get(1..).unwrap_or_default();
            }
        }
    }
    assert_eq!(bits(iter.by_ref()), rest, "the rest");
    assert!(iter.next().is_none() && iter.next().is_none(), "an element after the end");
    assert_eq!(iter.len(), 0);
}
