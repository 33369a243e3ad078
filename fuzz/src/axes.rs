//! A layout over a short list of values, broadcast up to the largest extents. The targets create
//! views of other crates with such a layout.
//! Invariant: every element that is read is in the list; numbers have 128 bits.

use dlbridge::{DType, DescriptorError, Error, Flags, MAX_NDIM, TensorRef, View};

use crate::input::Input;
use crate::model;
use crate::value::{Value, bits};

/// An offset into the list, and an extent and a stride for each axis.
#[derive(Clone, Debug)]
pub(crate) struct Axes {
    /// The offset of element `[0, 0, ...]`.
    pub(crate) at: i128,
    pub(crate) extents: Vec<i128>,
    pub(crate) strides: Vec<i128>,
}

/// The largest element count for which all elements are compared.
const ALL: i128 = 400;

impl Axes {
    /// The lowest and the highest offset of an element; `None` if they do not fit 128 bits.
    pub(crate) fn places(&self) -> Option<(i128, i128)> {
        let axes = self.extents.iter().zip(&self.strides);
        axes.filter(|&(&extent, _)| extent > 1).try_fold((self.at, self.at), |ends, axis| {
            let reach = (axis.0 - 1).checked_mul(*axis.1)?;
            Some((ends.0.checked_add(reach.min(0))?, ends.1.checked_add(reach.max(0))?))
        })
    }

    /// The shape and strides of a tensor with this layout, or the reasons why it is impossible.
    pub(crate) fn judge(&self, dtype: DType) -> Result<(Vec<i64>, Vec<i64>), Vec<Error>> {
        let fit = |numbers: &[i128]| {
            numbers.iter().map(|&number| i64::try_from(number)).collect::<Result<Vec<_>, _>>()
        };
        let too_large = |what| Error::Descriptor(DescriptorError::SizeOverflow { what });
        let (shape, strides) = match (fit(&self.extents), fit(&self.strides)) {
            (Ok(shape), Ok(strides)) => (shape, strides),
            // The library may name any of several faults first.
            _ => return Err(vec![too_large("element count"), too_large("strided span")]),
        };
        if shape.len() > MAX_NDIM {
            return Err(vec![DescriptorError::NdimOutOfRange { ndim: shape.len() as i32 }.into()]);
        }
        let span = model::measure(&shape, &strides)?;
        if model::size(span.len, dtype, Flags::NONE).is_none() {
            return Err(vec![too_large("byte size")]);
        }
        Ok((shape, strides))
    }

    /// The offset of an index.
    fn place(&self, index: &[usize]) -> usize {
        let steps = index.iter().zip(&self.strides).map(|(&i, &stride)| i as i128 * stride);
        (self.at + steps.sum::<i128>()) as usize
    }

    /// Asserts that a tensor has this layout, and compares its elements.
    pub(crate) fn check<T: Value>(
        &self,
        tensor: &TensorRef<'_>,
        memory: &[T],
        input: &mut Input<'_>,
    ) {
        let (shape, strides) = self.judge(T::DTYPE).expect("what can be described");
        assert_eq!((tensor.shape(), tensor.strides()), (&shape[..], &strides[..]));
        let span = model::measure(&shape, &strides).expect("judged");
        assert_eq!(tensor.len() as i128, span.len, "{self:?}");
        let size = model::size(span.len, T::DTYPE, Flags::NONE).expect("judged");
        assert_eq!(tensor.nbytes() as i128, size, "{self:?}");
        assert_eq!(tensor.is_contiguous(), model::is_contiguous(&shape, &strides));
        let view = tensor.view::<T>().expect("of this type");
        if span.len > ALL {
            return self.check_some(view, memory, input);
        }
        let element = |i| memory[self.place(&model::index_of(i, &shape))];
        let wanted: Vec<T> = (0..span.len as usize).map(element).collect();
        crate::elements::check_view(view, &wanted, true, input);
        let copy = tensor.to_contiguous().expect("few elements");
        let copied = copy.view::<T>().expect("of this type").to_vec();
        assert_eq!(bits(copied), bits(wanted), "a contiguous copy");
    }

    /// Reads a sample of the elements, if there are too many to compare all.
    fn check_some<T: Value>(&self, view: View<'_, T>, memory: &[T], input: &mut Input<'_>) {
        for _ in 0..8 {
            let extents = self.extents.iter();
            let index: Vec<usize> = extents
                .map(|&extent| match input.below(4) {
                    0 => 0,
                    1 => extent as usize - 1,
                    _ => (u128::from(input.any::<u64>()) % extent as u128) as usize,
                })
                .collect();
            let wanted = memory[self.place(&index)];
            assert_eq!(view.get(&index).map(Value::bits), Some(wanted.bits()), "{index:?}");
            let axis = input.below(index.len());
            let mut outside = index;
            outside[axis] = self.extents[axis] as usize;
            assert_eq!(view.get(&outside).map(Value::bits), None, "{outside:?}");
        }
        let shape: Vec<i64> = self.extents.iter().map(|&extent| extent as i64).collect();
        let mut iter = view.iter();
        for i in 0..20 {
            let wanted = memory[self.place(&model::index_of(i, &shape))];
            assert_eq!(iter.next().map(Value::bits), Some(wanted.bits()), "element {i}");
        }
        assert_eq!(iter.len(), view.len() - 20);
        if let Some(cells) = view.as_cells() {
            assert!(model::is_contiguous(view.shape(), view.strides()));
            assert_eq!(cells.len(), view.len());
        }
    }
}

/// An extent: mostly small, sometimes near a power of two or the largest numbers.
pub(crate) fn repeats(input: &mut Input<'_>) -> usize {
    match input.below(4) {
        0 | 1 => input.below(6),
        2 => {
            let shift = input.below(64) as u32;
            (1_usize << shift).wrapping_add(input.below(300)).wrapping_sub(input.below(3))
        }
        _ => input.number() as usize,
    }
}
