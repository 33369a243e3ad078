//! The suites for a [`TensorRef`]: one that was made from a borrow, and one that repeats a few elements more often than there
//! is memory.
#![allow(unsafe_code, reason = "it does by hand what a C function does")]

use std::fmt::Debug;

use dlbridge::{Access, Element, Error, ShapeField, TensorRef};

use super::Expected;

/// Checks a tensor that was made from a borrow: it is the borrowed memory, read-only, and a C
/// function gets a descriptor that says the same.
///
/// ```
/// use dlbridge::TensorRef;
/// use dlbridge_testing::conformance::{self, Expected};
///
/// let values = [1.0_f32, 2.0];
/// let expected = Expected::new(&[2], &values).at(values.as_ptr());
/// conformance::borrowed(&TensorRef::from(&values[..]), &expected);
/// ```
///
/// # Panics
///
/// If it does not conform, saying where.
#[track_caller]
pub fn borrowed<T: Element + PartialEq + Debug>(tensor: &TensorRef<'_>, expected: &Expected<T>) {
    assert_eq!(tensor.access(), Access::Frozen, "borrowed: access class");
    expected.check(tensor, "borrowed");
    tensor.with_raw(|descriptor| {
        // SAFETY: alive until this closure ends (R2).
        let again = unsafe { TensorRef::from_raw(descriptor) }.expect("a valid descriptor");
        expected.check(&again, "borrowed, as a C function sees it");
    });
}

/// Checks a tensor of at least [`HUGE`] bytes that repeats one value: it is described and read by
/// index, but neither copied nor borrowed as a slice.
///
/// # Panics
///
/// If it does not conform, saying where.
#[track_caller]
pub fn repeated<T: Element + PartialEq + Debug>(tensor: &TensorRef<'_>, shape: &[i64], value: T) {
    assert_eq!(tensor.shape(), shape, "repeated: shape");
    let len: i128 = shape.iter().map(|&extent| i128::from(extent)).product();
    let nbytes = len * size_of::<T>() as i128;
    assert!(nbytes >= HUGE && nbytes <= isize::MAX as i128, "repeated: {shape:?} is no such shape");
    assert_eq!(tensor.len() as i128, len, "repeated: len");
    assert_eq!(tensor.nbytes() as i128, nbytes, "repeated: nbytes");
    assert!(!tensor.is_contiguous() && !tensor.is_empty(), "repeated: is not contiguous");
    let view = tensor.view::<T>().expect("repeated: a view of its type");
    let last: Vec<usize> = shape.iter().map(|&extent| extent as usize - 1).collect();
    assert_eq!(view.get(vec![0; shape.len()]), Some(value), "repeated: the first element");
    assert_eq!(view.get(&last), Some(value), "repeated: the last element");
    for axis in 0..shape.len() {
        let mut outside = last.clone();
        outside[axis] += 1;
        assert_eq!(view.get(&outside), None, "repeated: {outside:?} lies outside");
    }
    let mut iter = view.iter();
    assert_eq!(iter.len(), tensor.len(), "repeated: the iterator's length");
    assert_eq!((iter.next(), iter.next()), (Some(value), Some(value)), "repeated: from the front");
    assert_eq!(iter.len(), tensor.len() - 2, "repeated: what is left");
    assert!(view.as_cells().is_none(), "repeated: no cells");
    assert!(view.item().is_err(), "repeated: not one element");
    let short = view.copy_to_slice(&mut []);
    assert_eq!(
        short,
        Err(Error::ShapeMismatch { field: ShapeField::Length, expected: 0, found: tensor.len() })
    );
    let size = tensor.nbytes();
    let copied = tensor.to_contiguous().map(drop);
    assert_eq!(copied, Err(Error::OutOfMemory { size }), "repeated: there is no memory for a copy");
    assert!(tensor.as_bytes().is_err(), "repeated: no bytes");
}

/// More bytes than any machine has.
pub const HUGE: i128 = 1 << 57;
