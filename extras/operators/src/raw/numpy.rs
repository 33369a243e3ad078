//! NumPy's universal functions: makes one of an operator by the C API of the NumPy that is installed.
//! Invariant: no panic leaves a loop; its error is raised when the loop has returned to NumPy.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_long, c_void};
use std::ptr;

use dlbridge::DType;
use dlbridge_pyo3::attach;
use pyo3::exceptions::{PyModuleNotFoundError, PyTypeError, PyValueError};
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::lanes::{Lane, apart, copied, zero};
use crate::Failure;
use crate::argument::rows::Rows;
use crate::argument::{Instance, Parameter};
use crate::call::guarded;
use crate::definition::{Checked, Operator, checked};
use crate::few::{Few, make_contiguous};
use crate::kind::Kind;
use crate::signature::{Axis, Signature};

/// A loop: the arguments, the extents, the strides in bytes, and the instance.
type Loop = unsafe extern "C" fn(*mut *mut c_void, *const isize, *const isize, *mut c_void);

/// `PyUFunc_FromFuncAndDataAndSignature`.
type Make = unsafe extern "C" fn(
    *mut Loop,
    *const *mut c_void,
    *const c_char,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_char,
    *const c_char,
    c_int,
    *const c_char,
) -> *mut PyObject;

/// The entry of `Make` in the table of `numpy/__ufunc_api.h`.
const MAKE: usize = 31;
/// So many extents and strides need no heap.
const FEW: usize = 32;
/// `PyUFunc_None`: no identity, so that a reduction needs an element.
const NO_IDENTITY: c_int = -1;

/// NumPy's numbers of dtypes.
const DTYPES: [(c_char, DType); 14] = [
    (0, DType::BOOL),
    (1, DType::I8),
    (2, DType::U8),
    (3, DType::I16),
    (4, DType::U16),
    (5, DType::I32),
    (6, DType::U32),
    // `NPY_LONG` and `NPY_ULONG`, or `NPY_LONGLONG` and `NPY_ULONGLONG`.
    (if size_of::<c_long>() == 8 { 7 } else { 9 }, DType::I64),
    (if size_of::<c_long>() == 8 { 8 } else { 10 }, DType::U64),
    (11, DType::F32),
    (12, DType::F64),
    (14, DType::COMPLEX64),
    (15, DType::COMPLEX128),
    (23, DType::F16),
];

/// The universal function of an operator, with one loop for each instance whose dtypes NumPy has.
pub(crate) fn ufunc<O: Operator>(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let failed = |error: Failure| PyTypeError::new_err(error.to_string());
    let operator = checked::<O>().map_err(failed)?;
    let (signature, all) = (&operator.signature, operator.parameters);
    if all.iter().any(|one| matches!(one.kind, Kind::Optional(_) | Kind::InPlace(_))) {
        return Err(failed(Failure::new(format!(
            "{}: a universal function of NumPy has neither optional arguments nor arguments in place",
            operator.name
        ))));
    }
    let (mut types, mut data) = (Vec::new(), Vec::new());
    for instance in operator.instances {
        let number = |one: &Parameter| {
            let dtype = one.kind.dtype();
            DTYPES.iter().find(|(_, known)| *known == dtype).map(|(number, _)| *number)
        };
        if let Some(numbers) = instance.parameters.iter().map(number).collect::<Option<Vec<_>>>() {
            types.extend(numbers);
            data.push(ptr::from_ref(instance).cast_mut().cast::<c_void>());
        }
    }
    let (count, outputs) = (data.len() as c_int, signature.outputs.len());
    let inputs = all.len() - outputs;
    let loops: Vec<Loop> = vec![inner::<O>; data.len()];
    let text =
        |text: &str| CString::new(text).map_err(|error| PyValueError::new_err(error.to_string()));
    let (name, doc) = (text(operator.name)?, text(O::DOC.trim())?);
    let written = if signature.is_whole { None } else { Some(text(&notation(signature, all))?) };
    let written_ptr = written.as_ref().map_or(ptr::null(), |written| written.as_ptr());
    let make = api(py)?;
    // The function keeps these lists, and NumPy never frees them.
    let (loops, data, types) = (loops.leak(), data.leak(), types.leak());
    // SAFETY: attached (F1); a loop and an instance for each row of dtypes, which live as long as the process, as
    // the texts do; NumPy copies the signature (F2, F5).
    let made = unsafe {
        make(
            loops.as_mut_ptr(),
            data.as_ptr(),
            types.as_ptr(),
            count,
            inputs as c_int,
            outputs as c_int,
            NO_IDENTITY,
            name.into_raw(),
            doc.into_raw(),
            0,
            written_ptr,
        )
    };
    // SAFETY: a new reference, or null with an exception set (F3).
    unsafe { Bound::from_owned_ptr_or_err(py, made) }
}

fn api(py: Python<'_>) -> PyResult<Make> {
    let module = match py.import("numpy._core._multiarray_umath") {
        // The name in NumPy 1.x.
        Err(error) if error.is_instance_of::<PyModuleNotFoundError>(py) => {
            py.import("numpy.core._multiarray_umath")?
        }
        module => module?,
    };
    let capsule = module.getattr("_UFUNC_API")?.cast_into::<PyCapsule>()?;
    let table = capsule.pointer_checked(None)?.cast::<Make>();
    // SAFETY: the table of NumPy's ufunc API, which is longer (F5).
    let entry = unsafe { table.add(MAKE) };
    // SAFETY: the entry of this function (F5).
    Ok(unsafe { entry.read() })
}

/// The signature as NumPy reads it: scalars are arguments without core axes.
fn notation(signature: &Signature, parameters: &[Parameter]) -> String {
    let name = |axis: &usize| match &signature.axes[*axis] {
        Axis::Named(name) => name.clone(),
        Axis::Fixed(extent) => extent.to_string(),
    };
    let one =
        |axes: &Vec<usize>| format!("({})", axes.iter().map(name).collect::<Vec<_>>().join(","));
    let is_scalar = |one: &&Parameter| one.kind.is_scalar();
    let scalars = parameters.iter().filter(is_scalar).map(|_| "()".to_owned());
    let inputs: Vec<_> = signature.inputs.iter().map(one).chain(scalars).collect();
    let outputs: Vec<_> = signature.outputs.iter().map(one).collect();
    format!("{}->{}", inputs.join(","), outputs.join(","))
}

thread_local! {
    /// Whether a loop on this thread failed: NumPy may go on with other parts of the same call.
    static FAILED: Cell<bool> = const { Cell::new(false) };
}

/// The loop of an instance. NumPy calls it, in general without the GIL.
unsafe extern "C" fn inner<O: Operator>(
    arguments: *mut *mut c_void,
    dimensions: *const isize,
    steps: *const isize,
    instance: *mut c_void,
) {
    if FAILED.get() && attach(PyErr::occurred) {
        return;
    }
    FAILED.set(false);
    let result = checked::<O>().and_then(|operator| {
        guarded(operator, || {
            // SAFETY: the instance that `ufunc` gave NumPy with this loop, a static (F5).
            let instance = unsafe { &*instance.cast::<Instance>() };
            let (signature, parameters) = (&operator.signature, instance.parameters);
            let count = parameters.len() + signature.core_axes;
            // SAFETY: the number of calls, then the extent of each axis (F5).
            let dimensions =
                unsafe { std::slice::from_raw_parts(dimensions, 1 + signature.axes.len()) };
            // SAFETY: the step of each argument, then the stride of each core axis (F5).
            let steps = unsafe { std::slice::from_raw_parts(steps, count) };
            // SAFETY: the address of each argument (F5).
            let arguments = unsafe { std::slice::from_raw_parts(arguments, parameters.len()) };
            let lane = |((parameter, &data), &step): ((&Parameter, &*mut c_void), &isize)| Lane {
                data,
                step,
                itemsize: parameter.kind.dtype().itemsize().unwrap_or(0),
                is_written: parameter.kind.output().is_some(),
            };
            let mut lanes = Few::<Lane, 8>::new();
            let all = parameters.iter().zip(arguments).zip(steps).map(lane);
            all.for_each(|lane| lanes.push(lane));
            let lanes = &lanes[..];
            if !signature.axes.is_empty() {
                let strides = &steps[parameters.len()..];
                // SAFETY: NumPy's arrays (T13).
                return unsafe { call(operator, instance, lanes, dimensions, strides) };
            }
            // SAFETY: the same arrays, or copies of them.
            let part =
                |lanes: &[Lane], count| unsafe { call(operator, instance, lanes, &[count], &[]) };
            // SAFETY: NumPy's arrays; each argument has this many elements (T13).
            unsafe { apart(lanes, dimensions[0], &part) }
        })
    });
    if let Err(error) = result {
        FAILED.set(true);
        attach(|py| PyValueError::new_err(error.to_string()).restore(py));
    }
}

/// Calls the function for each element of the lanes, or once for all where it sees whole arrays. `dimensions` are the
/// number of elements and the core extents, `core_strides` are in bytes.
///
/// # Safety
///
/// Each lane has these elements, of the parameter's dtype; no other code accesses those of one that is written.
unsafe fn call(
    operator: &Checked,
    instance: &Instance,
    lanes: &[Lane],
    dimensions: &[isize],
    mut core_strides: &[isize],
) -> Result<(), Failure> {
    let (count, extents) = (dimensions[0], &dimensions[1..]);
    let mut all = instance.parameters.iter().zip(lanes);
    let is_whole = operator.signature.is_whole
        && all.all(|(one, lane)| !one.kind.is_scalar() || lane.step == 0 || count == 1);
    let (leading, inner) = if is_whole { (&[][..], 0) } else { (&[count as i64][..], 1) };
    // For each tensor the number of calls and its extents, then its strides, which are those of the rows later on.
    let len = 2 * lanes.len() + 2 * core_strides.len();
    let (mut few, mut many) = ([0_i64; FEW], Vec::new());
    let mut lists = if len <= FEW {
        &mut few[..len]
    } else {
        many.resize(len, 0_i64);
        &mut many[..]
    };
    let mut rows = Rows::new(leading);
    let (mut cores, mut copies) = (operator.signature.operands(), Vec::new());
    for (parameter, lane) in instance.parameters.iter().zip(lanes) {
        let is_scalar = parameter.kind.is_scalar();
        let axes = if is_scalar { None } else { cores.next() };
        let axes = axes.map_or(&[][..], Vec::as_slice);
        let (own, others) = core_strides.split_at(axes.len());
        core_strides = others;
        let (shape, rest) = lists.split_at_mut(1 + axes.len());
        let (strides, rest) = rest.split_at_mut(1 + axes.len());
        lists = rest;
        (shape[0], strides[0]) = (count as i64, lane.step as i64);
        for (at, (&axis, &stride)) in axes.iter().zip(own).enumerate() {
            (shape[at + 1], strides[at + 1]) = (extents[axis] as i64, stride as i64);
        }
        let (mut data, itemsize) = (lane.data, lane.itemsize);
        if lane.is_written {
            // SAFETY: NumPy's array, which this loop alone accesses (T13); arguments in the same memory are copied.
            unsafe { zero(data, itemsize, shape, strides) };
        } else if lanes.iter().any(|other| other.is_written && other.data == data) {
            // NumPy copies an argument that shares memory with a result, except where both are one array.
            // SAFETY: NumPy's array (T13).
            let copy = unsafe { copied(data, itemsize, shape, strides) };
            data = copy.as_ptr().cast_mut().cast();
            make_contiguous(shape, strides, itemsize as i64);
            copies.push(copy);
        }
        let step = strides[0] as isize;
        if is_scalar {
            // SAFETY: NumPy's array of this dtype, or its copy (T13).
            unsafe { rows.add_scalars(data, step, parameter.kind) };
            continue;
        }
        let (shape, strides) = (&shape[inner..], &mut strides[inner..]);
        // From bytes to elements.
        let itemsize = itemsize.max(1) as i64;
        for (stride, &extent) in strides.iter_mut().zip(shape) {
            if *stride == itemsize {
                *stride = 1;
                continue;
            }
            if *stride % itemsize != 0 && extent > 1 {
                return Err(Failure::new(format!(
                    "{}: expected strides of whole elements, found {stride} bytes; use np.ascontiguousarray(x)",
                    parameter.name
                )));
            }
            *stride /= itemsize;
        }
        let dtype = parameter.kind.dtype();
        // SAFETY: NumPy's array of this dtype, with these extents and strides, or its copy; a result is written by
        // this loop alone (T10, T13).
        unsafe { rows.add_raw(data, dtype, (shape, strides), step, lane.is_written) }?;
    }
    (instance.call)(rows.walk())
}
