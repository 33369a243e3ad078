//! The methods that every class with DLPack gets: `dlpack_class`.
//! Their arguments belong to `call`, what a request permits to `answer`.
//! Invariant: a method of the class's own is kept.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::ptr;

use pyo3::PyClassInitializer;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi::{self, Py_ssize_t, PyMethodDefPointer, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyString, PyType};

use super::call::Call;
use super::traits::{ExportDlpack, PickleDlpack, export, on_host, permitted};
use super::{buffer_slots, pickle, table};
use crate::export::answer::answer;
use crate::export::arrow;
use crate::ffi::callbacks::{restore, with_object};
use crate::{Error, PyDType, TensorObject};

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
/// and types that have a struct format. A class that has one of them keeps its own.
///
/// # Errors
///
/// Those of Python, if the class cannot be changed.
pub fn dlpack_class<T: ExportDlpack>(py: Python<'_>) -> PyResult<Py<PyAny>> {
    // Class attributes are made when the class is, before there is an object of it.
    let kind = py.get_type::<T>();
    add_dlpack::<T>(py)?;
    for method in MethodsOf::<T>::OTHERS {
        add(&kind, method)?;
    }
    buffer_slots::install_for::<T>(py)?;
    Ok(table::capsule::<T>(py)?.unbind())
}

/// Does the same as [`dlpack_class`], and adds `__reduce_ex__`, with which objects of the class are pickled.
///
/// # Errors
///
/// Those of Python, if the class cannot be changed.
pub fn picklable_dlpack_class<T>(py: Python<'_>) -> PyResult<Py<PyAny>>
where
    T: PickleDlpack + Into<PyClassInitializer<T>>,
{
    let kind = py.get_type::<T>();
    add(&kind, const { &method(c"__reduce_ex__", c"For pickle.", reduce::<T>) })?;
    let unpickle = PyCFunction::new_closure(py, Some(UNPICKLE), None, |arguments, _| {
        let (_, data, dtype, shape, flags): (Class<'_>, Bound<'_, PyAny>, PyDType, Vec<i64>, u64) =
            arguments.extract()?;
        let tensor = pickle::rebuild(data.as_borrowed(), dtype.0, &shape, flags)?;
        Ok::<_, PyErr>(Bound::new(arguments.py(), restore::<T>(arguments.py(), tensor)?)?.unbind())
    })?;
    let classmethod = py.import("builtins")?.getattr("classmethod")?;
    kind.setattr(UNPICKLE.to_string_lossy(), classmethod.call1((unpickle,))?)?;
    dlpack_class::<T>(py)
}

/// The class method that makes an object from what a pickle keeps.
const UNPICKLE: &CStr = c"_unpickle";
type Class<'py> = Bound<'py, PyType>;

/// A method definition that threads share: it never changes.
pub(super) struct Method(pub(super) ffi::PyMethodDef);

// SAFETY: immutable (F6).
unsafe impl Sync for Method {}

impl Method {
    /// The method of a class, for its attribute.
    fn descriptor<'py>(&'static self, kind: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
        let definition = (&raw const self.0).cast_mut();
        // SAFETY: a type, and a static definition, which Python does not write to (F2).
        let method = unsafe { ffi::PyDescr_NewMethod(kind.as_type_ptr(), definition) };
        // SAFETY: a new reference, or null with an exception set (F3).
        unsafe { Bound::from_owned_ptr_or_err(kind.py(), method) }
    }
}

/// The methods of one class: an associated constant, since a `static` cannot be generic.
struct MethodsOf<T>(PhantomData<T>);

impl<T: ExportDlpack> MethodsOf<T> {
    const DLPACK: &'static Method = &method(
        c"__dlpack__",
        c"__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n\
          Return a capsule over the same memory.",
        dlpack::<T>,
    );
    const OTHERS: &'static [Method] = &[
        method(
            c"__dlpack_device__",
            c"__dlpack_device__($self, /)\n--\n\nReturn the device's type and index.",
            dlpack_device::<T>,
        ),
        method(
            c"__array__",
            c"__array__($self, /, dtype=None, copy=None)\n--\n\nFor NumPy's functions.",
            array::<T>,
        ),
        method(
            c"__arrow_c_array__",
            c"__arrow_c_array__($self, /, requested_schema=None)\n--\n\n\
              Return the capsules of Arrow's schema and array.",
            arrow_c_array::<T>,
        ),
    ];
}

/// Adds `__dlpack__` to a class.
pub(super) fn add_dlpack<T: ExportDlpack>(py: Python<'_>) -> PyResult<()> {
    add(&py.get_type::<T>(), MethodsOf::<T>::DLPACK)
}

/// A method with positional and named arguments.
const fn method(
    name: &'static CStr,
    doc: &'static CStr,
    function: ffi::PyCFunctionFastWithKeywords,
) -> Method {
    Method(ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: PyMethodDefPointer { PyCFunctionFastWithKeywords: function },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: doc.as_ptr(),
    })
}

/// Adds a method to a class that does not have one of this name.
pub(super) fn add(kind: &Bound<'_, PyType>, method: &'static Method) -> PyResult<()> {
    // SAFETY: a static text (F2).
    let name =
        PyString::new(kind.py(), &unsafe { CStr::from_ptr(method.0.ml_name) }.to_string_lossy());
    if kind.getattr("__dict__")?.contains(&name)? {
        return Ok(());
    }
    kind.setattr(name, method.descriptor(kind)?)
}

/// The error for an object of a derived class: its pickle would make one of the base class, without
/// the object's own attributes.
fn other_class(class: &Class<'_>, found: &Class<'_>) -> Error {
    Error::from(PyTypeError::new_err(format!(
        "expected an object of {class} to pickle, found one of {found}, which is derived from it: \
         define __reduce_ex__ there"
    )))
}

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident<$bound:ident>, |$object:ident, $call:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// Python's: attached, with the arguments of a method of this kind.
        unsafe extern "C" fn $name<T: $bound>(
            object: *mut PyObject,
            objects: *const *mut PyObject,
            count: Py_ssize_t,
            names: *mut PyObject,
        ) -> *mut PyObject {
            let work = |$object: &Bound<'_, T>| {
                // SAFETY: the caller's duty.
                let $call = unsafe { Call::new($object.py(), objects, count, names) };
                Ok($body.into_ptr())
            };
            // SAFETY: the caller's duty.
            unsafe { with_object(object, work) }.unwrap_or(ptr::null_mut())
        }
    )*};
}

methods! {
    /// `__dlpack__`.
    dlpack<ExportDlpack>, |object, call| {
        let (request, stream) = call.request()?;
        let (tensor, ready) = export(object.as_borrowed())?;
        let request = permitted(object, &tensor, request)?;
        answer(object.py(), request, stream, tensor, ready.as_deref())?
    };
    /// `__dlpack_device__`.
    dlpack_device<ExportDlpack>, |object, _call| {
        let device = export(object.as_borrowed())?.0.device();
        (device.kind.0, device.id).into_pyobject(object.py())?
    };
    /// `__array__`.
    array<ExportDlpack>, |object, call| {
        let tensor = TensorObject::new(on_host(object)?).into_bound(object.py())?;
        tensor.call_method("__array__", call.positional()?, Some(&call.named()?))?
    };
    /// `__arrow_c_array__`. A schema that is requested is a wish.
    arrow_c_array<ExportDlpack>, |object, _call| {
        arrow::capsules(object.py(), on_host(object)?)?.into_pyobject(object.py())?
    };
    /// `__reduce_ex__`.
    reduce<PickleDlpack>, |object, call| {
        let py = object.py();
        let (protocol,): (i64,) = call.positional()?.extract()?;
        let (class, found) = (py.get_type::<T>(), object.as_any().get_type());
        if !found.is(&class) {
            return Err(other_class(&class, &found));
        }
        let rebuild = class.getattr(UNPICKLE.to_string_lossy())?;
        let state = TensorObject::new(on_host(object)?).state(py, protocol)?;
        (rebuild, state).into_pyobject(py)?
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
/// The word `pickle` adds pickles to a class that implements
/// [`PickleDlpack`](crate::PickleDlpack): `dlpack_methods!(Zeros, pickle);`.
///
/// It requires the dependency `pyo3` under that name.
#[macro_export]
macro_rules! dlpack_methods {
    (@with $function:ident $class:ty) => {
        #[::pyo3::pymethods]
        impl $class {
            /// The C exchange API of this type.
            #[classattr]
            fn __dlpack_c_exchange_api__(
                py: ::pyo3::Python<'_>,
            ) -> ::pyo3::PyResult<::pyo3::Py<::pyo3::PyAny>> {
                $crate::$function::<Self>(py)
            }
        }
    };
    ($class:ty $(,)?) => {
        $crate::dlpack_methods!(@with dlpack_class $class);
    };
    ($class:ty, pickle $(,)?) => {
        $crate::dlpack_methods!(@with picklable_dlpack_class $class);
    };
}
