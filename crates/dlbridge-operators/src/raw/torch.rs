//! PyTorch's stable C shim: registers an operator and its CPU kernel, found in the library that is loaded.
//! Invariant: no Rust panic leaves a kernel; PyTorch's exception is raised when nothing is left to drop but a text.

pub(crate) mod cuda;

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use dlbridge::ffi::{Dims, catch};
use dlbridge::{DType, Device};
use libloading::Library;

use super::autograd::{self, Known};
use super::operand::{Operand, Slot, contiguous};
use crate::call::{Plan, parameters};
use crate::operator::{Kind, Scalar};
use crate::{Failure, Operator};

pub(super) type Code = i32;
pub(super) type Handle = *mut c_void;
pub(super) type Kernel = unsafe extern "C-unwind" fn(*mut u64, u64, u64);

macro_rules! shim {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the shim, by name (F5).
        #[derive(Debug)]
        pub(super) struct Shim {
            /// PyTorch's library, which stays open until the process ends.
            pub(super) library: Library,
            $($name: unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?,)*
            /// From PyTorch 2.13 on.
            torch_delete_stable_ivalue: Option<unsafe extern "C-unwind" fn(*mut u64) -> Code>,
        }

        impl Shim {
            /// # Safety
            ///
            /// The library is PyTorch's, which exports these functions with these types (F5).
            unsafe fn load(library: Library) -> Result<Self, Failure> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the caller's duty.
                        let found = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) };
                        *found.map_err(|_| Failure::new(concat!(
                            "expected PyTorch 2.10 or newer, found one without ", stringify!($name)
                        )))?
                    },)*
                    // SAFETY: as above.
                    torch_delete_stable_ivalue: unsafe { library.get(b"torch_delete_stable_ivalue\0") }
                        .ok().map(|found| *found),
                    library,
                })
            }
        }
    };
}

shim! {
    aoti_torch_abi_version() -> u64;
    aoti_torch_library_init_fragment(*const c_char, *const c_char, u32, *mut Handle) -> Code;
    aoti_torch_library_init_impl(*const c_char, *const c_char, *const c_char, u32, *mut Handle) -> Code;
    aoti_torch_library_def(Handle, *const c_char) -> Code;
    torch_library_impl(Handle, *const c_char, Kernel, u64) -> Code;
    aoti_torch_get_dim(Handle, *mut i64) -> Code;
    aoti_torch_get_sizes(Handle, *mut *const i64) -> Code;
    aoti_torch_get_strides(Handle, *mut *const i64) -> Code;
    aoti_torch_get_dtype(Handle, *mut i32) -> Code;
    aoti_torch_get_device_type(Handle, *mut i32) -> Code;
    aoti_torch_get_device_index(Handle, *mut i32) -> Code;
    aoti_torch_create_device_guard(i32, *mut Handle) -> Code;
    aoti_torch_delete_device_guard(Handle) -> Code;
    torch_get_const_data_ptr(Handle, *mut *const c_void) -> Code;
    torch_get_mutable_data_ptr(Handle, *mut *mut c_void) -> Code;
    aoti_torch_empty_strided(i64, *const i64, *const i64, i32, i32, i32, *mut Handle) -> Code;
    aoti_torch_delete_tensor_object(Handle) -> Code;
    aoti_torch_check(bool, *const c_char, *const c_char, u32, *const c_char);
}

/// PyTorch's code of the CPU.
const CPU: i32 = 0;

static SHIM: OnceLock<Shim> = OnceLock::new();

/// PyTorch's codes of dtypes.
const DTYPES: [(i32, DType); 12] = [
    (0, DType::U8),
    (1, DType::I8),
    (2, DType::I16),
    (3, DType::I32),
    (4, DType::I64),
    (5, DType::F16),
    (6, DType::F32),
    (7, DType::F64),
    (9, DType::COMPLEX64),
    (10, DType::COMPLEX128),
    (11, DType::BOOL),
    (15, DType::BF16),
];

/// Finds the functions in PyTorch's library, whose path this is.
///
/// # Errors
///
/// If PyTorch is too old for this operator.
pub(crate) fn load<O: Operator>(library: &Path) -> Result<(), Failure> {
    let shim = match SHIM.get() {
        Some(shim) => shim,
        None => find(library)?,
    };
    let mut parameters = parameters::<O>().iter();
    if shim.torch_delete_stable_ivalue.is_none() && parameters.any(|one| one.kind.is_optional()) {
        return Err(Failure::new("expected PyTorch 2.13 or newer, for an optional tensor"));
    }
    Ok(())
}

fn find(library: &Path) -> Result<&'static Shim, Failure> {
    // SAFETY: loaded by PyTorch already, so that no initialiser runs (F5).
    let opened = unsafe { Library::new(library) };
    let opened = opened.map_err(|error| Failure::new(format!("PyTorch's library: {error}")))?;
    // SAFETY: PyTorch's library (F5).
    let loaded = unsafe { Shim::load(opened) }?;
    Ok(SHIM.get_or_init(|| loaded))
}

/// Registers an operator with the PyTorch that was [loaded](load). Returns whether its autograd needs no Python for
/// tensors without gradients: see [`autograd`].
pub(crate) fn register<O: Operator>(
    namespace: &str,
    known: Option<&Known<'_>>,
) -> Result<bool, Failure> {
    let shim = SHIM.get().ok_or_else(|| Failure::new("PyTorch is not loaded"))?;
    let (space, schema) = (text(namespace)?, text(&schema::<O>())?);
    let (mut fragment, file) = (ptr::null_mut(), c"dlbridge".as_ptr());
    // SAFETY: static and live texts, and a place to write to (F2, F5).
    let code =
        unsafe { (shim.aoti_torch_library_init_fragment)(space.as_ptr(), file, 1, &mut fragment) };
    if code != 0 {
        return Err(rejected::<O>(namespace, "the namespace"));
    }
    // SAFETY: a library made just now, and a live text (F2, F5).
    if unsafe { (shim.aoti_torch_library_def)(fragment, schema.as_ptr()) } != 0 {
        return Err(rejected::<O>(namespace, "the operator: another one may have this name"));
    }
    shim.add_kernel::<O>(namespace, c"CPU", kernel::<O, false>)?;
    shim.add_kernel::<O>(namespace, c"CUDA", kernel::<O, true>)?;
    autograd::register::<O>(shim, known, namespace)
}

fn text(text: &str) -> Result<CString, Failure> {
    CString::new(text).map_err(|_| Failure::new("expected a name without NUL"))
}

fn rejected<O: Operator>(namespace: &str, what: &str) -> Failure {
    Failure::new(format!("{namespace}::{}: PyTorch rejects {what}", O::NAME))
}

/// Such as `scale(Tensor x, float factor) -> Tensor`.
fn schema<O: Operator>() -> String {
    let (mut arguments, mut results) = (Vec::new(), 0);
    for parameter in parameters::<O>() {
        let kind = match parameter.kind {
            Kind::Input(_) => "Tensor".to_owned(),
            Kind::Optional(_) => "Tensor?".to_owned(),
            // Each in place has an alias set of its own, named by a letter.
            Kind::InPlace(_) => format!("Tensor(a{}!)", arguments.len()),
            Kind::Float => "float".to_owned(),
            Kind::Int => "int".to_owned(),
            Kind::Bool => "bool".to_owned(),
            Kind::Output(_) => {
                results += 1;
                continue;
            }
        };
        arguments.push(format!("{kind} {}", parameter.name));
    }
    let results = match results {
        1 => "Tensor".to_owned(),
        _ => format!("({})", vec!["Tensor"; results].join(", ")),
    };
    format!("{}({}) -> {results}", O::NAME, arguments.join(", "))
}

/// The kernel for the CPU, or for CUDA. On the stack are the arguments, a tensor as a handle that is owned; the results take their place.
unsafe extern "C-unwind" fn kernel<O: Operator, const CUDA: bool>(
    stack: *mut u64,
    inputs: u64,
    outputs: u64,
) {
    let Some(shim) = SHIM.get() else { return };
    // SAFETY: PyTorch's stack has room for all arguments and results (F5).
    let stack = unsafe { std::slice::from_raw_parts_mut(stack, inputs.max(outputs) as usize) };
    let result = catch(|| shim.call::<O, CUDA>(stack));
    let result = result.unwrap_or_else(|panic| Err(Failure::new(panic.words())));
    if let Err(error) = result {
        let message = CString::new(error.to_string().replace('\0', " ")).unwrap_or_default();
        raise(shim, &message);
    }
}

/// Throws PyTorch's exception, which passes through the frames of a kernel: "C-unwind".
pub(super) fn raise(shim: &Shim, message: &CStr) {
    let (name, file) = (c"dlbridge".as_ptr(), c"operator".as_ptr());
    // SAFETY: live texts (F2).
    unsafe { (shim.aoti_torch_check)(false, name, file, 0, message.as_ptr()) };
}

pub(super) fn handle(word: u64) -> Handle {
    ptr::with_exposed_provenance_mut(word as usize)
}

/// A tensor handle that is owned.
pub(super) struct Owned<'s>(pub(super) &'s Shim, pub(super) Handle);

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: owned, and deleted once (R7).
        let _ = unsafe { (self.0.aoti_torch_delete_tensor_object)(self.1) };
    }
}

impl Shim {
    /// The version of the loaded PyTorch, for which kernels are written.
    pub(super) fn version(&self) -> u64 {
        // SAFETY: may be called at any time (F5).
        unsafe { (self.aoti_torch_abi_version)() }
    }

    /// Adds a kernel for a dispatch key.
    pub(super) fn add_kernel<O: Operator>(
        &self,
        namespace: &str,
        key: &CStr,
        kernel: Kernel,
    ) -> Result<(), Failure> {
        let (space, name) = (text(namespace)?, text(O::NAME)?);
        let (mut kernels, file) = (ptr::null_mut(), c"dlbridge".as_ptr());
        // SAFETY: static and live texts, and a place to write to (F2, F5).
        let code = unsafe {
            (self.aoti_torch_library_init_impl)(space.as_ptr(), key.as_ptr(), file, 1, &mut kernels)
        };
        if code != 0 {
            return Err(rejected::<O>(namespace, "a library of kernels"));
        }
        // SAFETY: as above; the kernel has the type of this version (F5).
        let code =
            unsafe { (self.torch_library_impl)(kernels, name.as_ptr(), kernel, self.version()) };
        // The libraries are never deleted: that would remove the operator.
        if code == 0 { Ok(()) } else { Err(rejected::<O>(namespace, "the kernel")) }
    }

    fn call<O: Operator, const CUDA: bool>(&self, stack: &mut [u64]) -> Result<(), Failure> {
        let parameters = parameters::<O>();
        // Deleted when this function returns, after what reads them.
        let mut owned: Vec<Owned<'_>> = Vec::with_capacity(parameters.len());
        for (parameter, word) in parameters.iter().zip(stack.iter_mut()) {
            match parameter.kind {
                Kind::Optional(_) => owned.extend(self.optional(*word)),
                kind if kind.is_tensor() => owned.push(Owned(self, handle(*word))),
                _ => {}
            }
        }
        let place = if CUDA { Some(cuda::Place::of::<O>(self, &owned)?) } else { None };
        let device = place.as_ref().map_or(Device::CPU, |place| place.stream.device());
        let mut tensors = owned.iter();
        let mut arguments = Vec::with_capacity(parameters.len());
        for (parameter, &word) in parameters.iter().zip(stack.iter()) {
            let mut next = || tensors.next().ok_or_else(|| Failure::new("a tensor is missing"));
            arguments.push(match parameter.kind {
                Kind::Input(_) => Slot::Tensor(self.operand(next()?)?.on(device)),
                Kind::Optional(_) if word == 0 => Slot::Absent,
                Kind::Optional(_) => Slot::Tensor(self.operand(next()?)?.on(device)),
                Kind::InPlace(_) => Slot::Tensor(self.filled(next()?)?.on(device)),
                Kind::Float => Slot::Scalar(Scalar::Float(f64::from_bits(word))),
                Kind::Int => Slot::Scalar(Scalar::Int(word as i64)),
                Kind::Bool => Slot::Scalar(Scalar::Bool(word & 1 != 0)),
                Kind::Output(_) => break,
            });
        }
        let plan = Plan::new::<O>(&arguments)?;
        let results = plan.outputs().map(|(dtype, shape)| self.empty(dtype, &shape, device));
        let results = results.collect::<Result<Vec<_>, _>>()?;
        let outputs = results.iter().map(|tensor| Ok(self.filled(tensor)?.on(device)));
        let outputs = outputs.collect::<Result<_, Failure>>()?;
        match &place {
            None => plan.run::<O>(&arguments, outputs)?,
            Some(place) => plan.launch::<O>(&place.stream, &arguments, outputs)?,
        }
        for (place, result) in stack.iter_mut().zip(results) {
            *place = result.1.expose_provenance() as u64;
            // Now PyTorch's.
            std::mem::forget(result);
        }
        Ok(())
    }

    /// The tensor of an optional argument: null, or the address of a word that is deleted.
    fn optional(&self, word: u64) -> Option<Owned<'_>> {
        let place: *mut u64 = ptr::with_exposed_provenance_mut(word as usize);
        // SAFETY: null, or a word of PyTorch's (F5).
        let tensor = unsafe { place.as_ref() }.map(|word| Owned(self, handle(*word)));
        if let (Some(_), Some(delete)) = (&tensor, self.torch_delete_stable_ivalue) {
            // SAFETY: owned, and deleted once (R7).
            let _ = unsafe { delete(place) };
        }
        tensor
    }

    /// Describes a tensor, with the address of its elements.
    fn describe<'t>(
        &self,
        tensor: &'t Owned<'_>,
        address: impl FnOnce(Handle) -> Result<*mut c_void, Failure>,
    ) -> Result<Operand<'t>, Failure> {
        let handle = tensor.1;
        let (mut rank, mut dtype) = (0, 0);
        let (mut sizes, mut strides) = (ptr::null(), ptr::null());
        // SAFETY: a live tensor, and places to write to (F2, F5).
        check(unsafe { (self.aoti_torch_get_dim)(handle, &mut rank) })?;
        // SAFETY: the same.
        check(unsafe { (self.aoti_torch_get_sizes)(handle, &mut sizes) })?;
        // SAFETY: the same.
        check(unsafe { (self.aoti_torch_get_strides)(handle, &mut strides) })?;
        // SAFETY: the same.
        check(unsafe { (self.aoti_torch_get_dtype)(handle, &mut dtype) })?;
        let known = DTYPES.iter().find(|(code, _)| *code == dtype);
        let (_, dtype) = known.ok_or_else(|| {
            Failure::new(format!("expected a dtype with elements, found PyTorch's number {dtype}"))
        })?;
        let list = |numbers: *const i64| match rank {
            0 => Dims::zeros(0),
            // SAFETY: as many numbers as the tensor has axes (T2).
            _ => Dims::from(unsafe { std::slice::from_raw_parts(numbers, rank as usize) }),
        };
        let (shape, strides) = (list(sizes), list(strides));
        // SAFETY: a tensor's own description of its elements, which the handle keeps alive (T3, T13).
        Ok(unsafe { Operand::new(address(handle)?, *dtype, shape, Some(strides)) })
    }

    fn operand<'t>(&self, tensor: &'t Owned<'_>) -> Result<Operand<'t>, Failure> {
        self.describe(tensor, |handle| {
            let mut data = ptr::null();
            // SAFETY: a live tensor, and a place to write to (F2, F5).
            check(unsafe { (self.torch_get_const_data_ptr)(handle, &mut data) })?;
            Ok(data.cast_mut())
        })
    }

    fn filled<'t>(&self, tensor: &'t Owned<'_>) -> Result<Operand<'t>, Failure> {
        self.describe(tensor, |handle| {
            let mut data = ptr::null_mut();
            // SAFETY: a live tensor, and a place to write to (F2, F5).
            check(unsafe { (self.torch_get_mutable_data_ptr)(handle, &mut data) })?;
            Ok(data)
        })
    }

    /// A new contiguous tensor.
    fn empty(&self, dtype: DType, shape: &[i64], device: Device) -> Result<Owned<'_>, Failure> {
        let code = DTYPES.iter().find(|(_, known)| *known == dtype);
        let (code, _) =
            code.ok_or_else(|| Failure::new(format!("PyTorch has no tensors of {dtype}")))?;
        let strides = contiguous(shape);
        let (rank, mut made) = (shape.len() as i64, ptr::null_mut());
        let (sizes, steps) = (shape.as_ptr(), strides.as_ptr());
        let (kind, index) = if device == Device::CPU { (CPU, -1) } else { (cuda::CUDA, device.id) };
        // SAFETY: lists of `rank` numbers, and a place to write to (F2, F5).
        let made_it = check(unsafe {
            (self.aoti_torch_empty_strided)(rank, sizes, steps, *code, kind, index, &mut made)
        });
        made_it.map_err(|_| Failure::new(format!("PyTorch cannot allocate {dtype}{shape:?}")))?;
        Ok(Owned(self, made))
    }
}

fn check(code: Code) -> Result<(), Failure> {
    if code == 0 { Ok(()) } else { Err(Failure::new("a function of PyTorch's C shim failed")) }
}
