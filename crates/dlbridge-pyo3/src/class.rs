//! DLPack for a user's own Python class: the trait to implement, the macro that adds the methods.
//! Answering a consumer belongs to `negotiate`, the exchange table to `exchange`.
//! Invariant: no panic of a user's method goes on as one; it becomes an exception here.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use dlbridge::Tensor;
use pyo3::exceptions::PyRuntimeError;
use pyo3::pyclass::boolean_struct::True;
use pyo3::{Borrowed, PyClass, PyErr};

use crate::{Error, Result, stream};

/// A Python class of your own that hands its memory to every framework.
///
/// One method to write, and one line, [`dlpack_methods!`](crate::dlpack_methods), for the methods
/// that Python sees. Every framework's `from_dlpack` then takes the objects.
///
/// ```
/// use dlbridge::{SharedTensor, Tensor};
/// use dlbridge_pyo3::{ExportDlpack, Result, dlpack_methods};
/// use pyo3::prelude::*;
///
/// #[pyclass(frozen)]
/// struct Samples {
///     tensor: SharedTensor,
/// }
///
/// impl ExportDlpack for Samples {
///     fn tensor(&self) -> Result<Tensor> {
///         Ok(self.tensor.clone().into())
///     }
/// }
///
/// dlpack_methods!(Samples);
/// # Python::initialize();
/// # Python::attach(|py| -> Result<()> {
/// let tensor = Tensor::from(vec![1.0_f32, 2.0]).into_shared();
/// let samples = Bound::new(py, Samples { tensor })?;
/// let device: (i32, i32) = samples.call_method0("__dlpack_device__")?.extract()?;
/// assert_eq!(device, (1, 0));
/// # let tensor: dlbridge_pyo3::PyTensor = samples.extract()?;
/// # assert_eq!(tensor.view::<f32>()?.to_vec(), [1.0, 2.0]);
/// # Ok(()) }).unwrap();
/// ```
///
/// Nothing that a safe `tensor` can return is unsound: a tensor owns its memory, and one that
/// nobody else can reach (class [`Exclusive`](dlbridge::Access::Exclusive)) cannot be kept as
/// well. What is given is a tensor over memory that
///
/// - is a clone of a [`SharedTensor`](dlbridge::SharedTensor): writable after
///   [`into_shared`](Tensor::into_shared) if the tensor was, read-only after
///   [`into_frozen`](Tensor::into_frozen);
/// - is shared through an `Arc<[T]>` or another immutable owner: read-only;
/// - is a copy made for the occasion: the consumer's alone.
///
/// Read-only memory is only as safe as its consumers: that they do not write to it is trust C1 of
/// `SAFETY.md`. NumPy, JAX and pyarrow keep to it; **PyTorch, Paddle and TVM-FFI make arrays of it
/// that can be written**, and `torch.from_dlpack(samples)[0] = 1` then changes what a `&[f32]` of an
/// `Arc<[f32]>` refers to, or ends the process where a `&'static [f32]` lies in read-only pages. A
/// class for them gives memory that is shared and writable, or copies
/// ([`COPIES_READ_ONLY`](Self::COPIES_READ_ONLY)).
pub trait ExportDlpack: PyClass {
    /// The tensor that the object keeps as long as it lives, if it keeps one. Consumers of the C
    /// exchange API then read it without a new handle, for the length of a call.
    ///
    /// It is lent if it is writable and of class [`Shared`](dlbridge::Access::Shared).
    ///
    /// ```
    /// # use dlbridge::{SharedTensor, Tensor};
    /// # use dlbridge_pyo3::{ExportDlpack, Lend, Result, dlpack_methods};
    /// # use pyo3::prelude::*;
    /// # #[pyclass(frozen)]
    /// # struct Samples {
    /// #     tensor: SharedTensor,
    /// # }
    /// #
    /// impl ExportDlpack for Samples {
    ///     const LEND: Option<Lend<Self>> = Some(Lend::new(|samples| &samples.tensor));
    /// #
    /// #   fn tensor(&self) -> Result<Tensor> {
    /// #       Ok(self.tensor.clone().into())
    /// #   }
    ///     // ...
    /// }
    /// # dlpack_methods!(Samples);
    /// ```
    const LEND: Option<Lend<Self>> = None;

    /// Whether consumers get a copy of memory that they must not write: the class then needs no
    /// trust in them. DLPack does not say who is asking, so that NumPy gets a copy as well. A
    /// consumer that insists on no copy (`copy=False`) is refused with a `BufferError`.
    ///
    /// ```
    /// use dlbridge::Tensor;
    /// use dlbridge_pyo3::{ExportDlpack, Result, dlpack_methods};
    /// use pyo3::prelude::*;
    ///
    /// static WEIGHTS: [f32; 3] = [0.299, 0.587, 0.114];
    ///
    /// #[pyclass(frozen)]
    /// struct Weights;
    ///
    /// impl ExportDlpack for Weights {
    ///     const COPIES_READ_ONLY: bool = true;
    ///
    ///     fn tensor(&self) -> Result<Tensor> {
    ///         Ok(Tensor::from(&WEIGHTS[..]))
    ///     }
    /// }
    ///
    /// dlpack_methods!(Weights);
    /// # Python::initialize();
    /// # Python::attach(|py| -> Result<()> {
    /// # let tensor: dlbridge_pyo3::PyTensor = Bound::new(py, Weights)?.extract()?;
    /// # assert!(tensor.data_ptr().addr() != WEIGHTS.as_ptr().addr() && !tensor.is_read_only());
    /// # Ok(()) }).unwrap();
    /// ```
    const COPIES_READ_ONLY: bool = false;

    /// A new handle to the object's memory, for one consumer. `__dlpack_device__` calls it too, so
    /// that it had better be cheap.
    ///
    /// # Errors
    ///
    /// Whatever the class wants Python to see. An export that is refused is a `BufferError`.
    fn tensor(&self) -> Result<Tensor>;

    /// Makes the default stream wait until the device memory of a tensor of this object is ready: it
    /// is the one that this library's exchange table tells.
    #[doc(hidden)]
    fn settle(&self, tensor: &Tensor) -> Result<()> {
        stream::settle(tensor)
    }
}

/// How a frozen class lends the tensor that it keeps; see [`ExportDlpack::LEND`].
///
/// A class that is not frozen could replace its tensor while somebody reads it, and has none:
///
/// ```compile_fail,E0271
/// use dlbridge::Tensor;
/// use dlbridge_pyo3::{ExportDlpack, Lend, Result};
/// use pyo3::prelude::*;
///
/// #[pyclass]
/// struct Replaceable(Tensor);
///
/// impl ExportDlpack for Replaceable {
///     const LEND: Option<Lend<Self>> = Some(Lend::new(|object| &object.0));
///
///     fn tensor(&self) -> Result<Tensor> {
///         Ok(self.0.to_compact()?)
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Lend<T>(fn(&T) -> &Tensor);

impl<T: PyClass<Frozen = True>> Lend<T> {
    /// Lends the tensor that `tensor` finds in an object.
    #[must_use]
    pub const fn new(tensor: fn(&T) -> &Tensor) -> Self {
        Self(tensor)
    }
}

impl<T> Lend<T> {
    pub(crate) fn tensor<'a>(&self, object: &'a T) -> &'a Tensor {
        (self.0)(object)
    }
}

/// A new handle to an object's memory.
///
/// An object that is being changed meanwhile cannot be exported, and a panic becomes a
/// `RuntimeError`, not PyO3's `PanicException`, which `except Exception` does not catch.
pub(crate) fn export<T: ExportDlpack>(object: Borrowed<'_, '_, T>) -> Result<Tensor> {
    let outcome = catch_unwind(AssertUnwindSafe(|| match object.try_borrow() {
        Ok(object) => object.tensor(),
        Err(_) => Err(Error::buffer(format!("{}: the object is being changed", T::NAME))),
    }));
    outcome.unwrap_or_else(|payload| {
        Err(Error::Python(panicked(&format!("{}: its export", T::NAME), payload)))
    })
}

/// The `copy` that answers a consumer which asked for `copy`.
pub(crate) fn copy_for<T: ExportDlpack>(
    tensor: &Tensor,
    copy: Option<bool>,
) -> Result<Option<bool>> {
    if !(T::COPIES_READ_ONLY && tensor.is_read_only()) {
        return Ok(copy);
    }
    if copy == Some(false) {
        let message = "copy: expected True or None, found False; read-only memory is not shared";
        return Err(Error::buffer(format!("{message} by {}", T::NAME)));
    }
    Ok(Some(true))
}

/// The exception for a panic of `what`, with what the panic says.
pub(crate) fn panicked(what: &str, payload: Box<dyn Any + Send>) -> PyErr {
    let words = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(words), _) => words,
        (_, Some(words)) => &words[..],
        _ => "without words",
    };
    let error = PyRuntimeError::new_err(format!("{what} panicked: {words}"));
    // Dropping the payload could panic again.
    std::mem::forget(payload);
    error
}

/// Gives a class the methods of DLPack, from its [`ExportDlpack`].
///
/// `__dlpack__`, with all keywords of the array API standard; `__dlpack_device__`; and the C
/// exchange API as `__dlpack_c_exchange_api__`. PyO3 allows a class one block of methods, so
/// where there are others the macro goes around them:
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
/// The short form, `dlpack_methods!(Zeros);`, is for a class without other methods; it needs the
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

            /// Give a capsule over the same memory.
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

            /// The kind and number of the device that the memory is on.
            fn __dlpack_device__(
                slf: &$crate::macros::Bound<'_, Self>,
            ) -> $crate::Result<(i32, i32)> {
                $crate::macros::dlpack_device(slf)
            }
        }
    };
}

/// What [`dlpack_methods!`](crate::dlpack_methods) calls; nothing else does.
#[doc(hidden)]
pub mod macros {
    pub use std::option::Option;

    pub use pyo3::{Bound, Py, PyAny, PyResult, Python};

    use super::{ExportDlpack, copy_for, export};
    use crate::negotiate::Request;
    use crate::stream::Ready;
    use crate::{Result, exchange};

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
        let copy = copy_for::<T>(&tensor, copy)?;
        let (request, ready) =
            (Request { stream, max_version, dl_device, copy }, Ready::of(&tensor));
        request.answer_when(object.py(), tensor, ready.as_ref())
    }

    pub fn dlpack_device<T: ExportDlpack>(object: &Bound<'_, T>) -> Result<(i32, i32)> {
        let device = export(object.as_borrowed())?.device();
        Ok((device.kind.0, device.id))
    }
}
