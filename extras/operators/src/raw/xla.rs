//! XLA's foreign function interface, for JAX: the handler of an operator. Nothing is linked: each call brings a
//! table of functions. Layouts are those of XLA's header, API 0.1; later minor versions only append.
//! Invariant: no panic leaves a handler.

mod cuda;
mod direct;

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

use dlbridge::{DType, Device};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::argument::operand::{Operand, Slot, Written};
use crate::call::Plan;
use crate::definition::{Checked, Operator, checked};
use crate::failure::catch;
use crate::kind::{Kind, Scalar};
use crate::{DeviceStream, Failure};

/// The version of XLA's interface that handlers ask for.
const API: (c_int, c_int) = (0, 1);
const METADATA: c_int = 1;
const EXECUTE: c_int = 3;
const INVALID_ARGUMENT: c_int = 3;
const SCALAR: c_int = 3;

#[repr(C)]
struct Extension {
    size: usize,
    kind: c_int,
    next: *mut Self,
}

#[repr(C)]
struct Version {
    size: usize,
    extension: *mut Extension,
    major: c_int,
    minor: c_int,
}

#[repr(C)]
struct Metadata {
    size: usize,
    version: Version,
    traits: u32,
}

#[repr(C)]
struct MetadataExtension {
    base: Extension,
    metadata: *mut Metadata,
}

#[repr(C)]
struct Buffer {
    size: usize,
    extension: *mut Extension,
    dtype: c_int,
    data: *mut c_void,
    rank: i64,
    dims: *const i64,
}

#[repr(C)]
struct List {
    size: usize,
    extension: *mut Extension,
    len: i64,
    kinds: *const c_int,
    values: *const *const Buffer,
}

#[repr(C)]
struct Text {
    data: *const u8,
    len: usize,
}

#[repr(C)]
struct Number {
    dtype: c_int,
    value: *const c_void,
}

#[repr(C)]
struct Attributes {
    size: usize,
    extension: *mut Extension,
    len: i64,
    kinds: *const c_int,
    names: *const *const Text,
    values: *const *const Number,
}

#[repr(C)]
struct ErrorCreate {
    size: usize,
    extension: *mut Extension,
    message: *const c_char,
    code: c_int,
}

#[repr(C)]
struct Api {
    size: usize,
    extension: *mut Extension,
    version: Version,
    internal: *const c_void,
    error_create: unsafe extern "C" fn(*mut ErrorCreate) -> *mut c_void,
    error_get_message: *const c_void,
    error_destroy: cuda::Destroy,
    handler_register: *const c_void,
    stream_get: cuda::StreamGet,
    more: [*const c_void; 12],
    device_ordinal_get: cuda::OrdinalGet,
}

#[repr(C)]
pub(crate) struct Frame {
    size: usize,
    extension: *mut Extension,
    api: *const Api,
    context: *mut c_void,
    stage: c_int,
    arguments: List,
    results: List,
    attributes: Attributes,
}

/// A handler's type.
pub(crate) type Handler = unsafe extern "C" fn(*mut Frame) -> *mut c_void;

/// The handler of an operator, for the CPU or for CUDA. XLA calls it on its own threads, without the GIL.
pub(crate) unsafe extern "C" fn handler<O: Operator, const CUDA: bool>(
    frame: *mut Frame,
) -> *mut c_void {
    // SAFETY: XLA's frame, alive during the call (F5).
    let frame = unsafe { &*frame };
    // SAFETY: null, or the first extension of the frame (F5).
    if let Some(METADATA) = unsafe { frame.extension.as_ref() }.map(|extension| extension.kind) {
        // SAFETY: an extension of this kind, which asks for the handler's version (F5).
        let metadata = unsafe { (*frame.extension.cast::<MetadataExtension>()).metadata };
        // SAFETY: XLA's struct to fill in (F5).
        let metadata = unsafe { &mut *metadata };
        (metadata.version.major, metadata.version.minor) = API;
        metadata.traits = 0;
        return ptr::null_mut();
    }
    if frame.stage != EXECUTE {
        return ptr::null_mut();
    }
    let result = catch(|| execute::<CUDA>(checked::<O>()?, frame));
    match result.unwrap_or_else(Err) {
        Ok(()) => ptr::null_mut(),
        Err(error) => {
            let message = CString::new(error.to_string().replace('\0', " ")).unwrap_or_default();
            let mut arguments = ErrorCreate {
                size: size_of::<ErrorCreate>(),
                extension: ptr::null_mut(),
                message: message.as_ptr(),
                code: INVALID_ARGUMENT,
            };
            // SAFETY: the frame's table of functions (F5).
            let create = unsafe { (*frame.api).error_create };
            // SAFETY: filled in above; XLA copies the text (F2).
            unsafe { create(&mut arguments) }
        }
    }
}

/// A capsule with the handler, as JAX registers it.
pub(crate) fn capsule<O: Operator, const CUDA: bool>(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let handler: Handler = handler::<O, CUDA>;
    // SAFETY: attached; a static name, an address that is not null, and no destructor (F1, F2).
    let made = unsafe {
        ffi::PyCapsule_New(handler as *mut c_void, c"xla._CUSTOM_CALL_TARGET".as_ptr(), None)
    };
    // SAFETY: a new reference or null (F3).
    unsafe { Bound::from_owned_ptr_or_err(py, made) }
}

/// How a caller makes a tensor of another dtype.
const CONVERT: &str = "{}.astype(jnp.{})";

fn execute<const CUDA: bool>(operator: &'static Checked, frame: &Frame) -> Result<(), Failure> {
    if let Some(done) = if CUDA { None } else { direct::call(operator, frame) } {
        return done;
    }
    let stream = if CUDA { Some(cuda::stream(operator, frame)?) } else { None };
    let device = stream.as_ref().map_or(Device::CPU, DeviceStream::device);
    let (mut inputs, mut outputs) =
        (operands(&frame.arguments, device), operands(&frame.results, device));
    let missing = || Failure::new("expected as many buffers as there are tensors");
    let mut slots = Vec::with_capacity(operator.parameters.len());
    for parameter in operator.parameters {
        slots.push(match parameter.kind {
            Kind::Input(_) => Slot::Read(inputs.next().ok_or_else(missing)??),
            Kind::Optional(_) => match scalar(&frame.attributes, parameter.name)? {
                Scalar::Bool(false) => Slot::Absent,
                _ => Slot::Read(inputs.next().ok_or_else(missing)??),
            },
            // XLA's arguments are constant. So the result has the new values, in the argument's memory if no
            // other code needs that.
            Kind::InPlace(_) => {
                let (from, to) = (inputs.next(), outputs.next());
                let (from, to) = (from.ok_or_else(missing)??, to.ok_or_else(missing)??);
                if CUDA {
                    cuda::check_aliased(&from, &to)?;
                } else {
                    // Before the copy, which would change the other argument.
                    if from.address() != to.address() {
                        check_own(&frame.arguments, to.address(), to.shape())?;
                    }
                    // SAFETY: a result's buffer, which no other argument has (T10).
                    unsafe { from.copy_to(&to) }?;
                }
                // SAFETY: the same; it has the values of the argument.
                Slot::Write(unsafe { Written::new(to) })
            }
            Kind::Float | Kind::Int | Kind::Bool => {
                Slot::Scalar(scalar(&frame.attributes, parameter.name)?)
            }
            Kind::Output(_) => break,
        });
    }
    let results = operator.signature.outputs.len() + slots.iter().filter(is_written).count();
    if inputs.next().is_some() || frame.results.len != results as i64 {
        return Err(missing());
    }
    let plan = Plan::new(operator, slots, CONVERT)?;
    let outputs = outputs.map(|operand| {
        let operand = operand?;
        check_own(&frame.arguments, operand.address(), operand.shape())?;
        // SAFETY: the buffer of a result, which XLA made for this call (T10).
        unsafe { Written::zeroed(operand) }
    });
    match &stream {
        None => plan.run(outputs),
        Some(stream) => plan.launch(stream, outputs, &mut cuda::NoCopies),
    }
}

/// Rejects a result in the memory of an argument. A call that declares other aliases than ours makes one buffer of both.
fn check_own(arguments: &List, address: usize, shape: &[i64]) -> Result<(), Failure> {
    let is_there = |buffer: &Buffer| buffer.data.addr() == address && !buffer.shape().contains(&0);
    if shape.contains(&0) || !buffers(arguments).any(is_there) {
        return Ok(());
    }
    Err(Failure::new("expected a result with memory of its own"))
}

fn buffers(list: &List) -> impl Iterator<Item = &Buffer> {
    (0..list.len).map(|at| {
        // SAFETY: one of the list's buffers (F5).
        let buffer = unsafe { *list.values.wrapping_add(at as usize) };
        // SAFETY: alive during the call (F5).
        unsafe { &*buffer }
    })
}

/// The dtype of XLA's number.
fn dtype(code: c_int) -> Option<DType> {
    Some(match code {
        1 => DType::BOOL,
        2 => DType::I8,
        3 => DType::I16,
        4 => DType::I32,
        5 => DType::I64,
        6 => DType::U8,
        7 => DType::U16,
        8 => DType::U32,
        9 => DType::U64,
        10 => DType::F16,
        11 => DType::F32,
        12 => DType::F64,
        15 => DType::COMPLEX64,
        16 => DType::BF16,
        18 => DType::COMPLEX128,
        _ => return None,
    })
}

impl Buffer {
    fn shape(&self) -> &[i64] {
        match self.rank {
            0 => &[],
            // SAFETY: as many numbers as the buffer has axes (T2).
            rank => unsafe { std::slice::from_raw_parts(self.dims, rank as usize) },
        }
    }
}

fn is_written(slot: &&Slot<'_>) -> bool {
    matches!(slot, Slot::Write(_))
}

/// The buffers of a list: contiguous, row-major.
fn operands(list: &List, device: Device) -> impl Iterator<Item = Result<Operand<'_>, Failure>> {
    buffers(list).map(move |buffer| {
        let dtype = dtype(buffer.dtype).ok_or_else(|| {
            Failure::new(format!(
                "expected a dtype with elements, found XLA's number {}",
                buffer.dtype
            ))
        })?;
        // SAFETY: XLA's buffers are dense; a result's is written by this handler alone (T10, T13).
        let operand = unsafe { Operand::new(buffer.data, dtype, buffer.shape(), None) };
        Ok(operand.on(device))
    })
}

/// The attribute of a name.
fn scalar(attributes: &Attributes, wanted: &str) -> Result<Scalar, Failure> {
    let (kind, value) = number(attributes, wanted)?;
    Ok(match kind {
        // SAFETY: a float64 (F5).
        Kind::Float => Scalar::Float(unsafe { *value.cast::<f64>() }),
        // SAFETY: an int64 (F5).
        Kind::Int => Scalar::Int(unsafe { *value.cast::<i64>() }),
        // SAFETY: a bool, which C++ stores as 0 or 1 (F5).
        _ => Scalar::Bool(unsafe { *value.cast::<u8>() } != 0),
    })
}

/// The kind and the address of the attribute of a name.
fn number(attributes: &Attributes, wanted: &str) -> Result<(Kind, *const c_void), Failure> {
    for at in 0..attributes.len as usize {
        // SAFETY: one of as many names (F5).
        let name = unsafe { *attributes.names.wrapping_add(at) };
        // SAFETY: alive during the call (F5).
        let name = unsafe { &*name };
        // SAFETY: a text of this length (F5).
        let name = unsafe { std::slice::from_raw_parts(name.data, name.len) };
        // SAFETY: one of as many kinds (F5).
        let kind = unsafe { *attributes.kinds.wrapping_add(at) };
        if name != wanted.as_bytes() || kind != SCALAR {
            continue;
        }
        // SAFETY: one of as many attributes (F5).
        let number = unsafe { *attributes.values.wrapping_add(at) };
        // SAFETY: of this kind, alive during the call (F5).
        let number = unsafe { &*number };
        let kind = match number.dtype {
            1 => Kind::Bool,
            5 => Kind::Int,
            12 => Kind::Float,
            _ => continue,
        };
        return Ok((kind, number.value));
    }
    Err(Failure::new(format!("expected an attribute {wanted}, found none")))
}
