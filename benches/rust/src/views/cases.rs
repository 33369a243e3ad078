//! The measured loops: sums, counts, maps and pairs over elements of three types, 16 KiB
//! contiguous, or about 4096 elements in strided layouts.
//! Invariant: the first method of a case is the reference of the others.

use std::cell::RefCell;
use std::sync::Arc;

use dlbridge::{Element, Parts, Plain, Tensor, View};
use ndarray::{Array1, Array2, Array3, ArrayView, Axis, Dimension, s};

/// One loop over one layout.
pub struct Case {
    /// The name of the loop.
    pub name: &'static str,
    /// The element type.
    pub dtype: String,
    /// The layout.
    pub layout: &'static str,
    /// The name of the method, and the loop; it returns a number that depends on every element.
    pub ways: Vec<(&'static str, Way)>,
}

/// A loop, with its memory.
pub type Way = Box<dyn Fn() -> f64>;

/// Small enough for the fastest cache, since memory bandwidth is not measured.
const BYTES: usize = 16 * 1024;
/// The number of elements of layouts that are not contiguous.
const LEN: usize = 4096;
const SIDE: usize = 64;
const EDGE: usize = 16;

/// A number that loops compute with.
pub trait Number: Element + Into<f64> + PartialOrd {
    fn small(number: usize) -> Self;
    fn plus(self, other: Self) -> Self;
    /// Twice the number, plus one.
    fn changed(self) -> Self;
}

macro_rules! numbers {
    ($($ty:ty: $plus:expr, $changed:expr;)*) => {$(
        impl Number for $ty {
            fn small(number: usize) -> Self {
                (number % 13) as Self
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                let plus: fn(Self, Self) -> Self = $plus;
                plus(self, other)
            }

            #[inline(always)]
            fn changed(self) -> Self {
                let changed: fn(Self) -> Self = $changed;
                changed(self)
            }
        }
    )*};
}

numbers! {
    f32: |a, b| a + b, |a| a * 2.0 + 1.0;
    f64: |a, b| a + b, |a| a * 2.0 + 1.0;
    u8: |a, b| a.wrapping_add(b), |a| a.wrapping_mul(2).wrapping_add(1);
}

/// All cases.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(contiguous::<f32>());
    cases.extend(contiguous::<f64>());
    cases.extend(contiguous::<u8>());
    cases.extend([4, 64, 512].map(distances));
    cases.extend(strided::<f32>());
    cases.extend(strided::<f64>());
    cases.extend(strided::<u8>());
    cases
}

/// Small numbers.
pub fn values<T: Number>(len: usize) -> Vec<T> {
    (0..len).map(T::small).collect()
}

/// Never dropped, so that loops may borrow it.
fn kept<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn dtype<T: Element>() -> String {
    T::DTYPE.to_string()
}

/// A `Shared` tensor, like memory from another language.
fn shared<T: Number>(values: &[T]) -> &'static Tensor {
    kept(Tensor::from(values.to_vec()).into_shared().into())
}

fn contiguous<T: Number + Plain>() -> Vec<Case> {
    let values = values::<T>(BYTES / size_of::<T>());
    let slice: &'static [T] = kept(values.clone());
    let view: View<'static, T> = shared(&values).view().expect("its own type");
    let frozen = kept(Tensor::from(Arc::<[T]>::from(&values[..])));
    let array = kept(Array1::from(values));
    let cells = view.as_cells().expect("aligned");
    let room = || RefCell::new(vec![T::small(0); slice.len()]);
    let (by_slice, by_view, by_array) = (room(), room(), room());
    let case = |name, ways| Case { name, dtype: dtype::<T>(), layout: "contiguous", ways };
    vec![
        case(
            "sum, fold",
            vec![
                ("slice", way(move || slice.iter().copied().fold(T::small(0), T::plus))),
                ("View", way(move || view.iter().fold(T::small(0), T::plus))),
                (
                    "as_slice",
                    way(move || {
                        let slice = frozen.as_slice::<T>().expect("nobody writes");
                        slice.iter().copied().fold(T::small(0), T::plus)
                    }),
                ),
                ("ndarray", way(move || array.iter().copied().fold(T::small(0), T::plus))),
            ],
        ),
        case(
            "count, for",
            vec![
                ("slice", way(move || above(slice.iter().copied()))),
                ("View", way(move || above(view))),
                ("as_cells", way(move || above(cells.iter().map(|cell| cell.get())))),
                ("ndarray", way(move || above(array.iter().copied()))),
            ],
        ),
        case(
            "map to a vector",
            vec![
                ("slice", way(move || last(slice.iter().map(|x| x.changed()).collect()))),
                ("View", way(move || last(view.map(T::changed)))),
                ("ndarray", way(move || array.map(|x| x.changed())[array.len() - 1])),
            ],
        ),
        case(
            "map, collect",
            vec![
                ("slice", way(move || last(slice.iter().map(|x| x.changed()).collect()))),
                ("View", way(move || last(view.iter().map(T::changed).collect()))),
                (
                    "as_cells",
                    way(move || last(cells.iter().map(|cell| cell.get().changed()).collect())),
                ),
                ("ndarray", way(move || last(array.iter().map(|x| x.changed()).collect()))),
            ],
        ),
        case(
            "map to a slice, zip",
            vec![
                ("slice", way(move || fill(&by_slice, slice.iter().copied()))),
                ("View", way(move || fill(&by_view, view.iter()))),
                ("ndarray", way(move || fill(&by_array, array.iter().copied()))),
            ],
        ),
        case(
            "pairs, zip",
            vec![
                ("slice", way(move || pairs(slice.iter().copied(), slice))),
                ("as_cells", way(move || pairs(cells.iter().map(|cell| cell.get()), slice))),
                ("View", way(move || pairs(view.iter(), slice))),
                ("ndarray", way(move || pairs(array.iter().copied(), slice))),
            ],
        ),
    ]
}

/// The sum of the squared distances of all pairs of points, which are the rows of an array.
fn distances(len: usize) -> Case {
    const POINTS: usize = 64;
    let values: Vec<f64> = values(POINTS * len);
    let slice: &'static [f64] = kept(values.clone());
    let points = Tensor::from(values).reshape([POINTS as i64, len as i64]).expect("it fits");
    let view: View<'static, f64> = kept(Tensor::from(points.into_shared())).view().expect("f64");
    let name = match len {
        4 => "distances of rows of 4",
        64 => "distances of rows of 64",
        _ => "distances of rows of 512",
    };
    let square = |(a, b): (f64, f64)| (a - b) * (a - b);
    let of_slices = move |points: &[f64]| {
        let rows = || points.chunks_exact(len);
        let pair = |(a, b): (&[f64], &[f64])| -> f64 {
            a.iter().copied().zip(b.iter().copied()).map(square).sum()
        };
        rows().map(|a| rows().map(|b| pair((a, b))).fold(0.0, f64::max)).sum::<f64>()
    };
    let of_rows = move || -> f64 {
        let pair = |a: View<'_, f64>, b| -> f64 { a.zip(&b).expect("one length").map(square).sum() };
        view.rows().map(|a| view.rows().map(|b| pair(a, b)).fold(0.0, f64::max)).sum()
    };
    Case {
        name,
        dtype: dtype::<f64>(),
        layout: "contiguous",
        ways: vec![
            ("slice", way(move || of_slices(slice))),
            ("View", way(of_rows)),
            ("to_vec", way(move || of_slices(&view.to_vec()))),
        ],
    }
}

fn strided<T: Number>() -> Vec<Case> {
    let square = kept(Array2::from_shape_vec((SIDE, SIDE), values::<T>(LEN)).expect("it fits"));
    let cube = kept(Array3::from_shape_vec((EDGE, EDGE, EDGE), values::<T>(LEN)).expect("it fits"));
    let line = kept(Array1::from(values::<T>(LEN)));
    let columns = kept(Array2::from_shape_vec((LEN, 4), values::<T>(LEN * 4)).expect("it fits"));
    let padded = kept(Array2::from_shape_vec((LEN / 4, 5), values::<T>(LEN / 4 * 5)));
    let padded = padded.as_ref().expect("it fits");
    let mut cases = Vec::new();
    cases.extend(loops("column of 4", columns.index_axis(Axis(1), 1)));
    cases.extend(loops("transposed", square.t()));
    cases.extend(loops("backwards", line.slice(s![..;-1])));
    cases.extend(loops("every other", line.slice(s![..;2])));
    cases.extend(loops("permuted cube", cube.view().permuted_axes([2, 0, 1])));
    cases.extend(loops("rows of 4 in 5", padded.slice(s![.., ..4])));
    cases.extend(loops("rows of 60 in 64", square.slice(s![.., ..60])));
    cases
}

/// The loops over an ndarray view, and over a tensor of the same layout.
fn loops<T: Number, D: Dimension + 'static>(
    layout: &'static str,
    array: ArrayView<'static, T, D>,
) -> [Case; 3] {
    let array = kept(array);
    let view: View<'static, T> = kept(borrowed(array)).view().expect("its own type");
    let others: &'static [T] = kept(values::<T>(array.len()));
    let case = |name, ways| Case { name, dtype: dtype::<T>(), layout, ways };
    [
        case(
            "sum, fold",
            vec![
                ("ndarray", way(move || array.iter().copied().fold(T::small(0), T::plus))),
                ("View", way(move || view.iter().fold(T::small(0), T::plus))),
            ],
        ),
        case(
            "count, for",
            vec![
                ("ndarray", way(move || above(array.iter().copied()))),
                ("View", way(move || above(view))),
            ],
        ),
        case(
            "pairs, zip",
            vec![
                ("ndarray", way(move || pairs(array.iter().copied(), others))),
                ("View", way(move || pairs(view.iter(), others))),
            ],
        ),
    ]
}

/// A `Shared` tensor over the array's memory, with its layout.
fn borrowed<T: Number, D: Dimension>(array: &ArrayView<'static, T, D>) -> Tensor {
    let shape: Vec<_> = array.shape().iter().map(|&extent| extent as i64).collect();
    let strides: Vec<_> = array.strides().iter().map(|&stride| stride as i64).collect();
    let below: i64 = shape.iter().zip(&strides).map(|(n, step)| (n - 1) * step.min(&0)).sum();
    let above: i64 = shape.iter().zip(&strides).map(|(n, step)| (n - 1) * step.max(&0)).sum();
    let lowest = array.as_ptr().wrapping_offset(below as isize);
    // SAFETY: all elements from the lowest to the highest are in an array that is never dropped.
    let memory = unsafe { std::slice::from_raw_parts(lowest, (above - below) as usize + 1) };
    let builder = Tensor::builder(memory).shape(&shape).strides(&strides);
    builder
        .offset(below.unsigned_abs() as usize)
        .build_read_only::<T>()
        .expect("it fits")
        .into_shared()
        .into()
}

fn way<T: Into<f64>>(run: impl Fn() -> T + 'static) -> Way {
    Box::new(move || run().into())
}

/// The count of numbers above 6.
#[inline(always)]
fn above<T: Number>(elements: impl IntoIterator<Item = T>) -> u32 {
    let mut count = 0;
    for element in elements {
        if element > T::small(6) {
            count += 1;
        }
    }
    count
}

#[inline(always)]
fn pairs<T: Number>(elements: impl Iterator<Item = T>, others: &[T]) -> T {
    let mut sum = T::small(0);
    for (element, &other) in elements.zip(others) {
        sum = pair(sum, element, other);
    }
    sum
}

/// A sum and the larger one of two numbers.
#[inline(always)]
pub fn pair<T: Number>(sum: T, element: T, other: T) -> T {
    sum.plus(if element > other { element } else { other })
}

#[inline(always)]
fn fill<T: Number>(target: &RefCell<Vec<T>>, elements: impl Iterator<Item = T>) -> T {
    let mut target = target.borrow_mut();
    for (place, element) in target.iter_mut().zip(elements) {
        *place = element.changed();
    }
    target[target.len() - 1]
}

fn last<T: Number>(values: Vec<T>) -> T {
    values[values.len() - 1]
}
