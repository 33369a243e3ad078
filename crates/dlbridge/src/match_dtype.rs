//! `match_dtype!`: one body for several element types.

/// Runs a body for the Rust type of a tensor's elements, in one line.
///
/// `match_dtype!(dtype, T: f32 | f64 => body)` is `Ok(body)`, with `T` as the first of the types that
/// reads `dtype`, or an error that names them all. With `_ => other` at the end it is a plain value.
///
/// ```
/// use dlbridge::{Error, Tensor, match_dtype};
///
/// fn sum(tensor: &Tensor) -> Result<f64, Error> {
///     match_dtype!(tensor.dtype(), T: f32 | f64 | i32 => {
///         tensor.view::<T>()?.iter().map(f64::from).sum()
///     })
/// }
///
/// assert_eq!(sum(&Tensor::from([1.5_f32, 2.0]))?, 3.5);
/// assert_eq!(sum(&Tensor::from([1, 2]))?, 3.0);
/// let error = sum(&Tensor::from([true])).unwrap_err();
/// assert_eq!(error.to_string(), "dtype: expected float32 or float64 or int32, found bool");
///
/// let tensor = Tensor::from([1_u8]);
/// let size = match_dtype!(tensor.dtype(), T: u8 | i8 => size_of::<T>(), _ => 0);
/// assert_eq!(size, 1);
/// # Ok::<(), dlbridge::Error>(())
/// ```
#[macro_export]
macro_rules! match_dtype {
    ($dtype:expr, $T:ident : $($type:ty)|+ => $body:expr, _ => $other:expr $(,)?) => {{
        let found: $crate::DType = $dtype;
        match found.word() {
            // Needed for one type, needless for another.
            $(#[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
            word if word == <$type as $crate::Element>::DTYPE.word() => {
                type $T = $type;
                $body
            })+
            _ => $other,
        }
    }};
    ($dtype:expr, $T:ident : $($type:ty)|+ => $body:expr $(,)?) => {{
        let found: $crate::DType = $dtype;
        match found.word() {
            // Needed for one type, needless for another.
            $(#[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
            word if word == <$type as $crate::Element>::DTYPE.word() => {
                type $T = $type;
                ::core::result::Result::Ok($body)
            })+
            _ => {
                const WANTED: &[$crate::DType] = &[$(<$type as $crate::Element>::DTYPE),+];
                ::core::result::Result::Err($crate::Error::DTypeNotIn { found, expected: WANTED })
            }
        }
    }};
    ($($other:tt)*) => {
        ::core::compile_error!(
            "expected a dtype, a name and its types: `match_dtype!(x.dtype(), T: f32 | f64 => body)`; \
             `_ => other` may follow"
        )
    };
}
