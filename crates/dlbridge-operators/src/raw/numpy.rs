//! NumPy's universal functions: makes one of an operator by the C API of the NumPy that is installed.
//! Invariant: no panic leaves a loop; its error is raised when the loop has returned to NumPy.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_long, c_void};
use std::ptr;

use dlbridge::DType;
use dlbridge::ffi::Dims;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::attach::attach;
use super::lanes::{Lane, apart, copied};
use super::operand::contiguous;
use super::walk::Walk;
use crate::call::{guarded, parameters};
use crate::operator::{Kind, Parameter, Scalar};
use crate::signature::{Axis, Signature};
use crate::{Failure, Instance, Operator};

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
    let signature = O::parsed().get(O::SIGNATURE).map_err(failed)?;
    let all = parameters::<O>();
    if all.iter().any(|one| matches!(one.kind, Kind::Optional(_) | Kind::InPlace(_))) {
        return Err(failed(Failure::new(format!(
            "{}: a universal function of NumPy has neither optional arguments nor arguments in place",
            O::NAME
        ))));
    }
    let (mut types, mut data) = (Vec::new(), Vec::new());
    for instance in O::INSTANCES {
        let number = |one: &Parameter| {
            let dtype = dtype(one);
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
    let (name, doc) = (text(O::NAME)?, text(O::DOC.trim())?);
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
    let module = py
        .import("numpy._core._multiarray_umath")
        .or_else(|_| py.import("numpy.core._multiarray_umath"))?;
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
    let is_scalar = |one: &&Parameter| !one.kind.is_tensor() && one.output().is_none();
    let scalars = parameters.iter().filter(is_scalar).map(|_| "()".to_owned());
    let inputs: Vec<_> = signature.inputs.iter().map(one).chain(scalars).collect();
    let outputs: Vec<_> = signature.outputs.iter().map(one).collect();
    format!("{}->{}", inputs.join(","), outputs.join(","))
}

fn dtype(parameter: &Parameter) -> DType {
    match parameter.kind {
        Kind::Input(dtype) | Kind::Optional(dtype) | Kind::InPlace(dtype) => dtype,
        Kind::Output(dtype) => dtype,
        Kind::Float => DType::F64,
        Kind::Int => DType::I64,
        Kind::Bool => DType::BOOL,
    }
}

/// How a scalar is read; `None` for a tensor.
fn reader(kind: Kind) -> Option<unsafe fn(*const c_void) -> Scalar> {
    match kind {
        // SAFETY: a value of this dtype (the duty of `Walk::add_scalars`).
        Kind::Float => Some(|at| Scalar::Float(unsafe { at.cast::<f64>().read_unaligned() })),
        // SAFETY: the same.
        Kind::Int => Some(|at| Scalar::Int(unsafe { at.cast::<i64>().read_unaligned() })),
        // SAFETY: the same.
        Kind::Bool => Some(|at| Scalar::Bool(unsafe { at.cast::<u8>().read() } != 0)),
        _ => None,
    }
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
    let result = guarded::<O>(|| {
        let signature = O::parsed().get(O::SIGNATURE)?;
        // SAFETY: the instance that `ufunc` gave NumPy with this loop, a static (F5).
        let instance = unsafe { &*instance.cast::<Instance>() };
        let parameters = instance.parameters;
        let cores: usize = signature.operands().map(Vec::len).sum();
        // SAFETY: the number of calls, then the extent of each axis (F5).
        let dimensions =
            unsafe { std::slice::from_raw_parts(dimensions, 1 + signature.axes.len()) };
        // SAFETY: the step of each argument, then the stride of each core axis (F5).
        let steps = unsafe { std::slice::from_raw_parts(steps, parameters.len() + cores) };
        // SAFETY: the address of each argument (F5).
        let arguments = unsafe { std::slice::from_raw_parts(arguments, parameters.len()) };
        let lane = |((parameter, &data), &step): ((&Parameter, &*mut c_void), &isize)| Lane {
            data: data.cast(),
            step,
            itemsize: dtype(parameter).itemsize().unwrap_or(0),
            is_written: parameter.output().is_some(),
        };
        let lanes: Vec<_> = parameters.iter().zip(arguments).zip(steps).map(lane).collect();
        if !signature.axes.is_empty() {
            return call(instance, signature, &lanes, dimensions, &steps[parameters.len()..]);
        }
        // SAFETY: NumPy's arrays; each argument has this many elements (T13).
        unsafe {
            apart(&lanes, dimensions[0], &|lanes, count| {
                call(instance, signature, lanes, &[count], &[])
            })
        }
    });
    if let Err(error) = result {
        FAILED.set(true);
        attach(|py| PyValueError::new_err(error.to_string()).restore(py));
    }
}

/// Calls the function for each element of the lanes, or once for all where it sees whole arrays. `dimensions` are the
/// number of elements and the core extents, `core_strides` are in bytes.
fn call(
    instance: &Instance,
    signature: &Signature,
    lanes: &[Lane],
    dimensions: &[isize],
    mut core_strides: &[isize],
) -> Result<(), Failure> {
    let (count, extents) = (dimensions[0] as i64, &dimensions[1..]);
    let mut all = instance.parameters.iter().zip(lanes);
    let is_whole = signature.is_whole
        && all.all(|(one, lane)| reader(one.kind).is_none() || lane.step == 0 || count == 1);
    let leading = if is_whole { Dims::zeros(0) } else { Dims::from(&[count][..]) };
    Walk::with(leading, lanes.len(), |mut walk| {
        let mut cores = signature.operands();
        let mut copies = Vec::new();
        for (parameter, lane) in instance.parameters.iter().zip(lanes) {
            if let Some(read) = reader(parameter.kind) {
                // SAFETY: NumPy's array of this dtype (T13).
                unsafe { walk.add_scalars(lane.data, lane.step as i64, read) }?;
                continue;
            }
            let axes = cores.next().map_or(&[][..], Vec::as_slice);
            let (own, others) = core_strides.split_at(axes.len());
            core_strides = others;
            let rank = if is_whole { 1 } else { axes.len() };
            let (mut shape, mut strides) = (Dims::zeros(rank), Dims::zeros(rank));
            let (mut data, mut step) = (lane.data, lane.step);
            let is_result = |other: &Lane| other.is_written && other.data == data;
            if is_whole {
                (shape[0], strides[0], step) = (count, step as i64, 0);
            } else {
                for (at, (&axis, &stride)) in axes.iter().zip(own).enumerate() {
                    (shape[at], strides[at]) = (extents[axis] as i64, stride as i64);
                }
                if !axes.is_empty() && !lane.is_written && lanes.iter().any(is_result) {
                    // NumPy copies an argument that shares memory with a result, except where both are one array.
                    let all: Vec<_> = [count].into_iter().chain(shape.iter().copied()).collect();
                    let steps: Vec<_> = [step].into_iter().chain(own.iter().copied()).collect();
                    // SAFETY: NumPy's array (T13).
                    let copy = unsafe { copied(data, lane.itemsize, &all, &steps) };
                    data = copy.as_ptr().cast_mut().cast();
                    let mut steps = contiguous(&all);
                    steps.iter_mut().for_each(|step| *step *= lane.itemsize as i64);
                    step = steps[0] as isize;
                    strides.copy_from_slice(&steps[1..]);
                    copies.push(copy);
                }
            }
            // From bytes to elements.
            for (stride, &extent) in strides.iter_mut().zip(&*shape) {
                let itemsize = lane.itemsize.max(1) as i64;
                if *stride % itemsize != 0 && extent > 1 {
                    return Err(Failure::new(format!(
                        "{}: expected strides of whole elements, found {stride} bytes; use np.ascontiguousarray(x)",
                        parameter.name
                    )));
                }
                *stride /= itemsize;
            }
            let dtype = dtype(parameter);
            let steps = if is_whole { Dims::zeros(0) } else { Dims::from(&[step as i64][..]) };
            // SAFETY: NumPy's array of this dtype, with these extents and strides, or its copy; a result is written by
            // this loop alone (T10, T13).
            unsafe { walk.add_raw(data, dtype, shape, strides, steps, lane.is_written) }?;
        }
        walk.call(instance)
    })
}
