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
///
/// The word `pickle` adds pickles to a class that implements
/// [`PickleDlpack`](crate::PickleDlpack): `dlpack_methods!(Zeros, pickle);`, or `pickle,` before the
/// block.
#[macro_export]
macro_rules! dlpack_methods {
    ($class:ident $(,)?) => {
        $crate::dlpack_methods! {
            #[::pyo3::pymethods]
            impl $class {}
        }
    };
    ($class:ident, pickle $(,)?) => {
        $crate::dlpack_methods! {
            pickle,
            #[::pyo3::pymethods]
            impl $class {}
        }
    };
    (pickle, $(#[$attribute:meta])* impl $class:ident { $($methods:tt)* }) => {
        $crate::dlpack_methods! {
            $(#[$attribute])*
            impl $class {
                $($methods)*

                /// For pickle: the bytes, which protocol 5 can send out of band, and how to read them.
                fn __reduce_ex__<'py>(
                    slf: &$crate::macros::Bound<'py, Self>,
                    protocol: i64,
                ) -> $crate::Result<$crate::macros::Bound<'py, $crate::macros::PyTuple>> {
                    $crate::macros::reduce(slf, protocol)
                }

                /// Rebuild a pickled object.
                #[classmethod]
                fn _unpickle(
                    _class: &$crate::macros::Bound<'_, $crate::macros::PyType>,
                    data: &$crate::macros::Bound<'_, $crate::macros::PyAny>,
                    dtype: $crate::PyDType,
                    shape: $crate::macros::Vec<i64>,
                    flags: u64,
                ) -> $crate::Result<Self> {
                    $crate::macros::unpickle(data, dtype, &shape, flags)
                }
            }
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
    pub use std::vec::Vec;

    use pyo3::intern;
    use pyo3::prelude::*;
    pub use pyo3::types::{PyTuple, PyType};
    pub use pyo3::{Bound, Py, PyAny, PyResult, Python};

    use crate::export::answer::{Arguments, answer};
    use crate::export::class::{ExportDlpack, PickleDlpack, export, permitted};
    use crate::export::{exchange, pickle};
    use crate::stream::Ready;
    use crate::{PyDType, Result, TensorObject};

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

    pub fn reduce<'py, T: PickleDlpack>(
        object: &Bound<'py, T>,
        protocol: i64,
    ) -> Result<Bound<'py, PyTuple>> {
        let py = object.py();
        let rebuild = object.as_any().get_type().getattr(intern!(py, "_unpickle"))?;
        let state = TensorObject::new(export(object.as_borrowed())?).state(py, protocol)?;
        Ok((rebuild, state).into_pyobject(py)?)
    }

    pub fn unpickle<T: PickleDlpack>(
        data: &Bound<'_, PyAny>,
        dtype: PyDType,
        shape: &[i64],
        flags: u64,
    ) -> Result<T> {
        T::from_tensor(pickle::rebuild(data.as_borrowed(), dtype.0, shape, flags)?)
    }
}
