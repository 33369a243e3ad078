//! The methods of `dlbridge.Tensor`. Those that make parts and values of a tensor, and Arrow's, are compiled
//! with the feature `tensor-methods`: the Python package has them, and an extension is smaller without.

use dlbridge::Device;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyComplex, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

#[cfg(any(feature = "cuda", feature = "tensor-methods"))]
use super::interface;
use super::methods;
#[cfg(feature = "tensor-methods")]
use super::{values, whole};
use crate::error::{error_of, unless_refused};
use crate::export;
use crate::ffi::{cycle, table};
use crate::interpreter::{module, through_pyo3};
use crate::types::name_of;
use crate::{Result, TensorObject};

#[pymethods]
impl TensorObject {
    /// The C exchange API of this type.
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Py<PyAny>> {
        // Class attributes are made when the class is, before there is an object of it.
        methods::complete_tensor(py)?;
        Ok(table::capsule::<Self>(py)?.unbind())
    }

    /// For the error: functions make tensors, not the class.
    #[new]
    #[pyo3(signature = (*_arguments, **_keywords))]
    fn made_by_a_function(
        _arguments: &Bound<'_, PyTuple>,
        _keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Err(error_of::<PyTypeError>(
            "expected a function that makes a tensor, found the class dlbridge.Tensor; call \
             dlbridge.from_dlpack(x), zeros or from_bytes",
        ))
    }

    /// For the garbage collector.
    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        cycle::visit(&self.tensor, &visit)
    }

    /// Return the device's type and index.
    fn __dlpack_device__(&self) -> (i32, i32) {
        let device = self.tensor.device();
        (device.kind.0, device.id)
    }

    /// The extents, outermost axis first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.shape())
    }

    /// The strides of the axes, in elements.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.strides())
    }

    /// The device's name: `"cpu"`, `"cuda:0"`.
    #[getter]
    fn device<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        match self.tensor.device() {
            Device::CPU => intern!(py, "cpu").clone(),
            device => PyString::new(py, &device.to_string()),
        }
    }

    /// The number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.tensor.ndim()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.tensor.len()
    }

    /// The size of all elements in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.tensor.nbytes()
    }

    /// The size of one element in bytes; None for elements narrower than a byte.
    #[getter]
    fn itemsize(&self) -> Option<usize> {
        self.tensor.dtype().itemsize()
    }

    /// Whether the memory must not be written. PyTorch, Paddle and TVM-FFI ignore it.
    #[getter]
    fn readonly(&self) -> bool {
        self.tensor.is_read_only()
    }

    /// Whether the memory belongs to a tensor that requires grad, so that it must not be written.
    #[getter]
    fn requires_grad(&self) -> bool {
        self.requires_grad
    }

    /// Whether the elements are contiguous in row-major order.
    #[getter]
    fn contiguous(&self) -> bool {
        self.tensor.is_contiguous()
    }

    /// The address of the first element.
    #[getter]
    fn data_ptr(&self) -> usize {
        self.tensor.data_ptr().addr()
    }

    // PyO3 parses no argument of these methods: see `methods::BUFFER`.

    /// A contiguous copy in host memory of Rust.
    fn copy<'py>(&self, py: Python<'py>) -> Result<Bound<'py, Self>> {
        Ok(Self::made(py, self.reading(py)?.to_contiguous()?)?)
    }

    /// Another object over the same memory.
    fn __copy__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Self>> {
        self.another().into_bound(py)
    }

    #[pyo3(signature = (*_memo))]
    fn __deepcopy__<'py>(
        &self,
        py: Python<'py>,
        _memo: &Bound<'py, PyTuple>,
    ) -> Result<Bound<'py, Self>> {
        self.copy(py)
    }

    /// For pickle: the bytes, which protocol 5 can send out of band, and how to read them.
    #[pyo3(signature = (*protocol))]
    fn __reduce_ex__<'py>(
        slf: &Bound<'py, Self>,
        protocol: &Bound<'py, PyTuple>,
    ) -> Result<Bound<'py, PyAny>> {
        let protocol = protocol.get_item(0)?;
        Self::reduce(slf, through_pyo3(|| protocol.extract())?)
    }

    /// A NumPy array over the same host memory.
    pub(crate) fn numpy<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        export::numpy_array_of(slf)
    }

    // SAFETY: Python's duty: `view` is a place to fill in.
    #[allow(unsafe_code, reason = "PyO3 calls it with a pointer")]
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut pyo3::ffi::Py_buffer,
        flags: std::ffi::c_int,
    ) -> Result<()> {
        // SAFETY: the caller's duty.
        unsafe { crate::ffi::buffer::get(slf, view, flags) }
    }

    /// For consumers of CUDA memory that read this interface, such as numba.
    #[cfg(feature = "cuda")]
    #[getter(__cuda_array_interface__)]
    fn cuda_array_interface<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        interface::cuda_array_interface_of(py, self)
    }

    /// For `jax.numpy`: a copy of writable memory, because JAX's arrays are constant. JAX computes later, from what is in
    /// the memory then.
    fn __jax_array__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        let (py, tensor) = (slf.py(), slf.get().inner());
        let jax = module(intern!(py, "jax.numpy"))?;
        let array_of = |tensor| jax.call_method1(intern!(py, "from_dlpack"), (tensor,));
        if tensor.is_read_only() && !tensor.is_legacy_read_only() {
            // JAX before 0.12 asks for a legacy capsule, which has no flag for constant memory.
            if let Some(array) = unless_refused(py, array_of(slf.clone()))? {
                return Ok(array);
            }
        }
        if tensor.device().is_host_accessible() {
            return Ok(array_of(slf.get().copy(py)?)?);
        }
        Ok(array_of(slf.clone())?.call_method0(intern!(py, "copy"))?)
    }

    /// Raises an exception, because `False` for tensors of the same values would be wrong, and a tensor does not compute.
    fn __richcmp__(&self, other: &Bound<'_, PyAny>, operation: CompareOp) -> PyResult<bool> {
        Err(no_comparison(other, operation))
    }

    /// That of the object, as without `__richcmp__`.
    fn __hash__(slf: &Bound<'_, Self>) -> isize {
        slf.as_ptr().addr().rotate_right(4) as isize
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        const NAME: &str = "dlbridge.Tensor(";
        let shape = self.shape(py)?.repr()?.to_string();
        let (dtype, device) = (self.tensor.dtype(), self.tensor.device());
        let readonly = if self.tensor.is_read_only() { ", readonly" } else { "" };
        #[cfg(feature = "tensor-methods")]
        let values = match self.reading(py) {
            Ok(tensor) => values::to_text(&tensor, NAME.len()),
            Err(_) => None,
        };
        #[cfg(not(feature = "tensor-methods"))]
        let values = None::<String>;
        let values = values.map(|text| text + ", ").unwrap_or_default();
        Ok(format!("{NAME}{values}shape={shape}, dtype={dtype}, device={device}{readonly})"))
    }

    #[cfg(feature = "tensor-methods")]
    fn __len__(&self) -> PyResult<usize> {
        whole::length(self)
    }

    /// The part that an index selects, over the same memory: an int, a slice, `...`, None, or a tuple
    /// of them.
    #[cfg(feature = "tensor-methods")]
    fn __getitem__<'py>(&self, index: &Bound<'py, PyAny>) -> Result<Bound<'py, Self>> {
        Ok(whole::part(self, index)?.into_bound(index.py())?)
    }

    /// For the error: the array of NumPy over the same memory is written.
    fn __setitem__(&self, _index: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(error_of::<PyTypeError>(
            "expected an array library to write elements, found a dlbridge.Tensor; use x.numpy()[index] = value, which \
             writes the same memory",
        ))
    }

    // For the error, of numbers and lists: an array library computes with a tensor beside one of its arrays.

    fn __add__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        no_arithmetic(other, "x.numpy() + y")
    }

    fn __sub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        no_arithmetic(other, "x.numpy() - y")
    }

    fn __mul__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        no_arithmetic(other, "x.numpy() * y")
    }

    fn __truediv__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        no_arithmetic(other, "x.numpy() / y")
    }

    fn __matmul__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        no_arithmetic(other, "x.numpy() @ y")
    }

    /// The text of a 0-d tensor is that of its number.
    #[cfg(feature = "tensor-methods")]
    fn __format__<'py>(
        slf: &Bound<'py, Self>,
        format: &Bound<'py, PyString>,
    ) -> Result<Bound<'py, PyAny>> {
        whole::formatted(slf, format)
    }

    #[cfg(feature = "tensor-methods")]
    fn __reversed__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        whole::reversed(slf)
    }

    #[cfg(feature = "tensor-methods")]
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        whole::iterate(slf)
    }

    /// The same memory with other extents, at most one of them -1. Where that needs a copy, it is an
    /// error.
    #[cfg(feature = "tensor-methods")]
    #[pyo3(signature = (*shape))]
    fn reshape<'py>(&self, shape: &Bound<'py, PyTuple>) -> Result<Bound<'py, Self>> {
        Ok(whole::reshaped(self, shape)?.into_bound(shape.py())?)
    }

    /// The same bytes as elements of another dtype. If its elements have another size, the last axis has another extent.
    #[cfg(feature = "tensor-methods")]
    #[pyo3(signature = (*dtype))]
    fn view<'py>(&self, dtype: &Bound<'py, PyTuple>) -> Result<Bound<'py, Self>> {
        Ok(whole::viewed(self, dtype)?.into_bound(dtype.py())?)
    }

    /// The axes in reverse, over the same memory.
    #[cfg(feature = "tensor-methods")]
    #[getter(T)]
    fn transposed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Self>> {
        whole::transposed(self).into_bound(py)
    }

    /// The same tensor if it is on this device, or a copy on the host. dlbridge copies to no other device.
    #[cfg(feature = "tensor-methods")]
    #[pyo3(signature = (*device))]
    fn to_device<'py>(
        slf: &Bound<'py, Self>,
        device: &Bound<'py, PyTuple>,
    ) -> Result<Bound<'py, PyAny>> {
        whole::on_device(slf, device)
    }

    /// The bytes of all elements in row-major order, as a copy.
    #[cfg(feature = "tensor-methods")]
    fn tobytes<'py>(&self, py: Python<'py>) -> Result<Bound<'py, pyo3::types::PyBytes>> {
        whole::bytes(py, self)
    }

    /// The elements as nested lists of Python's numbers; of a 0-d tensor, its number.
    #[cfg(feature = "tensor-methods")]
    fn tolist<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        whole::list(py, self)
    }

    /// One element as a Python number: the only one, or the one at an index.
    #[cfg(feature = "tensor-methods")]
    #[pyo3(signature = (*index))]
    fn item<'py>(&self, py: Python<'py>, index: &Bound<'py, PyTuple>) -> Result<Bound<'py, PyAny>> {
        whole::item(py, self, index)
    }

    #[cfg(feature = "tensor-methods")]
    fn __bool__(&self, py: Python<'_>) -> Result<bool> {
        whole::truth(py, self)
    }

    // Without these methods, each tensor would be true, and Python would read a number from the bytes of its
    // buffer as if they were text.

    #[cfg(not(feature = "tensor-methods"))]
    fn __bool__(&self) -> PyResult<bool> {
        no_number("bool")
    }

    #[cfg(not(feature = "tensor-methods"))]
    fn __int__(&self) -> PyResult<i64> {
        no_number("int")
    }

    #[cfg(not(feature = "tensor-methods"))]
    fn __float__(&self) -> PyResult<f64> {
        no_number("float")
    }

    #[cfg(feature = "tensor-methods")]
    fn __int__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        whole::int(py, self)
    }

    #[cfg(feature = "tensor-methods")]
    fn __float__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        whole::float(py, self)
    }

    #[cfg(feature = "tensor-methods")]
    fn __index__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        whole::as_index(py, self)
    }

    /// For consumers that read NumPy's array interface, such as Pillow.
    #[cfg(feature = "tensor-methods")]
    #[getter(__array_interface__)]
    fn array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        interface::array_interface_of(py, self)
    }

    /// For `numpy.result_type` and `numpy.dtype`, from NumPy 2.4 on.
    #[cfg(feature = "tensor-methods")]
    #[getter(__numpy_dtype__)]
    fn numpy_dtype<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        export::numpy_dtype_of(py, self.tensor.dtype())
    }

    /// Return the capsules of Arrow's schema and array (the Arrow PyCapsule interface): a column of
    /// numbers, of lists of one size for each further axis. Contiguous memory is shared.
    #[cfg(feature = "tensor-methods")]
    #[pyo3(signature = (*_requested_schema, **_keywords))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        _requested_schema: &Bound<'py, PyTuple>,
        _keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        whole::arrow_array(py, self)
    }

    /// For `pyarrow.array`, which does not cast what `__arrow_c_array__` returns.
    #[cfg(feature = "tensor-methods")]
    #[pyo3(signature = (*arguments, **keywords))]
    fn __arrow_array__<'py>(
        slf: &Bound<'py, Self>,
        arguments: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        whole::pyarrow_array(slf, arguments, keywords)
    }
}

/// The error for a number or a tensor beside an operator. An array of a library computes by its own operator.
#[cold]
fn no_arithmetic(other: &Bound<'_, PyAny>, help: &str) -> PyResult<Py<PyAny>> {
    let is_plain = other.is_instance_of::<TensorObject>()
        || other.is_instance_of::<PyInt>()
        || other.is_instance_of::<PyFloat>()
        || other.is_instance_of::<PyComplex>()
        || other.is_instance_of::<PyList>();
    if !is_plain {
        return Ok(other.py().NotImplemented());
    }
    Err(error_of::<PyTypeError>(format!(
        "expected an array library to compute, found a dlbridge.Tensor; use {help}"
    )))
}

/// The error for a comparison.
#[cold]
fn no_comparison(other: &Bound<'_, PyAny>, operation: CompareOp) -> PyErr {
    let sign = match operation {
        CompareOp::Eq => "==",
        CompareOp::Ne => "!=",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
    };
    error_of::<PyTypeError>(format!(
        "{sign}: expected arrays of a library that compares elements, found a dlbridge.Tensor and {}; use \
         np.asarray(x) {sign} y",
        name_of(&other.get_type())
    ))
}

/// The error for the tensor of an extension where a number is expected.
#[cfg(not(feature = "tensor-methods"))]
fn no_number<T>(wanted: &str) -> PyResult<T> {
    Err(error_of::<PyTypeError>(format!(
        "{wanted}: expected a number, found the tensor of an extension; use x.numpy() or \
         dlbridge.from_dlpack(x), which have numbers"
    )))
}
