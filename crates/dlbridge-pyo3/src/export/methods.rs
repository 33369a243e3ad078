//! `dlpack_methods!`, which adds DLPack's methods to a user's own Python class.

/// Adds DLPack's methods to a class that implements [`ExportDlpack`](crate::ExportDlpack).
///
/// They are `__dlpack__`, with all keywords of the array API standard; `__dlpack_device__`; and
/// `__dlpack_c_exchange_api__`, the C exchange API. PyO3 allows a class one block of methods, so
/// the macro wraps the block of a class that has other methods:
///
/// ```
/// # use dlbridge::Tensor;
/// # use dlbridge_pyo3::{ExportDlpack, Result, dlpack_methods};
/// # use pyo3::prelude::*;
/// #[pyclass(frozen)]
/// struct Zeros {
///     len: usize,
/// }
///
/// impl ExportDlpack for Zeros {
///     fn tensor(&self) -> Result<Tensor> {
///         Ok(Tensor::from(vec![0_u8; self.len]))
///     }
/// }
///
/// dlpack_methods! {
///     #[pymethods]
///     impl Zeros {
///         #[new]
///         fn new(len: usize) -> Self {
///             Self { len }
///         }
///
///         fn __len__(&self) -> usize {
///             self.len
///         }
///     }
/// }
/// # Python::initialize();
/// # Python::attach(|py| -> Result<()> {
/// # let zeros = py.get_type::<Zeros>().call1((3,))?;
/// # assert_eq!(zeros.len()?, 3);
/// # assert_eq!(zeros.extract::<dlbridge_pyo3::PyTensor>()?.view::<u8>()?.to_vec(), [0, 0, 0]);
/// # Ok(()) }).unwrap();
/// ```
///
/// The short form, `dlpack_methods!(Zeros);`, is for a class without other methods. It requires the
/// dependency `pyo3` under that name.
#[macro_export]
macro_rules! dlpack_methods {
    ($class:ident $(,)?) => {
        $crate::dlpack_methods! {
            #[::pyo3::pymethods]
            impl $class {}
        }
    };
    ($(#[$attribute:meta])* impl $class:ident { $($methods:tt)* }) => {
        $(#[$attribute])*
        impl $class {
            $($methods)*

            /// The C exchange API of this type.
            #[classattr]
            fn __dlpack_c_exchange_api__(
                py: $crate::macros::Python<'_>,
            ) -> $crate::macros::PyResult<$crate::macros::Py<$crate::macros::PyAny>> {
                $crate::dlpack_class::<$class>(py)
            }
        }
    };
}

/// The types that [`dlpack_methods!`](crate::dlpack_methods) names. Not for other use.
#[doc(hidden)]
pub mod macros {
    pub use pyo3::{Py, PyAny, PyResult, Python};
}
