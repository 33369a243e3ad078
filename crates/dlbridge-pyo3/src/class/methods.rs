//! The methods that every class with DLPack gets: `dlpack_class`.
//! What a call of `__dlpack__` asks, and what answers it, belongs to `call`.
//! Invariant: a method of the class's own is kept.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyMemoryView, PyTuple, PyType};

use super::call::{answer, request};
use super::pickle::{self, Pickle};
use super::traits::{ExportDlpack, export, on_host, permitted};
use crate::dtypes::names::name_of;
use crate::error::error_of;
#[cfg(feature = "columns")]
use crate::ffi::arrow;
use crate::ffi::buffer::BufferRequest;
use crate::ffi::callbacks::{Argument, Attribute, Body, Call};
use crate::ffi::class::{Method, Property, makes_buffers, set_buffers};
use crate::ffi::table;
use crate::interpreter::{module, through_pyo3};
use crate::object::CLASS;
use crate::{Error, PyDType, Result, TensorObject};

/// Adds the methods of DLPack to a class, and returns its C exchange API, for a class attribute of
/// that name:
///
/// ```
/// use dlbridge::Tensor;
/// use dlbridge_pyo3::{ExportDlpack, Result, dlpack_class};
/// use pyo3::prelude::*;
///
/// #[pyclass(frozen)]
/// struct Zeros(usize);
///
/// impl ExportDlpack for Zeros {
///     fn tensor(&self) -> Result<Tensor> {
///         Ok(Tensor::from(vec![0_u8; self.0]))
///     }
/// }
///
/// #[pymethods]
/// impl Zeros {
///     #[classattr]
///     fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Py<PyAny>> {
///         dlpack_class::<Self>(py)
///     }
///
///     fn __len__(&self) -> usize {
///         self.0
///     }
/// }
/// # Python::initialize();
/// # Python::attach(|py| -> Result<()> {
/// let array = py.import("numpy")?.call_method1("asarray", (Zeros(3),))?;
/// assert_eq!(array.repr()?.to_string(), "array([0, 0, 0], dtype=uint8)");
/// # assert_eq!(Bound::new(py, Zeros(3))?.extract::<dlbridge_pyo3::PyTensor>()?.len(), 3);
/// # Ok(()) }).unwrap();
/// ```
///
/// They are `__dlpack__`, with all keywords of the array API standard; `__dlpack_device__`;
/// `__array__` and `__arrow_c_array__`, for host memory; and the buffer protocol, for host memory
/// and types that have a struct format; and `__reduce_ex__`, for a class with
/// [`PICKLE`](ExportDlpack::PICKLE). A class that has one of them keeps its own.
///
/// # Errors
///
/// Those of Python, if the class cannot be changed.
pub fn dlpack_class<T: ExportDlpack>(py: Python<'_>) -> PyResult<Py<PyAny>> {
    // Class attributes are made when the class is, before there is an object of it.
    let kind = py.get_type::<T>();
    MethodsOf::<T>::DLPACK.add_to(&kind)?;
    MethodsOf::<T>::OTHERS.iter().try_for_each(|method| method.add_to(&kind))?;
    if makes_buffers(py) {
        // A class with functions of its own has the method, from Python.
        MethodsOf::<T>::FORWARDED_BUFFER.add_to(&kind)?;
    } else {
        set_buffers::<T>(&kind);
    }
    if let Some(pickle) = T::PICKLE {
        MethodsOf::<T>::REDUCE.add_to(&kind)?;
        add_unpickle(&kind, pickle)?;
    }
    Ok(table::capsule::<T>(py)?.unbind())
}

/// Adds the class method that makes an object from what a pickle keeps.
fn add_unpickle<T: ExportDlpack>(kind: &Class<'_>, pickle: Pickle<T>) -> PyResult<()> {
    let py = kind.py();
    let unpickle = PyCFunction::new_closure(py, Some(UNPICKLE), None, move |arguments, _| {
        let (_, data, dtype, shape, flags): (Class<'_>, Bound<'_, PyAny>, PyDType, Vec<i64>, u64) =
            arguments.extract()?;
        let tensor = pickle::rebuild(data.as_borrowed(), dtype.0, &shape, flags)?;
        Ok::<_, PyErr>(pickle.object(arguments.py(), tensor)?)
    })?;
    let classmethod = py.import("builtins")?.getattr("classmethod")?;
    kind.setattr(UNPICKLE.to_string_lossy(), classmethod.call1((unpickle,))?)
}

/// The class method that makes an object from what a pickle keeps.
const UNPICKLE: &CStr = c"_unpickle";
type Class<'py> = Bound<'py, PyType>;

/// The methods of one class: an associated constant, since a `static` cannot be generic.
struct MethodsOf<T>(PhantomData<T>);

impl<T: ExportDlpack> MethodsOf<T> {
    const DLPACK: &'static Method = &Method::of::<T, Dlpack>(
        c"__dlpack__",
        c"__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n\
          Return a capsule over the same memory.",
    );
    const OTHERS: &'static [Method] = &[
        Method::of::<T, DlpackDevice>(
            c"__dlpack_device__",
            c"__dlpack_device__($self, /)\n--\n\nReturn the device's type and index.",
        ),
        Method::of::<T, Array>(c"__array__", ARRAY_DOC),
        #[cfg(feature = "columns")]
        Method::of::<T, ArrowCArray>(
            c"__arrow_c_array__",
            c"__arrow_c_array__($self, /, requested_schema=None)\n--\n\n\
              Return the capsules of Arrow's schema and array.",
        ),
    ];
    /// The method of PEP 688, from which Python makes the buffer functions of a class.
    const FORWARDED_BUFFER: &'static Method =
        &Method::of::<T, ForwardedBuffer>(c"__buffer__", BUFFER_DOC);
    const REDUCE: &'static Method = &Method::of::<T, Reduce>(c"__reduce_ex__", c"For pickle.");
}

/// The method of PEP 688, which Python makes from 3.12 on. It is not made by PyO3:
/// with more methods whose arguments PyO3 parses, the compiler inlines less of the code that makes a tensor
/// object, which then takes 81 more of 812 instructions.
static BUFFER: Method = Method::of::<TensorObject, Buffer>(c"__buffer__", BUFFER_DOC);

const BUFFER_DOC: &CStr =
    c"__buffer__($self, flags, /)\n--\n\nGive a memoryview over the same memory (PEP 688).";

/// `__array__`, for NumPy's functions: types that the buffer protocol lacks. PyO3 would make a tuple of its arguments.
static ARRAY: Method = Method::of::<TensorObject, TensorArray>(c"__array__", ARRAY_DOC);

const ARRAY_DOC: &CStr =
    c"__array__($self, /, dtype=None, copy=None)\n--\n\nFor NumPy's functions.";

struct TensorArray;

impl Body<TensorObject> for TensorArray {
    fn run<'py>(
        object: &Bound<'py, TensorObject>,
        call: Call<'_, 'py>,
    ) -> Result<Bound<'py, PyAny>> {
        if call.is_empty() {
            return TensorObject::numpy(object);
        }
        let (py, array) = (object.py(), TensorObject::numpy(object)?);
        let arguments = (array,).into_pyobject(py)?.add(call.positional()?)?;
        let arguments = arguments.cast_into::<PyTuple>().map_err(PyErr::from)?;
        through_pyo3(|| {
            let numpy = module(intern!(py, "numpy"))?;
            Ok(numpy.call_method(intern!(py, "asarray"), arguments, Some(&call.named()?))?)
        })
    }
}

static DTYPE: Property =
    Property::of::<TensorObject, DtypeName>(c"dtype", c"The name of the element type.");

struct DtypeName;

impl Attribute<TensorObject> for DtypeName {
    #[inline]
    fn get<'py>(object: &Bound<'py, TensorObject>) -> Result<Bound<'py, PyAny>> {
        Ok(name_of(object.py(), object.get().inner().dtype()).into_any())
    }
}

/// Adds to `dlbridge.Tensor` the methods that PyO3 does not make.
///
/// Called while the class is being created, before it has an object or a subclass. Threads that need
/// the class at the same time all call it.
pub(super) fn complete_tensor(py: Python<'_>) -> PyResult<()> {
    let kind = py.get_type::<TensorObject>();
    CLASS.store(kind.as_type_ptr(), Ordering::Relaxed);
    BUFFER.add_to(&kind)?;
    ARRAY.add_to(&kind)?;
    DTYPE.add_to(&kind)?;
    MethodsOf::<TensorObject>::DLPACK.add_to(&kind)
}

/// The error for an object of a derived class: its pickle would make one of the base class, without
/// the object's own attributes.
fn other_class(class: &Class<'_>, found: &Class<'_>) -> Error {
    Error::from(error_of::<PyTypeError>(format!(
        "expected an object of {class} to pickle, found one of {found}, which is derived from it: \
         define __reduce_ex__ there"
    )))
}

macro_rules! methods {
    ($($(#[$meta:meta])* $name:ident, |$object:ident, $call:ident| $body:expr;)*) => {$(
        $(#[$meta])*
        struct $name;

        $(#[$meta])*
        impl<T: ExportDlpack> Body<T> for $name {
            fn run<'py>($object: &Bound<'py, T>, $call: Call<'_, 'py>) -> Result<Bound<'py, PyAny>> {
                Ok($body.into_any())
            }
        }
    )*};
}

/// A number, which an object of Python may have to be asked for.
fn number<'a, 'py, T>(argument: Argument<'a, 'py>) -> PyResult<T>
where
    T: FromPyObject<'a, 'py, Error = PyErr>,
{
    through_pyo3(|| argument.extract())
}

methods! {
    /// `__dlpack__`.
    Dlpack, |object, call| {
        let (request, stream) = request(&call)?;
        let (tensor, ready) = export(object.as_borrowed())?;
        let request = permitted(object, &tensor, request)?;
        answer(object.py(), request, stream, tensor, ready.as_deref())?
    };
    /// `__dlpack_device__`.
    DlpackDevice, |object, _call| {
        let device = export(object.as_borrowed())?.0.device();
        (device.kind.0, device.id).into_pyobject(object.py())?
    };
    /// `__array__`.
    Array, |object, call| {
        let tensor = TensorObject::made(object.py(), on_host(object)?)?;
        tensor.call_method("__array__", call.positional()?, Some(&call.named()?))?
    };
    /// `__arrow_c_array__`. A schema that is requested is a wish.
    #[cfg(feature = "columns")]
    ArrowCArray, |object, _call| {
        arrow::capsules(object.py(), on_host(object)?)?.into_pyobject(object.py())?
    };
    /// `__reduce_ex__`.
    Reduce, |object, call| {
        let py = object.py();
        let protocol: i64 = number(call.only()?)?;
        let (class, found) = (py.get_type::<T>(), object.as_any().get_type());
        if !found.is(&class) {
            return Err(other_class(&class, &found));
        }
        let rebuild = class.getattr(UNPICKLE.to_string_lossy())?;
        let state = TensorObject::new(on_host(object)?).state(py, protocol)?;
        (rebuild, state).into_pyobject(py)?
    };
    /// `__buffer__(flags)` (PEP 688): a `memoryview` of the object itself.
    Buffer, |object, call| {
        BufferRequest(number(call.only()?)?).check(&on_host(object)?)?;
        PyMemoryView::from(object.as_any())?
    };
    /// The same of a class whose buffer functions call it: a `memoryview` of a `dlbridge.Tensor`.
    ForwardedBuffer, |object, call| {
        let tensor = on_host(object)?;
        BufferRequest(number(call.only()?)?).check(&tensor)?;
        PyMemoryView::from(&TensorObject::made(object.py(), tensor)?.into_any())?
    };
}

/// Writes the block of methods of a class that implements [`ExportDlpack`](crate::ExportDlpack) and has
/// no other methods. A class with methods calls [`dlpack_class`](crate::dlpack_class) in its own block.
///
/// ```
/// # use dlbridge::Tensor;
/// # use dlbridge_pyo3::{ExportDlpack, Result, dlpack_methods};
/// # use pyo3::prelude::*;
/// #[pyclass(frozen)]
/// struct Zeros;
///
/// impl ExportDlpack for Zeros {
///     fn tensor(&self) -> Result<Tensor> {
///         Ok(Tensor::from(vec![0_u8; 3]))
///     }
/// }
///
/// dlpack_methods!(Zeros);
/// # Python::initialize();
/// # Python::attach(|py| -> Result<()> {
/// # let zeros = Bound::new(py, Zeros)?;
/// # assert_eq!(zeros.extract::<dlbridge_pyo3::PyTensor>()?.view::<u8>()?.to_vec(), [0, 0, 0]);
/// # Ok(()) }).unwrap();
/// ```
///
/// It requires the dependency `pyo3` under that name.
#[macro_export]
macro_rules! dlpack_methods {
    ($class:ty $(,)?) => {
        #[::pyo3::pymethods]
        impl $class {
            /// The C exchange API of this type.
            #[classattr]
            fn __dlpack_c_exchange_api__(
                py: ::pyo3::Python<'_>,
            ) -> ::pyo3::PyResult<::pyo3::Py<::pyo3::PyAny>> {
                $crate::dlpack_class::<Self>(py)
            }
        }
    };
}
