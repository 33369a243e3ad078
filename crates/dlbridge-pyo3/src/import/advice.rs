//! Errors for objects that cannot be imported, with the call that helps.
//! Invariant: the exception of a producer is replaced only by one that has it as its cause.

use dlbridge::protocol::table::no_memory;
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyCFunction, PyComplex, PyFloat, PyInt, PyIterator, PyString, PyType,
};
use pyo3::{Borrowed, intern};

use super::exchange;
use crate::error::{error_of, is_refusal, unless_refused};
use crate::interpreter::{Attributes, extents, is_sequence, module};
use crate::types::{framework_of, loaded, name_of};
use crate::{Error, Result};

/// The error for an object that has none of the protocols.
#[cold]
pub(super) fn no_array(object: Borrowed<'_, '_, PyAny>) -> Error {
    Error::unsupported(refused(object, ""))
}

/// The error for an object that is not imported, and `why`.
pub(super) fn refused(object: Borrowed<'_, '_, PyAny>, why: &str) -> PyErr {
    let found = match object.cast::<PyType>() {
        Ok(class) => format!("the class {}", name_of(&class)),
        Err(_) if object.is_none() => "None".to_owned(),
        Err(_) => match object.get_type().qualname() {
            Ok(found) => found.to_string(),
            Err(error) => return error,
        },
    };
    let help = match conversion(object) {
        Ok(help) => help,
        Err(error) => return error,
    };
    let message =
        format!("expected an array (NumPy, PyTorch, JAX, a buffer, ...), found {found}{why}{help}");
    error_of::<PyTypeError>(message)
}

/// The call that makes an array of an object.
fn conversion(object: Borrowed<'_, '_, PyAny>) -> PyResult<&'static str> {
    let py = object.py();
    let has = |name| object.hasattr(name);
    Ok(if object.is_none() {
        "; pass the array"
    } else if object.is_instance_of::<PyType>() {
        "; pass an array of this class"
    } else if object.is_instance_of::<PyString>() {
        "; pass its bytes, x.encode()"
    } else if name_of(&object.get_type()).ends_with(".PRNGKeyArray") {
        "; pass jax.random.key_data(x)"
    } else if has(intern!(py, "toarray"))? {
        "; pass x.toarray()"
    } else if has(intern!(py, "to_numpy"))? {
        "; pass x.to_numpy()"
    } else if has(intern!(py, "keys"))? {
        "; pass one of its values"
    } else if object.is_instance_of::<PyCFunction>() {
        "; pass what it returns, x()"
    } else if object.is_instance_of::<PyIterator>() {
        "; pass numpy.asarray(list(x))"
    } else if object.is_instance_of::<PyInt>()
        || object.is_instance_of::<PyFloat>()
        || object.is_instance_of::<PyComplex>()
        || is_sequence(object)
        || has(intern!(py, "__array__"))?
    {
        "; convert it with numpy.asarray(x)"
    } else {
        ""
    })
}

/// Rejects a NumPy scalar whose array NumPy rejects: its buffer describes some of them, such as dates,
/// as bytes.
#[cold]
pub(super) fn refuse_scalar(object: Borrowed<'_, '_, PyAny>) -> Result<()> {
    // Bytes of NumPy are bytes of Python.
    let is_numpy = || framework_of(&object.get_type()).map(|one| one.has_numpys_memory);
    if object.is_instance_of::<PyBytes>() || !is_numpy()? {
        return Ok(());
    }
    match problem_of_dtype(object)? {
        Some(problem) => Err(Error::dtype(problem)),
        None => Ok(()),
    }
}

/// Rejects an array of NumPy whose elements have no bytes: NumPy's own `__dlpack__` divides by their size, which ends the
/// process.
#[cold]
pub(super) fn refuse_without_size(object: Borrowed<'_, '_, PyAny>) -> Result<()> {
    let py = object.py();
    let size = object.attribute(intern!(py, "itemsize"))?;
    if unless_refused(py, size.extract::<usize>())? != Some(0) {
        return Ok(());
    }
    Err(Error::dtype(without_size(&object.attribute(intern!(py, "dtype"))?)?))
}

fn without_size(dtype: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(format!(
        "dtype: expected elements of a byte or more, found {}, which has none",
        dtype.str()?
    ))
}

/// Rejects an array of `numpy.ma` with masked elements: a tensor has no mask. (`__dlpack__` of that
/// class ignores it.)
#[cold]
pub(super) fn refuse_mask(object: Borrowed<'_, '_, PyAny>) -> Result<()> {
    let py = object.py();
    let module = module(intern!(py, "numpy.ma"))?;
    let count: usize = module.call_method1(intern!(py, "count_masked"), (object,))?.extract()?;
    if count == 0 {
        return Ok(());
    }
    Err(Error::buffer(format!(
        "mask: expected an array without masked elements, found {count} of them; pass x.filled(value)"
    )))
}

/// Rejects a tensor of a class derived from PyTorch's whose memory does not hold its values, or that
/// has none, such as a fake one. (`__dlpack__` exports both.) An object that raises is left to
/// `__dlpack__`.
#[cold]
pub(super) fn refuse_without_values(object: Borrowed<'_, '_, PyAny>) -> Result<()> {
    let py = object.py();
    if let Some(Some(why)) = unless_refused(py, exchange::elsewhere(object))? {
        return Err(Error::buffer(why));
    }
    match unless_refused(py, has_memory(object))? {
        Some(false) => Err(Error::buffer(no_memory(&name_of(&object.get_type())))),
        Some(true) | None => Ok(()),
    }
}

/// Whether a PyTorch tensor has elements in memory, or none at all.
fn has_memory(object: Borrowed<'_, '_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    if object.call_method0(intern!(py, "numel"))?.extract::<usize>()? == 0 {
        return Ok(true);
    }
    let storage = object.call_method0(intern!(py, "untyped_storage"))?;
    // Asking a fake tensor for the address prints a warning.
    let device = storage.attribute(intern!(py, "device"))?.attribute(intern!(py, "type"))?;
    if device.eq("meta")? {
        return Ok(false);
    }
    match storage.call_method0(intern!(py, "data_ptr")) {
        Ok(address) => address.is_truthy(),
        // That of a wrapper must not be asked for.
        Err(error) if error.is_instance_of::<PyRuntimeError>(py) && is_refusal(py, &error) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The `BufferError` of NumPy, which names neither the dtype nor a call that helps, with both. That
/// of another producer is returned as it is.
#[cold]
pub(super) fn explained(object: Borrowed<'_, '_, PyAny>, exception: PyErr) -> Error {
    match framework_of(&object.get_type()) {
        Ok(framework) if framework.has_numpys_memory => {}
        Ok(_) => return traced(object, exception).into(),
        Err(error) => return error,
    }
    let (kind, problem): (fn(PyErr) -> Error, _) = match problem_of_dtype(object) {
        Ok(None) => (Error::from, problem_of_strides(object)),
        problem => (Error::unsupported, problem),
    };
    match problem {
        Ok(Some(problem)) => {
            let error = error_of::<PyBufferError>(problem);
            error.set_cause(object.py(), Some(exception));
            kind(error)
        }
        Err(error) if !is_refusal(object.py(), &error) => error.into(),
        _ => exception.into(),
    }
}

/// The exception of a producer, or one that names the call that helps: operators for an array without elements that JAX or
/// PyTorch traces, the parts of a nested tensor of PyTorch, which has no shape.
#[cold]
pub(super) fn traced(object: Borrowed<'_, '_, PyAny>, exception: PyErr) -> PyErr {
    let py = object.py();
    let nested = object.attribute_opt(intern!(py, "is_nested"));
    if let Ok(Some(true)) = nested.map(|it| it.map(|it| it.is(&*PyBool::new(py, true)))) {
        let error = error_of::<PyBufferError>(
            "expected a tensor of one shape, found a nested one; pass x.to_padded_tensor(0), or each of x.unbind()",
        );
        error.set_cause(py, Some(exception));
        return error;
    }
    match tracer(object) {
        Ok(Some(tracer)) => {
            let error = error_of::<PyTypeError>(format!(
                "expected an array with elements, found one that {tracer} traces; make the function an operator \
                 with the crate dlbridge-operators"
            ));
            error.set_cause(py, Some(exception));
            error
        }
        Err(error) if !is_refusal(py, &error) => error,
        _ => exception,
    }
}

/// The functions that trace an array, if it has no elements for that reason.
fn tracer(object: Borrowed<'_, '_, PyAny>) -> PyResult<Option<&'static str>> {
    let py = object.py();
    if let Some(core) = loaded(intern!(py, "jax.core"))? {
        if object.is_instance(&core.attribute(intern!(py, "Tracer"))?)? {
            return Ok(Some("jax.jit, vmap or grad"));
        }
    }
    if let Some(functorch) = loaded(intern!(py, "torch._C._functorch"))? {
        let is_wrapped = intern!(py, "is_functorch_wrapped_tensor");
        if functorch.call_method1(is_wrapped, (object,))?.is_truthy()? {
            return Ok(Some("torch.vmap or torch.func"));
        }
    }
    Ok(None)
}

/// What is wrong with the dtype of a NumPy array or scalar.
fn problem_of_dtype(object: Borrowed<'_, '_, PyAny>) -> PyResult<Option<String>> {
    let py = object.py();
    let Some(dtype) = object.attribute_opt(intern!(py, "dtype"))? else { return Ok(None) };
    let Some(kind) = dtype.attribute_opt(intern!(py, "kind"))? else { return Ok(None) };
    let kind: char = kind.extract()?;
    let is_native: bool = dtype.attribute(intern!(py, "isnative"))?.extract()?;
    let itemsize: usize = dtype.attribute(intern!(py, "itemsize"))?.extract()?;
    if itemsize == 0 {
        return without_size(&dtype).map(Some);
    }
    let names = dtype.attribute(intern!(py, "names"))?;
    let (expected, help) = match kind {
        'b' | 'i' | 'u' | 'f' | 'c' if !is_native => {
            let name = dtype.attribute(intern!(py, "name"))?;
            ("native byte order", format!("x.astype(\"{name}\")"))
        }
        'f' if itemsize > 8 => ("IEEE floats", "x.astype(\"float64\")".to_owned()),
        'c' if itemsize > 16 => ("IEEE floats", "x.astype(\"complex128\")".to_owned()),
        'b' | 'i' | 'u' | 'f' | 'c' => return Ok(None),
        'M' | 'm' => ("numbers", "x.view(\"int64\")".to_owned()),
        'V' if !names.is_none() => {
            ("numbers", format!("one field, x[{}]", names.get_item(0)?.repr()?))
        }
        'V' if dtype.str()?.to_str()?.starts_with("|V") => {
            ("numbers", "x.view(\"uint8\")".to_owned())
        }
        // Numbers of another package, such as ml_dtypes.
        'V' => ("numbers of NumPy's own", "x.astype(\"float32\")".to_owned()),
        'S' => (
            "numbers",
            "x.view(\"uint8\"), its bytes, or x.astype(\"float64\") of digits".to_owned(),
        ),
        'U' => (
            "numbers",
            "x.view(\"uint32\"), its characters, or x.astype(\"float64\") of digits".to_owned(),
        ),
        _ => ("numbers", "x.astype(\"float64\")".to_owned()),
    };
    Ok(Some(format!("dtype: expected {expected}, found {}; pass {help}", dtype.str()?)))
}

/// What is wrong with the strides of a NumPy array.
fn problem_of_strides(object: Borrowed<'_, '_, PyAny>) -> PyResult<Option<String>> {
    let py = object.py();
    let itemsize: i64 = object.attribute(intern!(py, "itemsize"))?.extract()?;
    let strides = object.attribute(intern!(py, "strides"))?;
    let Some(strides) = extents(strides.as_borrowed()) else { return Ok(None) };
    let strides = strides?;
    let uneven = strides.iter().position(|stride| stride % itemsize.max(1) != 0);
    Ok(uneven.map(|axis| {
        format!(
            "strides: axis {axis}: expected a multiple of {itemsize} bytes, the size of an element, \
             found {}; pass np.ascontiguousarray(x)",
            strides[axis]
        )
    }))
}
