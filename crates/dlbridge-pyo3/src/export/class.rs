//! DLPack for a user's own Python class: the trait to implement.
//! The macro that adds the methods belongs to `methods`, the exchange table to `exchange`.
//! Invariant: no panic of a user's method goes on as one; it becomes an exception here.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use dlbridge::Tensor;
use dlbridge::protocol::export::Request;
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
///         Ok(self.0.to_contiguous()?)
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

/// A request for the tensor of a class, which may copy what is read-only.
pub(crate) fn permitted<T: ExportDlpack>(tensor: &Tensor, request: Request) -> Result<Request> {
    if !(T::COPIES_READ_ONLY && tensor.is_read_only()) {
        return Ok(request);
    }
    request.copied().map_err(|refusal| Error::buffer(format!("{refusal} by {}", T::NAME)))
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
