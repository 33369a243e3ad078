//! PyTorch's autograd, which its stable shim lacks: each call goes on to the kernels below autograd. If a tensor needs a
//! gradient, a function of Python then records the call. Where Python code may run below autograd (a dispatch mode, a
//! tensor subclass, a device without a kernel of ours), the call goes on through Python, because PyTorch's C shim keeps
//! only the text of an exception.
//! Invariant: the C++ functions are called only after they gave the right answers for known tensors and keys.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::OnceLock;

use pyo3::exceptions::{PyBaseException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PySequenceMethods, PyTuple};

use super::exception::Thrower;
use super::shim::{CPU, CUDA, Code, Handle, Owned, Shim, handle, raise, text};
use crate::Failure;
use crate::argument::Parameter;
use crate::attach;
use crate::definition::{Checked, Operator, Recording, checked};
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
type HasDispatch = unsafe extern "C-unwind" fn(Handle) -> bool;
type Enabled = unsafe extern "C-unwind" fn() -> bool;
type Exclude = unsafe extern "C-unwind" fn(*mut Room, u64);
type Include = unsafe extern "C-unwind" fn(*mut Room);
type FromPython = unsafe extern "C-unwind" fn(*mut c_void, *mut Handle) -> Code;
type ToPython = unsafe extern "C-unwind" fn(Handle, *mut c_void, *mut *mut c_void) -> Code;

/// The functions of the PyTorch that is loaded.
struct Autograd {
    shim: &'static Shim,
    torch_call_dispatcher: Dispatch,
    aoti_torch_grad_mode_is_enabled: Enabled,
    /// `bool c10::TensorImpl::requires_grad() const`.
    requires_grad: RequiresGrad,
    /// `c10::impl::ExcludeDispatchKeyGuard`, its constructor and destructor.
    exclude: Exclude,
    include: Include,
    /// `bool torch::autograd::ForwardADLevel::has_any_level()`: whether tensors may have tangents.
    has_forward_level: Option<Enabled>,
    /// `bool c10::impl::dispatch_mode_enabled()`: whether this thread has a dispatch mode of Python.
    has_mode: Enabled,
    /// `bool at::impl::tensor_has_dispatch(const at::Tensor&)`: whether Python dispatches calls with this tensor.
    has_dispatch: HasDispatch,
    /// `torch_tensor_from_pyobject` and `torch_tensor_to_pyobject`, which return new references.
    from_python: FromPython,
    to_python: ToPython,
    /// The bits of autograd's dispatch keys.
    keys: u64,
    thrower: Option<Thrower>,
}

static AUTOGRAD: OnceLock<Option<Autograd>> = OnceLock::new();

/// What is compared: a tensor that requires no grad, one that does, autograd's keys, and the function that returns
/// the keys that are excluded on this thread; and PyTorch's library for Python.
type Known<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, u64, Bound<'py, PyAny>, Option<PathBuf>);

/// Finds the functions in this PyTorch, once, by what a function of Python knows.
pub(super) fn load(shim: &'static Shim, known: &Bound<'_, PyAny>) -> PyResult<()> {
    if AUTOGRAD.get().is_some() {
        return Ok(());
    }
    if let Some(known) = known.call0()?.extract::<Option<Known<'_>>>()? {
        // Not in `get_or_init`: this runs Python code, which may let other threads run. One may have been quicker.
        let _ = AUTOGRAD.set(Autograd::find(shim, &known).ok().flatten());
    }
    Ok(())
}

/// Registers the kernel, if this PyTorch has the functions, and the operator's namespace is its first one.
pub(super) fn register<O: Operator>(
    operator: &Checked,
    shim: &'static Shim,
    namespace: &str,
    make: Py<PyAny>,
) -> Result<bool, Failure> {
    // Python counts the versions of tensors that change.
    let changes = operator.parameters.iter().any(|one| one.kind.is_in_place());
    if changes || !matches!(AUTOGRAD.get(), Some(Some(_))) {
        return Ok(false);
    }
    let name = text(&format!("{namespace}::{}", operator.name))?;
    if operator.recording.set(Recording { name, make, functions: OnceLock::new() }).is_err() {
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

/// Why a call failed: an exception, or that of PyTorch's C functions.
type Thrown = Option<Py<PyBaseException>>;

/// The kernel of autograd's keys.
unsafe extern "C-unwind" fn kernel<O: Operator>(stack: *mut u64, inputs: u64, outputs: u64) {
    let (Some(Some(autograd)), Ok(operator)) = (AUTOGRAD.get(), checked::<O>()) else { return };
    let Some(recording) = operator.recording.get() else { return };
    // SAFETY: PyTorch's stack has room for all arguments and results (F5).
    let stack = unsafe { std::slice::from_raw_parts_mut(stack, inputs.max(outputs) as usize) };
    let requires_grad = |(parameter, &word): (&Parameter, &u64)| {
        // SAFETY: a live tensor (F5).
        tensor(parameter, word).is_some_and(|tensor| unsafe { autograd.requires_grad_of(tensor) })
    };
    // SAFETY: may be called at any time (F5).
    let is_enabled = unsafe { (autograd.aoti_torch_grad_mode_is_enabled)() };
    // Forward mode needs Python as well: it raises for tensors with tangents.
    // SAFETY: may be called at any time (F5).
    let is_forward = autograd.has_forward_level.is_none_or(|has_level| unsafe { has_level() });
    let is_recorded =
        is_forward || is_enabled && operator.parameters.iter().zip(&*stack).any(requires_grad);
    let result = match (is_recorded, autograd.runs_python(operator, stack)) {
        (false, false) => autograd.call(&recording.name, stack),
        (_, runs_python) => {
            autograd.call_for_python(operator, recording, stack, is_recorded, runs_python)
        }
    };
    let Err(thrown) = result else { return };
    // The C shim keeps the text of an exception of Python, which stays set.
    let thrown = thrown.or_else(|| attach(|py| PyErr::take(py).map(|error| error.into_value(py))));
    let left = match (thrown, &autograd.thrower) {
        (Some(error), Some(thrower)) => thrower.throw(error),
        (thrown, _) => thrown,
    };
    let mut message = match left {
        Some(error) => attach(|py| error.into_bound(py).to_string()),
        None => autograd.shim.what(),
    };
    // Without the stack of an exception of Python.
    message.truncate(message.find("\n\nAt:\n").unwrap_or(message.len()));
    raise(autograd.shim, &CString::new(message).unwrap_or_default());
}

/// Throws PyTorch's `OutOfMemoryError` if the message of a kernel's failure says that: who catches it frees memory and
/// tries again. Returns where it cannot.
#[cold]
pub(super) fn throw_out_of_memory(message: &str) {
    let Some(Some(Autograd { thrower: Some(thrower), .. })) = AUTOGRAD.get() else { return };
    if !message.contains("out of memory") {
        return;
    }
    let made = attach(|py| -> PyResult<Py<PyBaseException>> {
        let class = py.import("torch")?.getattr("OutOfMemoryError")?;
        Ok(class.call1((message,))?.cast_into()?.unbind())
    });
    let left = made.ok().and_then(|error| thrower.throw(error));
    attach(|_| drop(left));
}

/// The tensor in a word of the stack, if there is one.
fn tensor(parameter: &Parameter, word: u64) -> Option<Handle> {
    let place = ptr::with_exposed_provenance::<u64>(word as usize);
    match parameter.kind {
        // SAFETY: null, or a word of PyTorch's (F5).
        Kind::Optional(_) => unsafe { place.as_ref() }.map(|word| handle(*word)),
        kind => kind.is_tensor().then(|| handle(word)),
    }
}

impl Autograd {
    fn find(shim: &'static Shim, known: &Known<'_>) -> PyResult<Option<Self>> {
        let (plain, differentiable, keys, excluded, library) = known;
        let Some(mut found) = Self::load(shim, *keys) else { return Ok(None) };
        for (sample, expected) in [(plain, false), (differentiable, true)] {
            let Some(tensor) = found.of_python(sample) else { return Ok(None) };
            // SAFETY: a live tensor (F5).
            let place = unsafe { tensor.1.cast::<usize>().read() };
            // SAFETY: the same, if it is at the address that Python says.
            let answer = || unsafe { found.requires_grad_of(tensor.1) };
            let same = found.in_python(sample.py(), tensor.1);
            if place != sample.getattr("_cdata")?.extract::<usize>()?
                || answer() != expected
                || !same.is_some_and(|same| same.is(sample))
            {
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

    fn load(shim: &'static Shim, keys: u64) -> Option<Self> {
        macro_rules! find {
            ($name:literal) => {{
                let name = concat!($name, "\0").as_bytes();
                // SAFETY: the type of PyTorch's header. C++'s names name the types of the arguments, and what
                // these functions do is compared (F5).
                *unsafe { shim.library.get(name) }.ok()?
            }};
        }
        Some(Self {
            shim,
            torch_call_dispatcher: find!("torch_call_dispatcher"),
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
            has_mode: find!("_ZN3c104impl21dispatch_mode_enabledEv"),
            has_dispatch: find!("_ZN2at4impl19tensor_has_dispatchERKNS_6TensorE"),
            from_python: find!("torch_tensor_from_pyobject"),
            to_python: find!("torch_tensor_to_pyobject"),
            keys,
            thrower: None,
        })
    }

    /// The tensor of an object of Python.
    fn of_python(&self, object: &Bound<'_, PyAny>) -> Option<Owned<'static>> {
        let mut tensor = ptr::null_mut();
        // SAFETY: attached (F1); a live object, and a place to write to (F2, F5).
        let code = unsafe { (self.from_python)(object.as_ptr().cast(), &mut tensor) };
        (code == 0).then_some(Owned(self.shim, tensor))
    }

    /// The object of a live tensor in Python.
    fn in_python<'py>(&self, py: Python<'py>, tensor: Handle) -> Option<Bound<'py, PyAny>> {
        let mut object = ptr::null_mut();
        // SAFETY: attached (F1); a live tensor, the usual class, and a place to write to (F2, F5).
        let code = unsafe { (self.to_python)(tensor, ptr::null_mut(), &mut object) };
        // SAFETY: a new reference, or null (F3).
        unsafe { Bound::from_owned_ptr_or_opt(py, object.cast()) }.filter(|_| code == 0)
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

    /// Calls an operator of a name below autograd; its results take the place of the arguments.
    fn call(&self, name: &CStr, stack: &mut [u64]) -> Result<(), Thrown> {
        let mut room = Room::new();
        let _below = self.below(&mut room);
        let (name, overload, version) = (name.as_ptr(), c"".as_ptr(), self.shim.version());
        // SAFETY: live texts (F2); the stack of a call with the same arguments and results (F5).
        let code =
            unsafe { (self.torch_call_dispatcher)(name, overload, stack.as_mut_ptr(), version) };
        if code == 0 { Ok(()) } else { Err(None) }
    }

    /// Whether Python code may run below autograd: that of a dispatch mode or of a tensor subclass, or the shape rule of
    /// a device without memory.
    fn runs_python(&self, operator: &Checked, stack: &[u64]) -> bool {
        let runs = |(parameter, &word): (&Parameter, &u64)| {
            tensor(parameter, word).is_some_and(|tensor| {
                let mut device = CPU;
                // SAFETY: a live tensor, and a place to write to (F2, F5).
                let code = unsafe { (self.shim.aoti_torch_get_device_type)(tensor, &mut device) };
                // SAFETY: a live tensor: a handle is the address of an `at::Tensor` (F5).
                code != 0 || !matches!(device, CPU | CUDA) || unsafe { (self.has_dispatch)(tensor) }
            })
        };
        // SAFETY: may be called at any time (F5).
        (unsafe { (self.has_mode)() }) || operator.parameters.iter().zip(stack).any(runs)
    }

    /// Calls the operator, through Python if its code may run below; then, if the call is recorded, Python's function
    /// with the results and the arguments. The results take the place of the arguments.
    fn call_for_python(
        &self,
        operator: &Checked,
        recording: &Recording,
        stack: &mut [u64],
        is_recorded: bool,
        runs_python: bool,
    ) -> Result<(), Thrown> {
        let arguments = attach(|py| self.arguments(py, operator, stack).map(Bound::unbind));
        if arguments.is_err() || runs_python {
            // The arguments are this kernel's.
            operator.parameters.iter().zip(&*stack).for_each(|(one, &word)| match one.kind {
                Kind::Optional(_) => drop(self.shim.optional(word)),
                kind if kind.is_tensor() => drop(Owned(self.shim, handle(word))),
                _ => {}
            });
        }
        let arguments = arguments?;
        // Without the GIL while the operator runs.
        let called = if runs_python { Ok(()) } else { self.call(&recording.name, stack) };
        attach(|py| {
            let arguments = arguments.into_bound(py);
            called?;
            let thrown = |error: PyErr| Some(error.into_value(py));
            let functions = match recording.functions.get() {
                Some(functions) => functions,
                None => {
                    let made = recording.make.call0(py).and_then(|made| made.extract(py));
                    let made = made.map_err(thrown)?;
                    recording.functions.get_or_init(|| made)
                }
            };
            let (record, below) = (functions.0.bind(py), functions.1.bind(py));
            let places = &mut stack[..operator.signature.outputs.len()];
            let mut results = if runs_python {
                let mut room = Room::new();
                let _below = self.below(&mut room);
                several(below.call1(&arguments).map_err(thrown)?).map_err(thrown)?
            } else {
                let tensors = places.iter().map(|&word| Owned(self.shim, handle(word)));
                let tensors: Vec<_> = tensors.collect();
                let objects = tensors.iter().map(|tensor| self.in_python(py, tensor.1));
                let objects = objects.collect::<Option<Vec<_>>>().ok_or(None)?;
                PyTuple::new(py, objects).map_err(thrown)?
            };
            // Those that Python's code returns may be fewer.
            let (expected, found) = (places.len(), results.len());
            if found != expected {
                let words =
                    format!("{}: expected {expected} results, found {found}", operator.name);
                return Err(thrown(PyTypeError::new_err(words)));
            }
            if is_recorded {
                let recorded = PyTuple::new(py, [results])
                    .and_then(|first| first.as_sequence().concat(arguments.as_sequence()))
                    .and_then(|all| record.call1(all.to_tuple()?));
                results = recorded.and_then(several).map_err(thrown)?;
            }
            let results = results.iter().map(|one| self.of_python(&one));
            let results = results.collect::<Option<Vec<_>>>().ok_or(None)?;
            for (place, tensor) in places.iter_mut().zip(results) {
                *place = tensor.1.expose_provenance() as u64;
                // Now PyTorch's.
                std::mem::forget(tensor);
            }
            Ok(())
        })
    }

    /// The arguments on the stack, for Python.
    fn arguments<'py>(
        &self,
        py: Python<'py>,
        operator: &Checked,
        stack: &[u64],
    ) -> Result<Bound<'py, PyTuple>, Thrown> {
        let argument = |(parameter, &word): (&Parameter, &u64)| match parameter.kind {
            Kind::Float => Some(PyFloat::new(py, f64::from_bits(word)).into_any()),
            Kind::Int => Some(PyInt::new(py, word as i64).into_any()),
            Kind::Bool => Some(PyBool::new(py, word & 1 != 0).to_owned().into_any()),
            _ => match tensor(parameter, word) {
                Some(tensor) => self.in_python(py, tensor),
                None => Some(py.None().into_bound(py)),
            },
        };
        let arguments = operator.parameters[..operator.arguments].iter().zip(stack).map(argument);
        let arguments = arguments.collect::<Option<Vec<_>>>().ok_or(None)?;
        PyTuple::new(py, arguments).map_err(|error| Some(error.into_value(py)))
    }
}

/// The results of a function of Python, which returns one without a tuple.
fn several(results: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyTuple>> {
    let py = results.py();
    results.cast_into().or_else(|one| PyTuple::new(py, [one.into_inner()]))
}
