//! `ExportDlpack`, the trait that a user's own Python class implements, and what such classes and `dlbridge.Tensor`
//! publish in their exchange tables.
//! The macro that adds the methods belongs to `methods`, the table itself to `ffi::table`, answering `__dlpack__` to `call`.
//! Catching a panic of a user's method belongs to `ffi::callbacks`.

use std::any::TypeId;
use std::sync::Arc;

use dlbridge::protocol::call::Request;
use dlbridge::{Access, ArcTensor, Tensor};
use pyo3::prelude::*;
use pyo3::{Borrowed, PyClass};

use super::pickle::Pickle;
use crate::ffi::borrow::copied;
use crate::ffi::buffer::{Extents, KeepsExtents};
use crate::ffi::callbacks::{Borrow, Publish, exporting};
use crate::ffi::versions::class_name;
use crate::stream::{Ready, Stream, settle, settle_host};
use crate::{Error, Result, TensorObject};

/// A Python class of your own whose memory every framework can import.
///
/// Implement one method, and add the Python methods with a class attribute that calls
/// [`dlpack_class`](crate::dlpack_class); [`dlpack_methods!`](crate::dlpack_methods) writes it for a
/// class without other methods. Every framework's `from_dlpack` then accepts the objects, and
/// `numpy.asarray` those in host memory. JAX shares only memory that is aligned to 64 bytes, as
/// [`Tensor::zeros`] is, and copies other memory.
///
/// ```
/// use dlbridge::{ArcTensor, Tensor};
/// use dlbridge_pyo3::{ExportDlpack, Result, dlpack_methods};
/// use pyo3::prelude::*;
///
/// #[pyclass(frozen)]
/// struct Samples {
///     tensor: ArcTensor,
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
/// A safe `tensor` cannot return anything unsound: a tensor owns its memory, and the class cannot
/// keep an [`Exclusive`](dlbridge::Access::Exclusive) tensor that it returns. `tensor` can return
///
/// - a clone of a [`ArcTensor`](dlbridge::ArcTensor): writable after
///   [`into_shared`](Tensor::into_shared) if the tensor was, read-only after
///   [`into_frozen`](Tensor::into_frozen);
/// - a tensor over an `Arc<[T]>` or another immutable owner: read-only;
/// - a new copy, which only the consumer uses.
///
/// Read-only memory is only as safe as its consumers, which are trusted not to write to it (C1 of
/// `SAFETY.md`). NumPy, JAX and pyarrow honour the flag. **PyTorch, Paddle and TVM-FFI make
/// writable arrays of read-only memory**: `torch.from_dlpack(samples)[0] = 1` then changes the
/// elements of a `&[f32]` of an `Arc<[f32]>`, or crashes the process if a `&'static [f32]` is in
/// read-only pages. A class for these frameworks returns memory that is shared and writable, or
/// copies ([`COPIES_READ_ONLY`](Self::COPIES_READ_ONLY)).
pub trait ExportDlpack: PyClass {
    /// The tensor that the object keeps for its whole life, if it keeps one. Consumers of the C
    /// exchange API then borrow it for the length of a call, without a new handle.
    ///
    /// Only a writable tensor of class [`Shared`](dlbridge::Access::Shared) is borrowed.
    ///
    /// ```
    /// # use dlbridge::{ArcTensor, Tensor};
    /// # use dlbridge_pyo3::{ExportDlpack, Borrow, Result, dlpack_methods};
    /// # use pyo3::prelude::*;
    /// # #[pyclass(frozen)]
    /// # struct Samples {
    /// #     tensor: ArcTensor,
    /// # }
    /// #
    /// impl ExportDlpack for Samples {
    ///     const BORROW: Option<Borrow<Self>> = Some(Borrow::new(|samples| &samples.tensor));
    /// #
    /// #   fn tensor(&self) -> Result<Tensor> {
    /// #       Ok(self.tensor.clone().into())
    /// #   }
    ///     // ...
    /// }
    /// # dlpack_methods!(Samples);
    /// ```
    const BORROW: Option<Borrow<Self>> = None;

    /// Whether consumers get a copy of read-only memory, so that the class need not trust them.
    /// DLPack does not identify the consumer, so NumPy gets a copy as well. A request for no copy
    /// (`copy=False`) raises a `BufferError`.
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

    /// Makes an object from a pickled tensor, for a class whose objects are pickled.
    const PICKLE: Option<Pickle<Self>> = None;

    /// Returns a new handle to the object's memory, for one consumer. `__dlpack_device__` also
    /// calls it, so keep it cheap.
    ///
    /// # Errors
    ///
    /// The exception that Python should see; a `BufferError` for memory that cannot be exported.
    fn tensor(&self) -> Result<Tensor>;

    /// The handle that is exported, which Rust does not read.
    #[doc(hidden)]
    fn unread(&self) -> Result<Unread> {
        exporting(|| self.tensor()).map(Unread)
    }

    /// The work after which the memory of this object's tensor is ready.
    #[doc(hidden)]
    fn ready(&self, tensor: &Tensor) -> Option<Arc<Ready>> {
        Ready::for_tensor(tensor).map(Arc::new)
    }
}

/// A tensor that is exported, without a borrow of its memory, so that no other crate reads it.
#[derive(Debug)]
pub struct Unread(Tensor);

/// Calls `ExportDlpack::tensor` of an object, and says when the memory is ready. An object that is
/// borrowed mutably cannot be exported.
#[inline]
pub(super) fn export<T: ExportDlpack>(
    object: Borrowed<'_, '_, T>,
) -> Result<(Tensor, Option<Arc<Ready>>)> {
    let Ok(object) = object.try_borrow() else {
        let name = class_name::<T>(object.py());
        return Err(Error::buffer(format!("{name}: the object is being changed")));
    };
    let Unread(tensor) = object.unread()?;
    let ready = object.ready(&tensor);
    Ok((tensor, ready))
}

/// A tensor of an object that the host may read now, or device memory as it is: a copy of read-only
/// memory if the class copies it.
pub(super) fn on_host<T: ExportDlpack>(object: &Bound<'_, T>) -> Result<Tensor> {
    let (tensor, ready) = export(object.as_borrowed())?;
    if !tensor.device().is_host_accessible() {
        return Ok(tensor);
    }
    settle_host(object.py(), ready.as_deref(), tensor.device())?;
    let copies = T::COPIES_READ_ONLY && tensor.is_read_only();
    if copies { copied(&tensor) } else { Ok(tensor) }
}

/// The request for a class's tensor, changed to a copy if the class copies read-only memory.
pub(super) fn permitted<T: ExportDlpack>(
    object: &Bound<'_, T>,
    tensor: &Tensor,
    request: Request,
) -> Result<Request> {
    if !(T::COPIES_READ_ONLY && tensor.is_read_only()) {
        return Ok(request);
    }
    request
        .copied()
        .map_err(|refusal| Error::buffer(format!("{refusal} by {}", class_name::<T>(object.py()))))
}

impl ExportDlpack for TensorObject {
    const BORROW: Option<Borrow<Self>> = Some(Borrow::new(Self::inner));

    fn tensor(&self) -> Result<Tensor> {
        self.to_tensor()
    }

    fn unread(&self) -> Result<Unread> {
        Ok(Unread(self.handle()))
    }

    fn ready(&self, _: &Tensor) -> Option<Arc<Ready>> {
        self.ready.clone()
    }
}

impl<T: ExportDlpack> Publish for T {
    const LENT: Option<Borrow<Self>> = T::BORROW;

    fn drops_objects() -> bool {
        TypeId::of::<T>() != TypeId::of::<TensorObject>()
    }

    fn exported(object: &Bound<'_, Self>) -> Result<Tensor> {
        let (tensor, ready) = export(object.as_borrowed())?;
        settle(ready.as_deref(), Stream::DEFAULT, tensor.device())?;
        let request = permitted(object, &tensor, Request::default())?;
        if request.copy != Some(true) {
            return Ok(tensor);
        }
        settle_host(object.py(), ready.as_deref(), tensor.device())?;
        copied(&tensor)
    }

    fn before_borrow(&self, tensor: &Tensor) -> Result<()> {
        check_borrowable(tensor)?;
        settle(self.ready(tensor).as_deref(), Stream::DEFAULT, tensor.device())
    }

    fn on_host(object: &Bound<'_, Self>) -> Result<Tensor> {
        on_host(object)
    }

    /// A `dlbridge.Tensor`, for every class. DLPack's header asks for an array of the producer's
    /// own type, but not every class can be made from any tensor.
    fn made(py: Python<'_>, tensor: ArcTensor) -> PyResult<Bound<'_, PyAny>> {
        Ok(TensorObject::sharing(tensor).into_bound(py)?.into_any())
    }
}

impl KeepsExtents for TensorObject {
    fn parts<'a>(object: &'a Bound<'_, Self>) -> Result<(&'a Tensor, &'a Extents)> {
        let this = object.get();
        Ok((this.on_host(object.py())?, &this.extents))
    }
}

/// A plain descriptor has no flags, so consumers assume that the memory is writable.
fn check_borrowable(tensor: &Tensor) -> Result<()> {
    if tensor.is_read_only() {
        return Err(Error::buffer(
            "access: a borrowed descriptor cannot say read-only; take an owning one",
        ));
    }
    if tensor.access() == Access::Exclusive {
        return Err(Error::buffer(
            "access: expected shared memory, found a tensor that is exclusive to the class; \
             share it with into_shared()",
        ));
    }
    Ok(())
}
