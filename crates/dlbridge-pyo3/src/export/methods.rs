//! `dlpack_methods!`, which writes the block of methods of a class that has no others.

/// Writes the block of methods of a class that implements [`ExportDlpack`](crate::ExportDlpack) and has
/// no other methods. A class with methods calls [`dlpack_class`](crate::dlpack_class) in its own block.
///
/// ```
/// # use dlbridge::Tensor;
/// # use dlbridge_pyo3::{ExportDlpack, Result, dlpack_methods};
/// # use pyo3::prelude::*;
/// #[pyclass(frozen)]
/// struct Zeros;
///
/// impl ExportDlpack for Zeros {
///     fn tensor(&self) -> Result<Tensor> {
///         Ok(Tensor::from(vec![0_u8; 3]))
///     }
/// }
///
/// dlpack_methods!(Zeros);
/// # Python::initialize();
/// # Python::attach(|py| -> Result<()> {
/// # let zeros = Bound::new(py, Zeros)?;
/// # assert_eq!(zeros.extract::<dlbridge_pyo3::PyTensor>()?.view::<u8>()?.to_vec(), [0, 0, 0]);
/// # Ok(()) }).unwrap();
/// ```
///
/// The word `pickle` adds pickles to a class that implements
/// [`PickleDlpack`](crate::PickleDlpack): `dlpack_methods!(Zeros, pickle);`.
///
/// It requires the dependency `pyo3` under that name.
#[macro_export]
macro_rules! dlpack_methods {
    (@with $function:ident $class:ty) => {
        #[::pyo3::pymethods]
        impl $class {
            /// The C exchange API of this type.
            #[classattr]
            fn __dlpack_c_exchange_api__(
                py: ::pyo3::Python<'_>,
            ) -> ::pyo3::PyResult<::pyo3::Py<::pyo3::PyAny>> {
                $crate::$function::<Self>(py)
            }
        }
    };
    ($class:ty $(,)?) => {
        $crate::dlpack_methods!(@with dlpack_class $class);
    };
    ($class:ty, pickle $(,)?) => {
        $crate::dlpack_methods!(@with picklable_dlpack_class $class);
    };
}
