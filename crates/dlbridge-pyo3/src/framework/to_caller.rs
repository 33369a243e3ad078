//! A tensor as an array of the caller's own type.
//! What is known of a framework belongs to `types::framework`.
//! Invariant: read-only memory does not become a writable array.

use std::ffi::CString;

use dlbridge::{DType, Device, Tensor, TypeCode};
use pyo3::exceptions::{PyAttributeError, PyUserWarning};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::export::numpy_array;
use crate::ffi::borrow::give;
use crate::ffi::capsule;
use crate::ffi::published::Published;
use crate::import::{current_stream, requires_grad};
use crate::interpreter::{Attributes, through_pyo3};
use crate::stream::{Ready, Stream, settle};
use crate::types::{self, Framework, Path, UNKNOWN, framework_of, loaded, name_of, path_of, roots};
use crate::{Error, PyTensor, Result, TensorObject};

impl PyTensor {
    /// Makes an array of the type of `object`, over the same memory as this tensor: a PyTorch
    /// tensor for a PyTorch tensor, a NumPy array for a NumPy array, a `dlbridge.Tensor` for a
    /// `dlbridge.Tensor`. An object that is not an array of a framework with `from_dlpack` (`bytes`, a
    /// `memoryview`, an `array.array`, a list, a column of Polars) gets a NumPy array.
    ///
    /// ```
    /// use dlbridge_pyo3::{PyTensor, Result};
    /// use pyo3::prelude::*;
    ///
    /// /// A new array of the type of `x`: twice its values.
    /// #[pyfunction]
    /// fn double<'py>(x: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    ///     let mut doubled = x.extract::<PyTensor>()?.to_contiguous()?;
    ///     doubled.view_mut::<f64>()?.map_inplace(|value| 2.0 * value);
    ///     PyTensor::new(doubled).to_caller(x)
    /// }
    /// # Python::initialize();
    /// # Python::attach(|py| -> PyResult<()> {
    /// # let double = wrap_pyfunction!(double, py)?;
    /// let x = py.import("numpy")?.call_method1("array", ([1.0, 2.0],))?;
    /// let y = double.call1((x,))?;
    /// assert_eq!(y.repr()?.to_string(), "array([2., 4.])");
    /// # Ok(()) }).unwrap();
    /// ```
    ///
    /// The memory stays on its device, even if `object` is on another one. The framework's stream
    /// waits for that of a CUDA slice. The array is made by NumPy's C API, or by the C exchange API
    /// of the type of `object`, or by the `from_dlpack` of its `__array_namespace__()`, of its
    /// type, or of the package of its type. Some frameworks copy memory that they cannot share (MLX
    /// all memory, JAX memory that is not 64-byte aligned); others reject it. Without `jax_enable_x64`, JAX narrows
    /// numbers of 64 bits; a `UserWarning` says so. Another says that a result in floating point has no gradient, if
    /// `object` requires grad; the constraint [`NoGrad`](crate::NoGrad) refuses such an argument before.
    ///
    /// Return indices as int64: a `Vec<usize>` becomes uint64, with which PyTorch does not index. One pass converts them,
    /// `indices.iter().map(|&i| i as i64).collect::<Vec<_>>()`, or [`map_to_tensor`](dlbridge::View::map_to_tensor).
    ///
    /// # Errors
    ///
    /// The framework's own exception; a `ModuleNotFoundError` where NumPy is needed and not installed;
    /// and a `BufferError`
    ///
    /// - for read-only memory, if the framework may make it writable (PyTorch, Paddle, TVM-FFI
    ///   and unknown frameworks; copy it with [`to_contiguous`](Tensor::to_contiguous));
    /// - for a dtype that it would misread (Paddle, uint16), and for negative strides that it does
    ///   not support (PyTorch, Paddle);
    /// - for a device on which it would crash (TensorFlow and Paddle, unless `object` is on it).
    ///
    /// On an error the tensor is dropped.
    pub fn to_caller<'py>(self, object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let py = object.py();
        let tensor = self.into_given();
        match path_of(object.as_borrowed())?.map(Path::by_table) {
            Some(Path::Own(_)) => return Ok(TensorObject::made(py, tensor)?.into_any()),
            Some(Path::NumPy(_)) => return numpy_array(py, tensor),
            Some(Path::Table(published)) if published.makes_arrays() => {
                if !published.is_ours() {
                    check(object, &tensor)?;
                    warn_of_lost_grad(object, tensor.dtype())?;
                }
                before_table(published, &tensor)?;
                return published.array(give(py, tensor)?);
            }
            _ => {}
        }
        through_pyo3(|| by_from_dlpack(object, tensor))
    }

    /// Makes a NumPy array over the same memory. Read-only memory becomes a read-only array. See
    /// [`to_caller`](Self::to_caller) for the type of the caller's array.
    ///
    /// ```
    /// use dlbridge_pyo3::{PyTensor, Result};
    /// use pyo3::prelude::*;
    ///
    /// #[pyfunction]
    /// fn squares(py: Python<'_>, len: i64) -> Result<Bound<'_, PyAny>> {
    ///     let squares: Vec<_> = (0..len).map(|number| number * number).collect();
    ///     PyTensor::new(squares).into_numpy(py)
    /// }
    /// # Python::initialize();
    /// # Python::attach(|py| -> PyResult<()> {
    /// # let squares = wrap_pyfunction!(squares, py)?;
    /// let array = squares.call1((4,))?;
    /// assert_eq!(array.repr()?.to_string(), "array([0, 1, 4, 9])");
    /// # Ok(()) }).unwrap();
    /// ```
    ///
    /// NumPy's C API makes the array, without a capsule and without a Python call. Dtypes that
    /// NumPy does not have, and device memory, go through `numpy.from_dlpack`.
    ///
    /// # Errors
    ///
    /// A `ModuleNotFoundError` without NumPy; NumPy's own `BufferError` for a dtype that it does
    /// not have (bfloat16, for example) or for memory that the host cannot read. On an error the
    /// tensor is dropped.
    pub fn into_numpy(self, py: Python<'_>) -> Result<Bound<'_, PyAny>> {
        numpy_array(py, self.into_given())
    }
}

/// Makes an array of the caller's type by its framework's `from_dlpack`, or one of NumPy for an object that is not an
/// array of a framework with that.
fn by_from_dlpack<'py>(object: &Bound<'py, PyAny>, tensor: Tensor) -> Result<Bound<'py, PyAny>> {
    let kind = object.get_type();
    let framework = framework_of(&kind)?;
    if let Some(function) = types::importer_of(&kind) {
        return made_by(&function, framework, object, tensor);
    }
    let Some(function) = find(object, &kind, framework)? else {
        return numpy_array(object.py(), tensor);
    };
    // Any other is not remembered: two objects may well have two namespaces.
    if !framework.has(&function)? {
        return made_by(&function, &UNKNOWN, object, tensor);
    }
    types::remember_importer(&kind, framework, &function);
    made_by(&function, framework, object, tensor)
}

fn made_by<'py>(
    function: &Bound<'py, PyAny>,
    framework: &Framework,
    object: &Bound<'py, PyAny>,
    tensor: Tensor,
) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    if tensor.is_read_only() && !framework.keeps_read_only {
        return Err(forgets_read_only(object, &tensor));
    }
    framework.check(&tensor)?;
    framework.check_device(object, tensor.device())?;
    let dtype = tensor.dtype();
    warn_of_lost_grad(object, dtype)?;
    let array = if framework.wants_legacy {
        // A bare capsule is ready on the default stream.
        settle(Ready::for_tensor(&tensor).as_ref(), Stream::DEFAULT, tensor.device())?;
        function.call1((capsule::legacy(py, tensor)?,))
    } else {
        function.call1((TensorObject::made(py, tensor)?,))
    }?;
    framework.warn_if_narrowed(&array, dtype)?;
    Ok(array)
}

/// Makes the current stream of a table's framework wait for a tensor that reports its own stream:
/// the table itself does not wait.
#[inline]
fn before_table(published: Published<'_, '_>, tensor: &Tensor) -> Result<()> {
    let Some(ready) = Ready::for_tensor(tensor) else { return Ok(()) };
    let theirs = current_stream(published, tensor.device())?;
    ready.before(theirs, tensor.device())
}

/// Looks up the framework only for a tensor that some framework handles wrongly.
fn check(object: &Bound<'_, PyAny>, tensor: &Tensor) -> Result<()> {
    let is_suspect = tensor.is_read_only()
        || tensor.device() != Device::CPU
        || tensor.dtype() == DType::U16
        || tensor.strides().iter().any(|&stride| stride < 0);
    if !is_suspect {
        return Ok(());
    }
    let framework = framework_of(&object.get_type())?;
    if tensor.is_read_only() && !framework.keeps_read_only {
        return Err(forgets_read_only(object, tensor));
    }
    framework.check_device(object, tensor.device())?;
    framework.check(tensor)
}

/// Warns of a result that automatic differentiation does not record, of an array that it does.
fn warn_of_lost_grad(object: &Bound<'_, PyAny>, dtype: DType) -> Result<()> {
    let has_gradients =
        matches!(dtype.code, TypeCode::FLOAT | TypeCode::BFLOAT | TypeCode::COMPLEX);
    if !has_gradients || !requires_grad(object.as_borrowed())? {
        return Ok(());
    }
    let py = object.py();
    if let Some(torch) = loaded(intern!(py, "torch"))? {
        // In `torch.no_grad()`, no result has a gradient.
        if !torch.call_method0(intern!(py, "is_grad_enabled"))?.is_truthy()? {
            return Ok(());
        }
    }
    let text = format!(
        "result: expected an argument without gradients, found a {} that requires grad, whose graph ends here; pass \
         x.detach(), or make the function an operator with the crate dlbridge-operators",
        name_of(&object.get_type())
    );
    let text = CString::new(text).expect("names have no null");
    Ok(PyErr::warn(py, py.get_type::<PyUserWarning>().as_any(), &text, 1)?)
}

#[cold]
fn forgets_read_only(object: &Bound<'_, PyAny>, tensor: &Tensor) -> Error {
    let kind = name_of(&object.get_type());
    let why = if tensor.is_legacy_read_only() {
        " (as legacy capsules and arrays of JAX are)"
    } else {
        ""
    };
    Error::buffer(format!(
        "access: expected writable memory, found read-only memory{why}, which {kind} may \
         forget; pass a copy: np.array(x), or bytearray(x) of bytes"
    ))
}

/// `from_dlpack` of the object's namespace, else of its type, else of the package of its type.
fn find<'py>(
    object: &Bound<'py, PyAny>,
    kind: &Bound<'py, PyType>,
    framework: &Framework,
) -> Result<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    let from_dlpack = intern!(py, "from_dlpack");
    if let Some(namespace) = namespace_of(object)? {
        if let Some(function) = namespace.attribute_opt(from_dlpack)? {
            return Ok(Some(function));
        }
    }
    if let Some(function) = kind.attribute_opt(from_dlpack)? {
        return Ok(Some(function));
    }
    for root in roots(kind)? {
        let Some(mut place) = loaded(&root)? else { continue };
        if root == framework.package() {
            for name in framework.place {
                place = place.getattr(*name)?;
            }
        }
        if let Some(function) = place.attribute_opt(from_dlpack)? {
            return Ok(Some(function));
        }
    }
    Ok(None)
}

/// The array API namespace of an object, if it has one.
pub(super) fn namespace_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    match object.call_method0(intern!(py, "__array_namespace__")) {
        Ok(namespace) => Ok(Some(namespace)),
        Err(error) if error.is_instance_of::<PyAttributeError>(py) => Ok(None),
        Err(error) => Err(error),
    }
}
