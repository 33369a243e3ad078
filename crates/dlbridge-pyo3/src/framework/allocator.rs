//! New memory from the framework of the caller's array.
//! Calling a table's allocator belongs to `ffi::published`, exporting the result to `to_caller`.
//! Invariant: host memory is zeroed and exclusive.

use dlbridge::{DType, Device, DeviceKind, Element, Flags, Shape, Tensor, layout};
use pyo3::exceptions::{PyMemoryError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::to_caller::namespace_of;
use crate::ffi::driver::memory;
use crate::ffi::memory::exclusive_on_device;
use crate::import::{current_stream, import_argument, settle_after};
use crate::interpreter::{Attributes, imported_module, module, through_pyo3};
use crate::stream::is_copied_to_host;
use crate::types::{Framework, framework_of, loaded, name_of, table_of};
use crate::{Error, PyTensor, Result, Stream};

const CUPY: &str = "cupy";

/// Allocates memory for results with the framework of the caller's array.
///
/// [`to_caller`](PyTensor::to_caller) makes an array of that memory without a copy.
///
/// ```
/// use dlbridge_pyo3::{Allocator, PyTensor, Result};
/// use pyo3::prelude::*;
///
/// /// The numbers from 0 on, in an array of the type of `x`.
/// #[pyfunction]
/// fn count<'py>(x: &Bound<'py, PyAny>, len: i64) -> Result<Bound<'py, PyAny>> {
///     let mut counted = Allocator::of(x).zeros::<i64>([len])?;
///     for (value, slot) in (0..).zip(counted.as_slice_mut::<i64>()?) {
///         *slot = value;
///     }
///     counted.to_caller(x)
/// }
/// # Python::initialize();
/// # Python::attach(|py| -> PyResult<()> {
/// # let count = wrap_pyfunction!(count, py)?;
/// let x = py.import("numpy")?.call_method1("zeros", (1,))?;
/// let y = count.call1((x, 3))?;
/// assert_eq!(y.repr()?.to_string(), "array([0, 1, 2])");
/// # Ok(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct Allocator<'py> {
    object: Bound<'py, PyAny>,
}

impl<'py> Allocator<'py> {
    /// The allocator of the framework that `object` belongs to.
    ///
    /// Host memory comes from Rust, 64-byte aligned, because no Python code can then reach it. Device memory comes from the
    /// allocator of the type's C exchange API, if there is one (PyTorch, Paddle), otherwise from
    /// `empty` of the array's `__array_namespace__()`, or of its package (CuPy). On CUDA, frameworks without
    /// one that can be written (JAX) get memory of Rust.
    #[must_use]
    pub fn of(object: &Bound<'py, PyAny>) -> Self {
        Self { object: object.clone() }
    }

    /// Zeros in host memory, row-major, of class [`Exclusive`](dlbridge::Access::Exclusive).
    ///
    /// # Errors
    ///
    /// As for [`allocate`](Self::allocate).
    pub fn zeros<T: Element>(&self, shape: impl Shape) -> Result<PyTensor> {
        self.allocate(T::DTYPE, shape, Device::CPU)
    }

    /// Memory on any device, row-major. Host memory is zeroed and of class
    /// [`Exclusive`](dlbridge::Access::Exclusive). Device memory is not initialised. It may be written in the
    /// order of the framework's current [`stream`](Self::stream), for which the default stream waits as well.
    ///
    /// # Errors
    ///
    /// A negative extent, a size that overflows, an impossible dtype; a `BufferError` or a
    /// `MemoryError` with the message of the framework's allocator, or the framework's own `OutOfMemoryError`; a
    /// `BufferError` for a device on which the framework has no memory.
    pub fn allocate(&self, dtype: DType, shape: impl Shape, device: Device) -> Result<PyTensor> {
        shape.with_extents(|shape| self.allocate_extents(dtype, shape, device))
    }

    fn allocate_extents(&self, dtype: DType, shape: &[i64], device: Device) -> Result<PyTensor> {
        if device == Device::CPU {
            return Ok(Tensor::zeros(dtype, shape)?.into());
        }
        check_size(dtype, shape)?;
        if !device.is_host_accessible() {
            let framework = framework_of(&self.object.get_type())?;
            let found = match self.by_table(dtype, shape, device)? {
                // Arrays of JAX are not written.
                None if framework.package() != "jax" => {
                    through_pyo3(|| self.by_namespace(framework, dtype, shape, device))?
                }
                found => found,
            };
            if let Some(tensor) = found {
                if device.kind == DeviceKind::CUDA {
                    settle_after(self.stream(device)?, device)?;
                }
                return Ok(tensor.into());
            }
            if is_copied_to_host(device) && !framework.has_numpys_memory {
                return Ok(memory::allocate(dtype, shape, device)?.into());
            }
        }
        let kind = name_of(&self.object.get_type());
        Err(Error::buffer(format!("device: expected one that {kind} allocates on, found {device}")))
    }

    /// The stream on which the framework works now, on this thread and this device: in its order, memory of
    /// [`allocate`](Self::allocate) is free to be written, and an array over it is used. Frameworks other than CuPy without
    /// an exchange table work on the default stream for all that can be known.
    ///
    /// # Errors
    ///
    /// If the framework's table fails.
    pub fn stream(&self, device: Device) -> Result<Stream> {
        match table_of(self.object.as_borrowed())?.filter(|table| !table.is_ours()) {
            Some(table) => current_stream(table, device),
            None if framework_of(&self.object.get_type())?.package() == CUPY => {
                through_pyo3(|| self.stream_of_cupy())
            }
            None => Ok(Stream::DEFAULT),
        }
    }

    fn stream_of_cupy(&self) -> Result<Stream> {
        let py = self.object.py();
        let cupy = module(intern!(py, "cupy"))?.attribute(intern!(py, "cuda"))?;
        let current = cupy.call_method0(intern!(py, "get_current_stream"))?;
        let handle: usize = current.attribute(intern!(py, "ptr"))?.extract()?;
        Ok(Stream::of_protocol(handle))
    }

    /// Device memory of an exchange table. Host memory is not asked of one: a framework may show it to
    /// Python code before it is here (`TorchDispatchMode`).
    fn by_table(&self, dtype: DType, shape: &[i64], device: Device) -> Result<Option<Tensor>> {
        let table = table_of(self.object.as_borrowed())?;
        // Our own makes host memory.
        let Some(table) = table.filter(|table| !table.is_ours()) else { return Ok(None) };
        framework_of(&self.object.get_type())?.check_device(&self.object, device)?;
        table.allocate(dtype, shape, device).map_err(|error| self.out_of_memory(error))
    }

    /// A `MemoryError` as the framework's own `OutOfMemoryError`, if it has that: users of PyTorch catch it, free
    /// memory and try again.
    #[cold]
    fn out_of_memory(&self, error: Error) -> Error {
        let (py, error) = (self.object.py(), PyErr::from(error));
        if !error.is_instance_of::<PyMemoryError>(py) {
            return error.into();
        }
        let own = through_pyo3(|| {
            let module: String = self.object.get_type().module()?.extract()?;
            let root = PyString::new(py, module.split('.').next().unwrap_or_default());
            let Some(framework) = imported_module(&root)? else { return Ok(None) };
            let Some(kind) = framework.attribute_opt(intern!(py, "OutOfMemoryError"))? else {
                return Ok(None);
            };
            kind.call1((error.value(py).str()?,)).map(Some)
        });
        // A type without a module has no framework to look into.
        let own = own.unwrap_or(None);
        own.map_or(error, PyErr::from_value).into()
    }

    /// Device memory from the array's namespace, or from the package of a framework without one (CuPy). It is
    /// `Exclusive` only from CuPy's own `empty`, since any other namespace is Python code that nothing is known of.
    fn by_namespace(
        &self,
        framework: &Framework,
        dtype: DType,
        shape: &[i64],
        device: Device,
    ) -> Result<Option<Tensor>> {
        let py = self.object.py();
        let namespace = match namespace_of(&self.object)? {
            Some(namespace) => Some(namespace),
            None => loaded(&PyString::new(py, framework.package()))?,
        };
        let Some(namespace) = namespace else { return Ok(None) };
        let (name, empty) = (dtype.to_string(), intern!(py, "empty"));
        let (Some(kind), Some(empty)) =
            (namespace.getattr_opt(name)?, namespace.attribute_opt(empty)?)
        else {
            return Ok(None);
        };
        let shape_of = (PyTuple::new(py, shape)?,);
        let keywords = PyDict::new(py);
        keywords.set_item(intern!(py, "dtype"), kind)?;
        let there = keywords.copy()?;
        there.set_item(intern!(py, "device"), self.object.attribute(intern!(py, "device"))?)?;
        let array = match empty.call(&shape_of, Some(&there)) {
            // A function older than the array API standard uses the current device.
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {
                empty.call(&shape_of, Some(&keywords))?
            }
            array => array?,
        };
        let tensor = import_argument(array.as_borrowed())?.into_given();
        let is_as_asked = (tensor.dtype(), tensor.shape(), tensor.device())
            == (dtype, shape, device)
            && !tensor.is_read_only();
        if is_as_asked && framework.package() == CUPY && framework.has(&empty)? {
            return exclusive_on_device(tensor).map(Some);
        }
        Ok(is_as_asked.then_some(tensor))
    }
}

/// Rejects shapes and dtypes that no allocator supports.
fn check_size(dtype: DType, shape: &[i64]) -> Result<()> {
    let mut strides = vec![0; shape.len()];
    layout::contiguous_strides(shape, &mut strides);
    let span = layout::span(shape, &strides)?;
    layout::nbytes(span.len, dtype, Flags::NONE)?;
    Ok(())
}
