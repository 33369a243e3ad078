//! `Shape`, what callers write for a list of extents.

use super::Dims;

/// What stands for a shape, or for strides: an array, a slice or a vector of `usize` or `i64`, by value or by reference,
/// and `()` for no axis.
///
/// ```
/// use dlbridge::{DType, Parts, Tensor};
///
/// let (n, m) = (2_usize, 3_i64);
/// let tensor = Tensor::zeros(DType::F32, [2, 3])?.reshape([n, 3])?.reshape([-1, m])?;
/// assert_eq!(tensor.shape(), [2, 3]);
/// assert_eq!(Tensor::zeros(DType::F32, tensor.shape())?.shape(), [2, 3]);
/// assert!(Tensor::zeros(DType::F32, ())?.shape().is_empty());
/// # Ok::<(), dlbridge::Error>(())
/// ```
///
/// A literal without a type is an `i32`, so lists of these are shapes as well.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no shape",
    note = "a shape is an array, a slice or a `Vec` of `usize` or `i64`, such as `[n, m]`, and `()` for no axis"
)]
pub trait Shape {
    /// Calls `function` with the extents as DLPack has them. Those above `i64::MAX` are `i64::MAX`.
    fn with_extents<R>(&self, function: impl FnOnce(&[i64]) -> R) -> R;
}

impl Shape for [i64] {
    #[inline(always)]
    fn with_extents<R>(&self, function: impl FnOnce(&[i64]) -> R) -> R {
        function(self)
    }
}

impl Shape for () {
    #[inline(always)]
    fn with_extents<R>(&self, function: impl FnOnce(&[i64]) -> R) -> R {
        function(&[])
    }
}

impl<S: Shape + ?Sized> Shape for &S {
    #[inline(always)]
    fn with_extents<R>(&self, function: impl FnOnce(&[i64]) -> R) -> R {
        S::with_extents(self, function)
    }
}

macro_rules! converted {
    ($($extent:ty, $convert:expr;)*) => {$(
        impl Shape for [$extent] {
            #[inline]
            fn with_extents<R>(&self, function: impl FnOnce(&[i64]) -> R) -> R {
                let mut extents = Dims::zeros(self.len());
                for (to, &from) in extents.iter_mut().zip(self) {
                    *to = $convert(from);
                }
                function(&extents)
            }
        }
    )*};
}

converted! {
    i32, i64::from;
    usize, |extent| i64::try_from(extent).unwrap_or(i64::MAX);
}

macro_rules! lists {
    ($($extent:ty)*) => {$(
        impl<const N: usize> Shape for [$extent; N] {
            #[inline(always)]
            fn with_extents<R>(&self, function: impl FnOnce(&[i64]) -> R) -> R {
                self[..].with_extents(function)
            }
        }

        impl Shape for Vec<$extent> {
            #[inline(always)]
            fn with_extents<R>(&self, function: impl FnOnce(&[i64]) -> R) -> R {
                self[..].with_extents(function)
            }
        }
    )*};
}

lists! { i32 i64 usize }
