//! `Shape`, what callers write for a list of extents, strides or indices.

use super::Dims;

/// What stands for a shape, for strides or for an index: an array, a slice or a vector of `usize` or `i64`, by value or by
/// reference, and `()` for no axis.
///
/// ```
/// use dlbridge::{DType, Parts, Tensor};
///
/// let (n, m) = (2_usize, 3_i64);
/// let tensor = Tensor::zeros(DType::F32, [2, 3])?.reshape([n, 3])?.reshape([-1, m])?;
/// assert_eq!(tensor.shape(), [2, 3]);
/// assert_eq!(Tensor::zeros(DType::F32, tensor.shape())?.shape(), [2, 3]);
/// assert!(Tensor::zeros(DType::F32, ())?.shape().is_empty());
/// let view = tensor.view::<f32>()?;
/// assert_eq!((view.get([n - 1, 2]), view.get([0, m]), view.get([0, -1])), (Some(0.0), None, None));
/// assert_eq!(Tensor::scalar(1.5).view::<f64>()?.get(()), Some(1.5));
/// # Ok::<(), dlbridge::Error>(())
/// ```
///
/// A literal without a type is an `i32`, so lists of these are shapes as well.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no shape and no index",
    note = "both are an array, a slice or a `Vec` of `usize` or `i64`, such as `[n, m]` or `[i]`, and `()` for no axis"
)]
pub trait Shape {
    /// The number of axes.
    fn ndim(&self) -> usize;

    /// The extent of an axis, or the index along it. Those above `i64::MAX` are `i64::MAX`.
    fn extent(&self, axis: usize) -> i64;

    /// Calls `function` with the extents as DLPack has them.
    #[inline]
    fn with_extents<R>(&self, function: impl FnOnce(&[i64]) -> R) -> R {
        let mut extents = Dims::zeros(self.ndim());
        for (axis, to) in extents.iter_mut().enumerate() {
            *to = self.extent(axis);
        }
        function(&extents)
    }
}

impl Shape for () {
    #[inline(always)]
    fn ndim(&self) -> usize {
        0
    }

    #[inline(always)]
    fn extent(&self, _: usize) -> i64 {
        unreachable!("no axis")
    }
}

macro_rules! slices {
    ($($extent:ty, $convert:expr $(, $with_extents:item)?;)*) => {$(
        impl Shape for [$extent] {
            #[inline(always)]
            fn ndim(&self) -> usize {
                self.len()
            }

            #[inline(always)]
            fn extent(&self, axis: usize) -> i64 {
                $convert(self[axis])
            }

            $($with_extents)?
        }
    )*};
}

slices! {
    i32, i64::from;
    usize, |extent| i64::try_from(extent).unwrap_or(i64::MAX);
    i64, i64::from,
    #[inline(always)]
    fn with_extents<R>(&self, function: impl FnOnce(&[i64]) -> R) -> R {
        function(self)
    };
}

macro_rules! like_slices {
    ($([$($generics:tt)*] $list:ty, |$it:ident| $slice:expr;)*) => {$(
        impl<$($generics)*> Shape for $list {
            #[inline(always)]
            fn ndim(&self) -> usize {
                let $it = self;
                $slice.ndim()
            }

            #[inline(always)]
            fn extent(&self, axis: usize) -> i64 {
                let $it = self;
                $slice.extent(axis)
            }

            #[inline(always)]
            fn with_extents<R>(&self, function: impl FnOnce(&[i64]) -> R) -> R {
                let $it = self;
                $slice.with_extents(function)
            }
        }
    )*};
}

like_slices! {
    [S: Shape + ?Sized] &S, |it| **it;
    [const N: usize] [i32; N], |it| it[..];
    [const N: usize] [i64; N], |it| it[..];
    [const N: usize] [usize; N], |it| it[..];
    [] Vec<i32>, |it| it[..];
    [] Vec<i64>, |it| it[..];
    [] Vec<usize>, |it| it[..];
}
