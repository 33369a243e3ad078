//! `seal`, `empty_sealed` and `open_sealed`: tensors that other processes read (Linux).
//! Invariant: Python gets no read-only page. Its tensors are over private mappings, so that a
//! consumer that ignores `readonly` writes to a copy of the page.
#![allow(unsafe_code, reason = "borrows a descriptor by its number")]

use dlbridge_pyo3::{error_of, items, through_pyo3};
use std::collections::BTreeMap;
#[cfg(unix)]
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlbridge::{DType, Tensor};
use dlbridge_pyo3::{Error, PyDType, PyTensor, Result, TensorObject};
#[cfg(any(target_os = "linux", target_os = "android"))]
use dlbridge_sealed::Opens;
use dlbridge_sealed::{Builder, Filling, SealedTensors};
use pyo3::exceptions::{PyBufferError, PyKeyError, PyOSError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PyTuple};

use crate::arguments::Shape;
use crate::timer::{Timer, exception};

/// The name of a tensor that was given none.
const ONE: &str = "tensor";

type Metadata = Option<BTreeMap<String, String>>;

/// Named tensors in a sealed memory file, which no process can change.
///
/// Other processes map the same memory: pass the object to them in any pickle, its `handle` in any
/// message, or its descriptor (`fileno`) through `socket.send_fds`.
#[pyclass(frozen, weakref, name = "SealedTensors", module = "dlbridge")]
pub(crate) struct SealedObject(pub(crate) SealedTensors);

#[pymethods]
impl SealedObject {
    /// The tensors by their names, read-only, over the sealed memory.
    ///
    /// NumPy and JAX honour `readonly`. A write through PyTorch, which ignores it, goes to a copy of
    /// the page that only this call's tensor sees.
    fn tensors<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        self.each(py, read_only)
    }

    /// The tensors by their names, writable. The first write to a page copies it; the sealed values
    /// do not change.
    fn private<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        self.each(py, |private| private)
    }

    /// The names of the tensors, in the order of the file.
    fn keys(&self) -> Vec<&str> {
        self.0.names().collect()
    }

    /// The metadata, a dict of str.
    #[getter]
    fn metadata(&self) -> BTreeMap<String, String> {
        self.0.metadata().clone()
    }

    /// The size of the file in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.nbytes()
    }

    /// The number of the file's descriptor, which is closed with this object.
    #[cfg(unix)]
    fn fileno(&self) -> i32 {
        std::os::fd::AsFd::as_fd(&self.0).as_raw_fd()
    }

    /// One of `tensors()`.
    fn __getitem__(&self, name: &str) -> Result<TensorObject> {
        let private = self.0.private(name).map_err(|error| match error {
            dlbridge::Error::UnknownName { name, .. } => Error::from(error_of::<PyKeyError>(name)),
            error => exception(error),
        })?;
        Ok(TensorObject::new(read_only(private)))
    }

    fn __len__(&self) -> usize {
        self.0.names().len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.0.names())?.try_iter()
    }

    // No process can change it, so a copy is the same object.

    fn __copy__<'py>(slf: Bound<'py, Self>) -> Bound<'py, Self> {
        slf
    }

    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }

    /// Bytes that open the tensors in another process of this user, for any message: `open_handle`.
    ///
    /// They open them any number of times while this object exists; with `once` one time, and they keep
    /// the memory until then. They contain a secret: a process of this user that has them can read the tensors.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[pyo3(signature = (*, once=false))]
    fn handle<'py>(&self, py: Python<'py>, once: bool) -> Result<Bound<'py, PyBytes>> {
        let opens = if once { Opens::Once } else { Opens::Many };
        Ok(PyBytes::new(py, &self.0.handle(opens).map_err(exception)?))
    }

    /// A pickle has a handle. It opens the tensors once at least, also if this object is deleted before.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn __reduce_ex__<'py>(
        &self,
        py: Python<'py>,
        _protocol: &Bound<'py, PyAny>,
    ) -> Result<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let handle = self.0.handle(Opens::OnceAtLeast).map_err(exception)?;
        let open = py.import(intern!(py, "dlbridge"))?.getattr(intern!(py, "open_handle"))?;
        Ok((open, (PyBytes::new(py, &handle),)))
    }

    fn __repr__(&self) -> Result<String> {
        let mut text = String::new();
        for name in self.0.names() {
            let tensor = self.0.tensor(name)?;
            let comma = if text.is_empty() { "" } else { ", " };
            text += &format!("{comma}{name:?}: {}{:?}", tensor.dtype(), tensor.shape());
        }
        Ok(format!("dlbridge.SealedTensors({{{text}}}, nbytes={})", self.0.nbytes()))
    }
}

impl SealedObject {
    fn each<'py>(
        &self,
        py: Python<'py>,
        tensor: impl Fn(Tensor) -> Tensor,
    ) -> Result<Bound<'py, PyDict>> {
        // One mapping for all: a process has 65,530 at most.
        let tensors = self.0.private_tensors().map_err(exception)?;
        dict(py, self.0.names().zip(tensors).map(|(name, private)| Ok((name, tensor(private)))))
    }
}

/// Shared with consumers that ignore the flag, so not `Frozen`.
fn read_only(private: Tensor) -> Tensor {
    Tensor::from(private.into_shared()).into_frozen().into()
}

/// Tensors in a memory file, writable until it is sealed.
#[pyclass(frozen, weakref, name = "UnsealedTensors", module = "dlbridge")]
pub(crate) struct UnsealedObject(Mutex<Unsealed>);

struct Unsealed {
    filling: Filling,
    /// Empty before the first call of `tensors`, and from the first call of `seal` on.
    tensors: Vec<(String, TensorObject)>,
}

#[pymethods]
impl UnsealedObject {
    /// The tensors by their names, to be filled. They are zeros in the beginning.
    fn tensors<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let mut unsealed = self.lock(py);
        let Unsealed { filling, tensors } = &mut *unsealed;
        if tensors.is_empty() {
            let names: Vec<String> = filling.names().map(str::to_owned).collect();
            for name in names {
                let tensor = filling.tensor(&name).map_err(exception)?;
                tensors.push((name, TensorObject::new(tensor)));
            }
        }
        let named = tensors.iter().map(|(name, tensor)| (name.clone(), tensor.another()));
        let named: Vec<_> = named.collect();
        drop(unsealed);
        let dict = PyDict::new(py);
        for (name, tensor) in named {
            dict.set_item(name, tensor)?;
        }
        Ok(dict)
    }

    /// Seal the file: no process can change the tensors any more, this one included.
    ///
    /// Delete the tensors and the arrays made of them first; while one exists, this raises
    /// `BufferError`.
    fn seal(&self, py: Python<'_>) -> Result<SealedObject> {
        let mut unsealed = self.lock(py);
        let given = std::mem::take(&mut unsealed.tensors);
        drop(given);
        let alive = unsealed.filling.alive();
        if alive > 0 {
            let message = format!(
                "expected no tensor that can still be filled, found {alive}: delete them and the \
                 arrays made of them (del x), then call seal() again"
            );
            return Err(error_of::<PyBufferError>(message).into());
        }
        let filling = &mut unsealed.filling;
        Ok(SealedObject(py.detach(|| filling.seal()).map_err(exception)?))
    }
}

impl UnsealedObject {
    /// The lock, which a thread without the GIL may have: this one waits for it without the GIL.
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, Unsealed> {
        self.0.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copy an array, or a dict of arrays, into sealed memory, which other processes read without a
/// copy.
///
/// >>> import dlbridge, numpy
/// >>> sealed = dlbridge.seal({"x": numpy.arange(3), "y": dlbridge.zeros((2, 2))})
/// >>> sealed
/// dlbridge.SealedTensors({"x": int64[3], "y": float64[2, 2]}, nbytes=288)
/// >>> sealed["x"].tolist()
/// [0, 1, 2]
///
/// A single array is named `tensor`. The arrays are those that `from_dlpack` imports, in host memory. `metadata` is a
/// dict of str. On systems other than Linux, this raises `OSError`.
#[pyfunction]
#[pyo3(signature = (x, /, *, metadata=None))]
pub(crate) fn seal(x: &Bound<'_, PyAny>, metadata: Metadata) -> Result<SealedObject> {
    supported()?;
    let tensors: Vec<(String, PyTensor)> = match through_pyo3(|| items(x))? {
        Some(items) => {
            let tensor = |item| {
                let (name, x) = entry(item)?;
                Ok((name, x.extract()?))
            };
            items.iter().map(tensor).collect::<Result<_>>()?
        }
        None if x.is_instance_of::<PyList>() || x.is_instance_of::<PyTuple>() => {
            let found = x.get_type().name()?;
            let message = format!(
                "expected an array or a dict of arrays, found {found}; pass {{\"name\": x, ...}}"
            );
            return Err(error_of::<PyTypeError>(message).into());
        }
        None => vec![(ONE.to_owned(), x.extract()?)],
    };
    let declared = tensors.iter().map(|(name, x)| (name.clone(), x.dtype(), x.shape().to_vec()));
    let py = x.py();
    let mut filling = allocate(py, declared.collect(), metadata)?;
    for (name, tensor) in &tensors {
        let tensor: &Tensor = tensor;
        py.detach(|| filling.copy_from(name, tensor))?;
    }
    Ok(SealedObject(py.detach(|| filling.seal()).map_err(exception)?))
}

/// Allocate tensors to be filled and then sealed: values that are computed there are not copied.
///
/// >>> import dlbridge
/// >>> batch = dlbridge.empty_sealed({"images": ((8, 32, 32), "uint8"), "labels": (8, "int64")})
/// >>> batch.tensors()["labels"].numpy()[:] = 7
/// >>> sealed = batch.seal()
/// >>> sealed["labels"].tolist()
/// [7, 7, 7, 7, 7, 7, 7, 7]
///
/// A shape in place of the dict makes a single tensor, `tensor`, of the type `dtype`. The tensors are
/// zeros until they are filled. On systems other than Linux, this raises `OSError`.
#[pyfunction]
#[pyo3(
    signature = (shapes, /, *, dtype=PyDType(DType::F64), metadata=None),
    text_signature = "(shapes, /, *, dtype='float64', metadata=None)"
)]
pub(crate) fn empty_sealed(
    shapes: &Bound<'_, PyAny>,
    dtype: PyDType,
    metadata: Metadata,
) -> Result<UnsealedObject> {
    supported()?;
    let declared = match through_pyo3(|| items(shapes))? {
        Some(items) => items.iter().map(declared).collect::<Result<_>>()?,
        None => vec![(ONE.to_owned(), dtype.0, shapes.extract::<Shape>()?.0)],
    };
    let filling = allocate(shapes.py(), declared, metadata)?;
    Ok(UnsealedObject(Mutex::new(Unsealed { filling, tensors: Vec::new() })))
}

/// Open the sealed memory file that another process made.
///
/// `fd` is the number of a descriptor, which remains the caller's to close, or an object with
/// `fileno()`. The sender need not be trusted: anything but a sealed file of tensors raises
/// `ValueError`.
///
/// >>> import dlbridge, numpy
/// >>> sealed = dlbridge.seal(numpy.arange(3))
/// >>> dlbridge.open_sealed(sealed.fileno())["tensor"].tolist()
/// [0, 1, 2]
#[pyfunction]
#[pyo3(signature = (fd, /))]
pub(crate) fn open_sealed(fd: &Bound<'_, PyAny>) -> Result<SealedObject> {
    supported()?;
    let fileno = fd.getattr_opt(intern!(fd.py(), "fileno"))?;
    let number = through_pyo3(|| match &fileno {
        Some(fileno) => fileno.call0()?.extract(),
        None => fd.extract(),
    })?;
    Ok(SealedObject(fd.py().detach(|| open(number))?))
}

#[cfg(unix)]
fn open(number: i32) -> Result<SealedTensors> {
    if number < 0 {
        let message = format!("fd: expected the number of a descriptor, found {number}");
        return Err(error_of::<PyValueError>(message).into());
    }
    // SAFETY: a call of the system, which refuses a number that is no descriptor (F10).
    let caller = unsafe { BorrowedFd::borrow_raw(number) };
    let file: OwnedFd = caller.try_clone_to_owned().map_err(PyErr::from)?;
    SealedTensors::try_from(file).map_err(exception)
}

#[cfg(not(unix))]
fn open(_number: i32) -> Result<SealedTensors> {
    Err(supported().err().unwrap_or_else(|| error_of::<PyOSError>("no descriptors").into()))
}

/// Open sealed tensors by a handle that another process made: `SealedTensors.handle`.
///
/// That process must be alive, of the same user, and on the same machine. `TimeoutError` if it does not answer.
///
/// >>> import dlbridge, numpy
/// >>> sealed = dlbridge.seal(numpy.arange(3))
/// >>> dlbridge.open_handle(sealed.handle())["tensor"].tolist()
/// [0, 1, 2]
#[pyfunction]
#[pyo3(signature = (handle, /))]
pub(crate) fn open_handle(py: Python<'_>, handle: PyBackedBytes) -> Result<SealedObject> {
    supported()?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let sealed = {
        let mut opening = dlbridge_sealed::Opening::new(&handle).map_err(exception)?;
        let late = "expected an answer of the process that made the handle, found none in 10 s: it is stopped, or has too \
                    much to do; open the handle again";
        Timer::new(Some(10.0))?.wait(py, late, |time| opening.wait(time))?
    };
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let sealed = py.detach(|| dlbridge_sealed::open_handle(&handle)).map_err(exception)?;
    Ok(SealedObject(sealed))
}

/// An item of a dict.
pub(crate) fn entry<'py>(item: &Bound<'py, PyAny>) -> Result<(String, Bound<'py, PyAny>)> {
    let (name, value) = item.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()?;
    let Ok(text) = name.extract() else {
        let message = format!("name: expected a str, found {}", name.repr()?);
        return Err(error_of::<PyTypeError>(message).into());
    };
    Ok((text, value))
}

/// A name with a shape and a dtype.
pub(crate) fn declared(item: &Bound<'_, PyAny>) -> Result<(String, DType, Vec<i64>)> {
    let (name, pair) = entry(item)?;
    let py = item.py();
    match pair.extract::<(Shape, Bound<'_, PyAny>)>() {
        Ok((shape, dtype)) => Ok((name, dtype.extract::<PyDType>()?.0, shape.0)),
        Err(error)
            if error.is_instance_of::<PyTypeError>(py)
                || error.is_instance_of::<PyValueError>(py) =>
        {
            let message = format!(
                "{name}: expected a pair of a shape and a dtype, ((2, 3), \"float32\"), found {}",
                pair.repr()?
            );
            Err(error_of::<PyTypeError>(message).into())
        }
        Err(error) => Err(error.into()),
    }
}

fn allocate(
    py: Python<'_>,
    declared: Vec<(String, DType, Vec<i64>)>,
    metadata: Metadata,
) -> Result<Filling> {
    let builder = declared
        .into_iter()
        .fold(Builder::new(), |builder, (name, dtype, shape)| builder.tensor(name, dtype, &shape));
    let texts = metadata.unwrap_or_default().into_iter();
    let builder = texts.fold(builder, |builder, (key, value)| builder.metadata(key, value));
    py.detach(|| builder.allocate()).map_err(exception)
}

pub(crate) fn dict<'py, N: IntoPyObject<'py>>(
    py: Python<'py>,
    tensors: impl Iterator<Item = Result<(N, Tensor)>>,
) -> Result<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for item in tensors {
        let (name, tensor) = item?;
        dict.set_item(name, TensorObject::new(tensor))?;
    }
    Ok(dict)
}

pub(crate) fn supported() -> Result<()> {
    if cfg!(any(target_os = "linux", target_os = "android")) {
        return Ok(());
    }
    Err(Error::from(error_of::<PyOSError>(format!(
        "sealed memory: expected Linux, found {}; pickle the tensor, which copies it",
        std::env::consts::OS
    ))))
}
