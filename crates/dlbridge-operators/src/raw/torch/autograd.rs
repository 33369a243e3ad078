//! PyTorch's autograd without Python, which its stable shim lacks: a call whose tensors need no gradient goes on to
//! the kernels below autograd, any other one to the operator that Python differentiates.
//! Invariant: the C++ functions are called only after they gave the right answers for known tensors and keys.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::OnceLock;

use pyo3::prelude::*;

use super::exception::{Keeping, Thrower};
use super::shim::{Code, Handle, Owned, Shim, handle, raise};
use crate::Failure;
use crate::argument::Parameter;
use crate::definition::{Checked, Operator, checked};
use crate::kind::Kind;

/// Room for C++'s object, which has 16 bytes.
#[repr(align(16))]
struct Room {
    _bytes: [u64; 8],
}

impl Room {
    fn new() -> Self {
        Self { _bytes: [0; 8] }
    }
}

type Dispatch = unsafe extern "C-unwind" fn(*const c_char, *const c_char, *mut u64, u64) -> Code;
type RequiresGrad = unsafe extern "C-unwind" fn(*const c_void) -> bool;
type Exclude = unsafe extern "C-unwind" fn(*mut Room, u64);
type Include = unsafe extern "C-unwind" fn(*mut Room);
type FromPython = unsafe extern "C-unwind" fn(*mut c_void, *mut Handle) -> Code;

/// The functions of the PyTorch that is loaded.
struct Autograd {
    shim: &'static Shim,
    torch_call_dispatcher: Dispatch,
    /// `torch_exception_get_what_without_backtrace`.
    what: unsafe extern "C-unwind" fn() -> *const c_char,
    aoti_torch_grad_mode_is_enabled: unsafe extern "C-unwind" fn() -> bool,
    /// `bool c10::TensorImpl::requires_grad() const`.
    requires_grad: RequiresGrad,
    /// `c10::impl::ExcludeDispatchKeyGuard`, its constructor and destructor.
    exclude: Exclude,
    include: Include,
    /// `bool torch::autograd::ForwardADLevel::has_any_level()`: whether tensors may have tangents.
    has_forward_level: Option<unsafe extern "C-unwind" fn() -> bool>,
    /// The bits of autograd's dispatch keys.
    keys: u64,
    thrower: Option<Thrower>,
}

static AUTOGRAD: OnceLock<Option<Autograd>> = OnceLock::new();

/// What is compared: a tensor that requires no grad, one that does, autograd's keys, and the function that returns
/// the keys that are excluded on this thread; and PyTorch's library for Python.
pub(crate) type Known<'py> =
    (Bound<'py, PyAny>, Bound<'py, PyAny>, u64, Bound<'py, PyAny>, Option<PathBuf>);

/// Registers the kernel, if this PyTorch has the functions, and the operator's namespace is its first one.
pub(super) fn register<O: Operator>(
    operator: &Checked,
    shim: &'static Shim,
    known: Option<&Known<'_>>,
    namespace: &str,
) -> Result<bool, Failure> {
    // Python counts the versions of tensors that change.
    let changes = operator.parameters.iter().any(|one| one.kind.is_in_place());
    let Some(known) = known.filter(|_| !changes) else {
        return Ok(false);
    };
    if AUTOGRAD.get().is_none() {
        // Not in `get_or_init`: this runs Python code, which may let other threads run. One may have been quicker.
        let _ = AUTOGRAD.set(Autograd::find(shim, known).ok().flatten());
    }
    if !matches!(AUTOGRAD.get(), Some(Some(_))) {
        return Ok(false);
    }
    let text = |text: String| CString::new(text).map_err(|error| Failure::new(error.to_string()));
    let own = text(format!("{namespace}::{}", operator.name))?;
    let differentiable = text(format!("{namespace}::_{}_autograd", operator.name))?;
    if operator.names.set([own, differentiable]).is_err() {
        return Ok(false);
    }
    shim.add_kernel(namespace, operator.name, c"Autograd", kernel::<O>)?;
    Ok(true)
}

/// Restores the dispatch keys of this thread.
struct Below<'r>(&'r Autograd, &'r mut Room);

impl Drop for Below<'_> {
    fn drop(&mut self) {
        // SAFETY: an object that is destroyed once, on the thread that made it (F5).
        unsafe { (self.0.include)(self.1) };
    }
}

/// The kernel of autograd's keys.
unsafe extern "C-unwind" fn kernel<O: Operator>(stack: *mut u64, inputs: u64, _: u64) {
    let (Some(Some(autograd)), Ok(operator)) = (AUTOGRAD.get(), checked::<O>()) else { return };
    let Some([own, differentiable]) = operator.names.get() else { return };
    // SAFETY: PyTorch's stack has all arguments (F5).
    let words = unsafe { std::slice::from_raw_parts(stack, inputs as usize) };
    let requires_grad = |(parameter, &word): (&Parameter, &u64)| {
        let place = ptr::with_exposed_provenance::<u64>(word as usize);
        let tensor = match parameter.kind {
            // SAFETY: null, or a word of PyTorch's (F5).
            Kind::Optional(_) => unsafe { place.as_ref() }.map(|word| handle(*word)),
            kind => kind.is_tensor().then(|| handle(word)),
        };
        // SAFETY: a live tensor (F5).
        tensor.is_some_and(|tensor| unsafe { autograd.requires_grad_of(tensor) })
    };
    // SAFETY: may be called at any time (F5).
    let is_enabled = unsafe { (autograd.aoti_torch_grad_mode_is_enabled)() };
    // Forward mode needs Python as well: it raises for tensors with tangents.
    // SAFETY: may be called at any time (F5).
    let is_forward = autograd.has_forward_level.is_none_or(|has_level| unsafe { has_level() });
    let mut arguments = operator.parameters.iter().zip(words);
    let keeping = Keeping::new();
    let code = if is_forward || is_enabled && arguments.any(requires_grad) {
        autograd.call(differentiable, stack)
    } else {
        let mut room = Room::new();
        let _below = autograd.below(&mut room);
        autograd.call(own, stack)
    };
    let thrower = autograd.thrower.as_ref().filter(|_| code != 0);
    let thrown = thrower.and_then(|thrower| Some((thrower, keeping.taken()?)));
    drop(keeping);
    if code != 0 {
        if let Some((thrower, error)) = thrown {
            thrower.throw(error);
        }
        // SAFETY: may be called at any time (F5).
        let message = unsafe { (autograd.what)() };
        // SAFETY: a text that lives until the next exception on this thread (F5).
        let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
        // Without the stack of an exception of Python.
        let message = message.split("\n\nAt:\n").next().unwrap_or_default();
        let mut message = CString::new(message).unwrap_or_default();
        if message.is_empty() {
            let words = "Python code that PyTorch called failed, such as the shape rule; call it in torch.inference_mode() for its words";
            message =
                CString::new(format!("{}: {words}", own.to_string_lossy())).unwrap_or_default();
        }
        raise(autograd.shim, &message);
    }
}

impl Autograd {
    fn find(shim: &'static Shim, known: &Known<'_>) -> PyResult<Option<Self>> {
        let (plain, differentiable, keys, excluded, library) = known;
        let Some((mut found, from_python)) = Self::load(shim, *keys) else { return Ok(None) };
        for (sample, expected) in [(plain, false), (differentiable, true)] {
            let mut tensor = ptr::null_mut();
            // SAFETY: attached (F1); a live object, and a place to write to (F2, F5).
            if unsafe { from_python(sample.as_ptr().cast(), &mut tensor) } != 0 {
                return Ok(None);
            }
            let tensor = Owned(shim, tensor);
            // SAFETY: a live tensor (F5).
            let place = unsafe { tensor.1.cast::<usize>().read() };
            // SAFETY: the same, if it is at the address that Python says.
            let answer = || unsafe { found.requires_grad_of(tensor.1) };
            if place != sample.getattr("_cdata")?.extract::<usize>()? || answer() != expected {
                return Ok(None);
            }
        }
        let excluded = || excluded.call0()?.call_method0("raw_repr")?.extract::<u64>();
        let before = excluded()?;
        let mut room = Room::new();
        let below = found.below(&mut room);
        let during = excluded();
        drop(below);
        let is_right = *keys != 0 && during? == before | keys && excluded()? == before;
        found.thrower = library.as_ref().and_then(|library| Thrower::find(plain.py(), library));
        Ok(is_right.then_some(found))
    }

    fn load(shim: &'static Shim, keys: u64) -> Option<(Self, FromPython)> {
        macro_rules! find {
            ($name:literal) => {{
                let name = concat!($name, "\0").as_bytes();
                // SAFETY: the type of PyTorch's header. C++'s names name the types of the arguments, and what
                // these functions do is compared (F5).
                *unsafe { shim.library.get(name) }.ok()?
            }};
        }
        let found = Self {
            shim,
            torch_call_dispatcher: find!("torch_call_dispatcher"),
            what: find!("torch_exception_get_what_without_backtrace"),
            aoti_torch_grad_mode_is_enabled: find!("aoti_torch_grad_mode_is_enabled"),
            requires_grad: find!("_ZNK3c1010TensorImpl13requires_gradEv"),
            exclude: find!("_ZN3c104impl23ExcludeDispatchKeyGuardC1ENS_14DispatchKeySetE"),
            include: find!("_ZN3c104impl23ExcludeDispatchKeyGuardD1Ev"),
            // SAFETY: C++'s name names the types of the arguments (F5).
            has_forward_level: unsafe {
                shim.library.get(b"_ZN5torch8autograd14ForwardADLevel13has_any_levelEv\0")
            }
            .ok()
            .map(|found| *found),
            keys,
            thrower: None,
        };
        Some((found, find!("torch_tensor_from_pyobject")))
    }

    /// # Safety
    ///
    /// A live tensor.
    unsafe fn requires_grad_of(&self, tensor: Handle) -> bool {
        // SAFETY: a handle is the address of an `at::Tensor`, a pointer to its `TensorImpl` (F5).
        let implementation = unsafe { tensor.cast::<*const c_void>().read() };
        // SAFETY: alive as the tensor is (F5).
        unsafe { (self.requires_grad)(implementation) }
    }

    /// Excludes autograd's keys on this thread, until the result is dropped.
    fn below<'r>(&'r self, room: &'r mut Room) -> Below<'r> {
        // SAFETY: room for the object, which stays there until it is destroyed (F2, F5).
        unsafe { (self.exclude)(room, self.keys) };
        Below(self, room)
    }

    /// Calls an operator of a name; its results take the place of the arguments.
    fn call(&self, name: &CStr, stack: *mut u64) -> Code {
        // SAFETY: live texts (F2); the stack of a call with the same arguments and results (F5).
        unsafe {
            (self.torch_call_dispatcher)(name.as_ptr(), c"".as_ptr(), stack, self.shim.version())
        }
    }
}
