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
                $crate::macros::exchange_api::<$class>(py)
            }

            /// Return a capsule over the same memory.
            #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
            fn __dlpack__<'py>(
                slf: &$crate::macros::Bound<'py, Self>,
                stream: $crate::macros::Option<$crate::macros::Bound<'py, $crate::macros::PyAny>>,
                max_version: $crate::macros::Option<(u32, u32)>,
                dl_device: $crate::macros::Option<(i32, $crate::macros::Option<i32>)>,
                copy: $crate::macros::Option<bool>,
            ) -> $crate::Result<$crate::macros::Bound<'py, $crate::macros::PyAny>> {
                $crate::macros::dlpack(slf, stream, max_version, dl_device, copy)
            }

            /// Return the device's type and index.
            fn __dlpack_device__(
                slf: &$crate::macros::Bound<'_, Self>,
            ) -> $crate::Result<(i32, i32)> {
                $crate::macros::dlpack_device(slf)
            }
        }
    };
}

/// The functions that [`dlpack_methods!`](crate::dlpack_methods) calls. Not for other use.
#[doc(hidden)]
pub mod macros {
    pub use std::option::Option;

    pub use pyo3::{Bound, Py, PyAny, PyResult, Python};

    use crate::Result;
    use crate::export::answer::{Arguments, answer};
    use crate::export::class::{ExportDlpack, export, permitted};
    use crate::export::exchange;
    use crate::stream::Ready;

    pub fn exchange_api<T: ExportDlpack>(py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(exchange::capsule::<T>(py)?.unbind())
    }

    pub fn dlpack<'py, T: ExportDlpack>(
        object: &Bound<'py, T>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, Option<i32>)>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        let tensor = export(object.as_borrowed())?;
        let arguments = Arguments { stream, max_version, dl_device, copy };
        let request = permitted::<T>(&tensor, arguments.request())?;
        let ready = Ready::for_tensor(&tensor);
        answer(object.py(), request, arguments.stream.as_ref(), tensor, ready.as_ref())
    }

    pub fn dlpack_device<T: ExportDlpack>(object: &Bound<'_, T>) -> Result<(i32, i32)> {
        let device = export(object.as_borrowed())?.device();
        Ok((device.kind.0, device.id))
    }
}
