//! The methods of `dlbridge.Tensor`.

use dlbridge::{Parts, TypeCode};
use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyTuple};

use super::{index, methods, values};
use crate::export::numpy;
use crate::ffi::arrow;
use crate::ffi::interpreter::iterator;
use crate::ffi::table;
use crate::{Error, PyDevice, Result, TensorObject};

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
        Err(PyTypeError::new_err(
            "expected a function that makes a tensor, found the class dlbridge.Tensor; call \
             dlbridge.from_dlpack(x), or zeros, arange or from_bytes",
        ))
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

    /// The name of the element type.
    #[getter]
    fn dtype(&self) -> String {
        self.tensor.dtype().to_string()
    }

    /// The device's name: `"cpu"`, `"cuda:0"`.
    #[getter]
    fn device(&self) -> String {
        self.tensor.device().to_string()
    }

    /// The number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.tensor.rank()
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

    fn __len__(&self) -> PyResult<usize> {
        match self.tensor.shape().first() {
            Some(&extent) => Ok(extent as usize),
            None => Err(PyTypeError::new_err(
                "expected a tensor with axes, found rank 0, which has no length; use x.item()",
            )),
        }
    }

    /// The part that an index selects, over the same memory: an int, a slice, `...`, None, or a tuple
    /// of them.
    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> Result<Self> {
        Ok(self.part(index::index(&self.tensor, index)?))
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyIterator>> {
        if slf.get().tensor.rank() == 0 {
            return Err(PyTypeError::new_err(
                "expected a tensor with axes, found rank 0, which is not iterated; use x.item()",
            ));
        }
        iterator(slf)
    }

    // PyO3 parses no argument of these methods: see `methods::BUFFER`.

    /// The same memory with other extents, at most one of them -1. Where that needs a copy, it is an
    /// error.
    #[pyo3(signature = (*shape))]
    fn reshape(&self, shape: &Bound<'_, PyTuple>) -> Result<Self> {
        let shape = index::shape(shape, self.tensor.len())?;
        Ok(self.part(self.tensor.reshape(&shape)?))
    }

    /// The axes in reverse, over the same memory.
    #[getter(T)]
    fn transposed(&self) -> Self {
        self.part(self.tensor.transpose())
    }

    /// A contiguous copy in host memory of Rust.
    fn copy(&self, py: Python<'_>) -> Result<Self> {
        Ok(Self::new(self.reading(py)?.to_contiguous()?))
    }

    /// Another object over the same memory.
    fn __copy__(&self) -> Self {
        self.another()
    }

    #[pyo3(signature = (*_memo))]
    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyTuple>) -> Result<Self> {
        self.copy(py)
    }

    /// For pickle: the bytes, which protocol 5 can send out of band, and how to read them.
    #[pyo3(signature = (*protocol))]
    fn __reduce_ex__<'py>(
        &self,
        py: Python<'py>,
        protocol: &Bound<'py, PyTuple>,
    ) -> Result<Bound<'py, PyTuple>> {
        self.reduce(py, protocol.get_item(0)?.extract()?)
    }

    /// The same tensor if it is on this device. dlbridge itself copies nothing between devices.
    #[pyo3(signature = (*device))]
    fn to_device<'py>(
        slf: &Bound<'py, Self>,
        device: &Bound<'py, PyTuple>,
    ) -> Result<Bound<'py, PyAny>> {
        if device.len() != 1 {
            let message = format!("to_device: expected one device, found {}", device.len());
            return Err(PyTypeError::new_err(message).into());
        }
        let PyDevice(wanted) = device.get_item(0)?.extract()?;
        let found = slf.get().tensor.device();
        if wanted == found {
            return Ok(slf.clone().into_any());
        }
        Err(Error::buffer(format!(
            "to_device: expected {found}, where the memory is, found {wanted}; copy it with a framework \
             that has this device, as torch.from_dlpack(x).to(\"{wanted}\")"
        )))
    }

    /// A NumPy array over the same host memory.
    pub(crate) fn numpy<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let dtype = this.on_host(py)?.dtype();
        if dtype.itemsize().is_none() {
            let message = format!(
                "dtype: expected elements of whole bytes, found {dtype}; x.tobytes() has their bits"
            );
            return Err(PyTypeError::new_err(message).into());
        }
        match numpy::of_ml_dtypes(slf)? {
            Some(array) => Ok(array),
            None => numpy::array(py, this.handle()),
        }
    }

    /// The bytes of all elements in row-major order, as a copy.
    fn tobytes<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.reading(py)?.to_contiguous()?.as_bytes()?))
    }

    /// The elements as nested lists of Python's numbers; of a tensor of rank 0, its number.
    fn tolist<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        values::to_list(py, &*self.reading(py)?)
    }

    /// One element as a Python number: the only one, or the one at an index.
    #[pyo3(signature = (*index))]
    fn item<'py>(&self, py: Python<'py>, index: &Bound<'py, PyTuple>) -> Result<Bound<'py, PyAny>> {
        let tensor = self.reading(py)?;
        if index.is_empty() {
            return values::one(py, &tensor);
        }
        let part = index::index(&self.tensor, index)?;
        if part.rank() > 0 {
            let message =
                format!("item: expected {} indices, found {}", self.tensor.rank(), index.len());
            return Err(PyValueError::new_err(message).into());
        }
        values::to_list(py, &part)
    }

    fn __bool__(&self, py: Python<'_>) -> Result<bool> {
        if self.tensor.len() != 1 {
            let message = format!(
                "bool: expected a tensor of one element, found {}, whose truth value is ambiguous; use \
                 x.numpy().any() or x.numpy().all()",
                self.tensor.len()
            );
            return Err(PyValueError::new_err(message).into());
        }
        Ok(values::one(py, &*self.reading(py)?)?.is_truthy()?)
    }

    fn __int__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let int = py.import(intern!(py, "builtins"))?.getattr(intern!(py, "int"))?;
        Ok(int.call1((self.scalar(py, "int")?,))?)
    }

    fn __float__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let float = py.import(intern!(py, "builtins"))?.getattr(intern!(py, "float"))?;
        Ok(float.call1((self.scalar(py, "float")?,))?)
    }

    fn __index__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        if !matches!(self.tensor.dtype().code, TypeCode::INT | TypeCode::UINT) {
            let message = format!(
                "expected an integer as an index, found {}; use int(x)",
                self.tensor.dtype()
            );
            return Err(PyTypeError::new_err(message).into());
        }
        self.scalar(py, "an index")
    }

    /// For NumPy's functions: types that the buffer protocol lacks.
    #[pyo3(signature = (*arguments, **keywords))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        arguments: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        numpy::forward(slf, "numpy", "asarray", arguments, keywords)
    }

    /// For consumers that read NumPy's array interface, such as Pillow.
    #[getter(__array_interface__)]
    fn array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match self.on_host(py) {
            Ok(tensor) => numpy::interface(py, tensor),
            Err(error) => Err(PyAttributeError::new_err(error.to_string())),
        }
    }

    // SAFETY: Python's duty: `view` is a place to fill in.
    #[cfg(buffer_methods)]
    #[allow(unsafe_code, reason = "PyO3 calls it with a pointer")]
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut pyo3::ffi::Py_buffer,
        flags: std::ffi::c_int,
    ) -> PyResult<()> {
        // SAFETY: the caller's duty.
        let status = unsafe { crate::ffi::buffer::get::<Self>(slf.as_ptr(), view.cast(), flags) };
        if status == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    // SAFETY: Python's duty: `view` was filled in above.
    #[cfg(buffer_methods)]
    #[allow(unsafe_code, reason = "PyO3 calls it with a pointer")]
    unsafe fn __releasebuffer__(slf: &Bound<'_, Self>, view: *mut pyo3::ffi::Py_buffer) {
        // SAFETY: the caller's duty.
        unsafe { crate::ffi::buffer::release(slf.as_ptr(), view.cast()) };
    }

    /// For `numpy.result_type` and `numpy.dtype`, from NumPy 2.4 on.
    #[getter(__numpy_dtype__)]
    fn numpy_dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        numpy::dtype_of(py, self.tensor.dtype())
    }

    /// For `jax.numpy`.
    fn __jax_array__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import(intern!(slf.py(), "jax.numpy"))?.call_method1("from_dlpack", (slf,))
    }

    /// Return the capsules of Arrow's schema and array (the Arrow PyCapsule interface): a column of
    /// numbers, of lists of one size for each further axis. Contiguous memory is shared.
    #[pyo3(signature = (*_requested_schema, **_keywords))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        _requested_schema: &Bound<'py, PyTuple>,
        _keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        self.settle_on_host(py)?;
        arrow::capsules(py, self.handle())
    }

    /// For `pyarrow.array`, which does not cast what `__arrow_c_array__` returns.
    #[pyo3(signature = (*arguments, **keywords))]
    fn __arrow_array__<'py>(
        slf: &Bound<'py, Self>,
        arguments: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> Result<Bound<'py, PyAny>> {
        let py = slf.py();
        let column = PyDict::new(py);
        column.set_item("__arrow_c_array__", slf.getattr("__arrow_c_array__")?)?;
        let column = py.import("types")?.getattr("SimpleNamespace")?.call((), Some(&column))?;
        let array = py.import("pyarrow")?.call_method1("array", (column,))?;
        let wanted = match keywords.map(|keywords| keywords.get_item("type")).transpose()? {
            Some(Some(wanted)) => Some(wanted),
            _ => arguments.iter().next(),
        };
        match wanted.filter(|wanted| !wanted.is_none()) {
            Some(wanted) => Ok(array.call_method1("cast", (wanted,))?),
            None => Ok(array),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        const NAME: &str = "dlbridge.Tensor(";
        let shape = self.shape(py)?.repr()?.to_string();
        let (dtype, device) = (self.tensor.dtype(), self.tensor.device());
        let readonly = if self.tensor.is_read_only() { ", readonly" } else { "" };
        let values = match self.reading(py) {
            Ok(tensor) => values::to_text(&tensor, NAME.len()),
            Err(_) => None,
        };
        let values = values.map(|text| text + ", ").unwrap_or_default();
        Ok(format!("{NAME}{values}shape={shape}, dtype={dtype}, device={device}{readonly})"))
    }
}

impl TensorObject {
    /// The number of a tensor of rank 0.
    fn scalar<'py>(&self, py: Python<'py>, wanted: &str) -> Result<Bound<'py, PyAny>> {
        if self.tensor.rank() > 0 {
            let message = format!(
                "{wanted}: expected a tensor of rank 0, found shape {:?}; use x.item()",
                self.tensor.shape()
            );
            return Err(PyTypeError::new_err(message).into());
        }
        values::to_list(py, &*self.reading(py)?)
    }
}
