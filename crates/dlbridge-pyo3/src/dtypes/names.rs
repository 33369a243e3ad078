//! Element types and devices in the forms that Python users write them.
//! The names of DLPack belong to `dlbridge`.

use std::convert::Infallible;

use dlbridge::{DType, Device, DeviceKind, TypeCode};
use pyo3::Borrowed;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::error::error_of;
use crate::error::unless_refused;
use crate::interpreter::Once;
use crate::interpreter::{Attributes, through_pyo3};
use crate::{Error, Result};

const DTYPES: &str = "bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, \
    bfloat16, float32, float64, complex64, complex128, float8_e4m3fn, float8_e5m2, ...";

/// An element type as an argument of a Python function.
///
/// It accepts a name (`"float32"`, `"bfloat16"`), a short name of NumPy (`"f4"`, `"<i8"`, `"?"`), `bool`, `int`,
/// `float` and `complex` of Python, the types of frameworks (`np.float32`, `np.dtype("f4")`, `torch.float32`,
/// `jnp.bfloat16`), and an object with `__dlpack_data_type__`.
///
/// ```
/// use dlbridge::DType;
/// use dlbridge_pyo3::PyDType;
/// use pyo3::prelude::*;
///
/// # Python::initialize();
/// # Python::attach(|py| {
/// let dtype: PyDType = py.eval(c"float", None, None).unwrap().extract().unwrap();
/// assert_eq!(dtype.0, DType::F64);
/// # });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PyDType(pub DType);

/// A device as an argument of a Python function.
///
/// It accepts a name (`"cpu"`, `"cuda:0"`), DLPack's pair of numbers (`(2, 0)`), `torch.device("cuda")`, and the
/// devices of JAX, and an object with `__dlpack_device__`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PyDevice(pub Device);

impl<'a, 'py> FromPyObject<'a, 'py> for PyDType {
    type Error = Error;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> Result<Self> {
        if let Ok(name) = object.cast::<PyString>() {
            let name = name.to_str()?;
            return named(name).map(Self).ok_or_else(|| {
                let message =
                    format!("dtype: expected a known name, found {name:?}; known are {DTYPES}");
                error_of::<PyValueError>(message).into()
            });
        }
        through_pyo3(|| Self::of_object(object))
    }
}

impl PyDType {
    /// The dtype of an object that is no name.
    fn of_object(object: Borrowed<'_, '_, PyAny>) -> Result<Self> {
        // The scalar types of NumPy, and Python's own.
        if let Ok(kind) = object.cast::<PyType>() {
            let name = kind.attribute(intern!(object.py(), "__name__"))?;
            let name = name.cast::<PyString>().map_err(PyErr::from)?;
            if let Some(dtype) = named(name.to_str()?) {
                return Ok(Self(dtype));
            }
        }
        let py = object.py();
        let method = unless_refused(py, object.attribute_opt(intern!(py, "__dlpack_data_type__")))?;
        if let Some(method) = method.flatten() {
            let (code, bits, lanes) = method.call0()?.extract()?;
            return Ok(Self(DType { code: TypeCode(code), bits, lanes }));
        }
        let is_native = match unless_refused(py, object.attribute_opt(intern!(py, "isnative")))? {
            Some(Some(is_native)) => unless_refused(py, is_native.extract::<bool>())?,
            _ => None,
        };
        if is_native == Some(false) {
            let message = format!("dtype: expected native byte order, found {}", object.str()?);
            return Err(error_of::<PyValueError>(message).into());
        }
        let is_none_or_number =
            object.is_none() || unless_refused(py, object.extract::<f64>())?.is_some();
        let name = if is_none_or_number { None } else { own_name(object)? };
        if let Some(dtype) = name.as_deref().and_then(named) {
            return Ok(Self(dtype));
        }
        let message = format!(
            "dtype: expected a name or a type, such as \"float32\", numpy.float32 or torch.float32, \
             found {}",
            object.repr()?
        );
        Err(error_of::<PyTypeError>(message).into())
    }
}

/// The name of a dtype as a string of Python. Those of named types are made once.
#[inline]
pub(crate) fn name_of(py: Python<'_>, dtype: DType) -> Bound<'_, PyString> {
    static NAMES: Once<Vec<Py<PyString>>> = Once::new();
    let new = |dtype: DType| PyString::new(py, &dtype.to_string());
    let make = || DType::NAMED.iter().map(|&dtype| new(dtype).unbind()).collect();
    let Ok(names) = NAMES.get_or_make(py, || Ok::<_, Infallible>(make()));
    match DType::NAMED.iter().position(|named| named.word() == dtype.word()) {
        Some(place) => names[place].bind(py).clone(),
        None => new(dtype),
    }
}

/// What a type of a framework calls itself.
fn own_name(object: Borrowed<'_, '_, PyAny>) -> Result<Option<String>> {
    let py = object.py();
    if object.cast::<PyType>().is_err() {
        // A dtype of NumPy or TensorFlow has a name; a scalar type of JAX has the dtype.
        let dtype = unless_refused(py, object.attribute(intern!(py, "dtype")))?;
        let named = dtype.as_ref().unwrap_or(&object);
        let name = named.attribute(intern!(py, "name")).and_then(|name| name.extract());
        if let Some(name) = unless_refused(py, name)? {
            return Ok(Some(name));
        }
    }
    let text = match unless_refused(py, object.attribute(intern!(py, "__name__")))? {
        Some(name) => name.str()?,
        None => object.str()?,
    };
    // torch.float32, paddle.float32, mlx.core.float32
    Ok(text.to_str()?.rsplit('.').next().map(ToOwned::to_owned))
}

/// The dtype of a name: DLPack's, Python's or NumPy's.
fn named(name: &str) -> Option<DType> {
    if let Ok(dtype) = name.parse() {
        return Some(dtype);
    }
    // PyTorch's pairs of 4 bits: float4_e2m1fn_x2.
    if let Some(head) = name.strip_suffix("_x2") {
        return head.parse::<DType>().ok().map(|dtype| dtype.with_lanes(2));
    }
    let native = if cfg!(target_endian = "little") { '<' } else { '>' };
    let one_byte = matches!(name, "|b1" | "|i1" | "|u1");
    let short = name.strip_prefix([native, '=']);
    let short = short.or_else(|| if one_byte { name.strip_prefix('|') } else { Some(name) })?;
    Some(match short {
        "?" | "b1" | "bool_" => DType::BOOL,
        "b" | "i1" | "byte" => DType::I8,
        "h" | "i2" | "short" => DType::I16,
        "i" | "i4" | "intc" => DType::I32,
        "q" | "i8" | "int" | "int_" | "longlong" => DType::I64,
        "B" | "u1" | "ubyte" => DType::U8,
        "H" | "u2" | "ushort" => DType::U16,
        "I" | "u4" | "uintc" => DType::U32,
        "Q" | "u8" | "uint" | "ulonglong" => DType::U64,
        "e" | "f2" | "half" => DType::F16,
        "f" | "f4" | "single" => DType::F32,
        "d" | "f8" | "float" | "double" => DType::F64,
        "F" | "c8" | "csingle" => DType::COMPLEX64,
        "D" | "c16" | "complex" | "cdouble" => DType::COMPLEX128,
        _ => return None,
    })
}

impl<'a, 'py> FromPyObject<'a, 'py> for PyDevice {
    type Error = Error;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> Result<Self> {
        if let Ok(name) = object.cast::<PyString>() {
            return device(name.to_str()?);
        }
        through_pyo3(|| Self::of_object(object))
    }
}

impl PyDevice {
    /// The device of an object that is no name.
    fn of_object(object: Borrowed<'_, '_, PyAny>) -> Result<Self> {
        let py = object.py();
        let method = unless_refused(py, object.attribute_opt(intern!(py, "__dlpack_device__")))?;
        let pair = match method.flatten() {
            Some(method) => method.call0()?.extract::<(i32, Option<i32>)>(),
            None => object.extract(),
        };
        if let Some((kind, id)) = unless_refused(py, pair)? {
            return Ok(Self(Device::new(DeviceKind(kind), id.unwrap_or(0))));
        }
        // torch.device and jax.Device
        for (kind, id) in [("type", "index"), ("platform", "id")] {
            let kind = object.getattr(kind).and_then(|kind| kind.extract::<String>());
            let Some(kind) = unless_refused(py, kind)? else { continue };
            let id = object.getattr(id).and_then(|id| id.extract::<Option<i32>>());
            let kind = if kind == "gpu" { "cuda".to_owned() } else { kind };
            return match unless_refused(py, id)?.flatten() {
                Some(id) => device(&format!("{kind}:{id}")),
                None => device(&kind),
            };
        }
        let message = format!(
            "device: expected a name such as \"cpu\" or \"cuda:0\", a pair of DLPack's numbers or a \
             torch.device, found {}",
            object.repr()?
        );
        Err(error_of::<PyTypeError>(message).into())
    }
}

fn device(name: &str) -> Result<PyDevice> {
    name.parse().map(PyDevice).map_err(|_| {
        let known: Vec<_> = DeviceKind::ALL.iter().filter_map(|kind| kind.name()).collect();
        let message = format!(
            "device: expected a known name, found {name:?}; known are {}",
            known.join(", ")
        );
        error_of::<PyValueError>(message).into()
    })
}
