//! A tensor as an array of the caller's own kind.
//! How each framework takes one belongs to `frameworks` and `exchange`.
//! Invariant: memory that must not be written does not become an array that may be.

use dlbridge::{DType, Device, Tensor};
use pyo3::prelude::*;

use crate::frameworks::{Framework, Importer, name_of};
use crate::stream::ordered;
use crate::{Error, PyTensor, Result, TensorObject, capsule, exchange, numpy, stream};

impl PyTensor {
    /// The tensor as an array of the kind that `object` is, over the same memory: a PyTorch tensor
    /// for a PyTorch tensor, a NumPy array for a NumPy array, a `dlbridge.Tensor` for one.
    ///
    /// ```
    /// use dlbridge::Tensor;
    /// use dlbridge_pyo3::{PyTensor, Result};
    /// use pyo3::prelude::*;
    ///
    /// /// A new array, twice the old one and of the same kind.
    /// #[pyfunction]
    /// fn double<'py>(x: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    ///     let mut doubled = x.extract::<PyTensor>()?.to_compact()?;
    ///     doubled.view_mut::<f64>()?.map(|value| 2.0 * value);
    ///     PyTensor::from(doubled).like(x)
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
    /// The memory stays on its device, wherever that of `object` is; the framework's stream waits for
    /// that of a CUDA slice. What makes the array is NumPy's own C API, or the C exchange API of the
    /// type of `object`, else `from_dlpack` of its `__array_namespace__()`, of
    /// the type itself, or of the package that it comes from. Frameworks that cannot share
    /// some memory copy it (MLX all, JAX what is not 64-byte aligned) or refuse it.
    ///
    /// # Errors
    ///
    /// A `TypeError` if `object` is no array of a framework with `from_dlpack`; the framework's own
    /// exception; and a `BufferError`
    ///
    /// - for read-only memory where the framework may forget that it is (PyTorch, Paddle, TVM-FFI
    ///   and all that are not known here; copy it with [`to_compact`](Tensor::to_compact));
    /// - for numbers that it would read as others (Paddle, uint16), and negative strides where it
    ///   has none (PyTorch, Paddle);
    /// - for a device that it would crash at (TensorFlow and Paddle, unless `object` is there too).
    ///
    /// The tensor is released then.
    pub fn like<'py>(self, object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let py = object.py();
        let tensor = self.into_inner();
        if object.is_exact_instance_of::<TensorObject>() {
            return Ok(TensorObject::new(tensor).into_bound(py)?.into_any());
        }
        if let Some(way) = exchange::way_of(object.as_borrowed()) {
            if way.is_numpy() {
                return numpy::array(py, tensor);
            }
            let table = way.table;
            if let Some(to_object) = table.managed_tensor_to_py_object_no_sync {
                if !exchange::is_ours(table) {
                    check(object, &tensor)?;
                }
                ordered::before_table(object.as_borrowed(), table, &tensor)?;
                return exchange::give(py, to_object, tensor);
            }
        }
        let Importer { function, framework } = Importer::of(object)?;
        if tensor.is_read_only() && !framework.keeps_read_only {
            return Err(forgets_read_only(object, &tensor));
        }
        framework.check(&tensor)?;
        framework.check_device(object, tensor.device())?;
        let array = if framework.wants_legacy {
            // A bare capsule is ready on the default stream.
            stream::settle(&tensor)?;
            function.call1((capsule::legacy(py, tensor)?,))
        } else {
            function.call1((TensorObject::new(tensor).into_bound(py)?,))
        };
        Ok(array?)
    }

    /// The tensor as a NumPy array over the same memory, for functions that have no array of the
    /// caller's to make one [`like`](Self::like). Read-only memory becomes a read-only array.
    ///
    /// ```
    /// use dlbridge::Tensor;
    /// use dlbridge_pyo3::{PyTensor, Result};
    /// use pyo3::prelude::*;
    ///
    /// #[pyfunction]
    /// fn squares(py: Python<'_>, len: i64) -> Result<Bound<'_, PyAny>> {
    ///     let squares: Vec<_> = (0..len).map(|number| number * number).collect();
    ///     PyTensor::from(Tensor::from(squares)).into_numpy(py)
    /// }
    /// # Python::initialize();
    /// # Python::attach(|py| -> PyResult<()> {
    /// # let squares = wrap_pyfunction!(squares, py)?;
    /// let array = squares.call1((4,))?;
    /// assert_eq!(array.repr()?.to_string(), "array([0, 1, 4, 9])");
    /// # Ok(()) }).unwrap();
    /// ```
    ///
    /// NumPy's C API makes the array: no capsule of DLPack, and no Python call. What that has no
    /// type for, and memory of a device, goes to `numpy.from_dlpack`.
    ///
    /// # Errors
    ///
    /// A `ModuleNotFoundError` without NumPy; NumPy's own `BufferError` for a type that it does not
    /// have (bfloat16, say) or for memory that the host cannot reach. The tensor is released then.
    pub fn into_numpy(self, py: Python<'_>) -> Result<Bound<'_, PyAny>> {
        numpy::array(py, self.into_inner())
    }
}

/// Asks about the framework only if there is something that one of them gets wrong.
fn check(object: &Bound<'_, PyAny>, tensor: &Tensor) -> Result<()> {
    let is_suspect = tensor.is_read_only()
        || tensor.device() != Device::CPU
        || tensor.dtype() == DType::U16
        || tensor.strides().iter().any(|&stride| stride < 0);
    if !is_suspect {
        return Ok(());
    }
    let framework = Framework::of(&object.get_type());
    if tensor.is_read_only() && !framework.keeps_read_only {
        return Err(forgets_read_only(object, tensor));
    }
    framework.check_device(object, tensor.device())?;
    framework.check(tensor)
}

#[cold]
fn forgets_read_only(object: &Bound<'_, PyAny>, tensor: &Tensor) -> Error {
    let kind = name_of(&object.get_type());
    let why = if tensor.is_legacy_read_only() { " (it came by a legacy capsule)" } else { "" };
    Error::buffer(format!(
        "access: the memory is read-only{why}, which {kind} may forget; copy with to_compact()"
    ))
}
