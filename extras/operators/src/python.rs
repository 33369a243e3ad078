//! Adds operators to Python modules.

use std::any::TypeId;
use std::path::PathBuf;

use dlbridge::Tensor;
use dlbridge_pyo3::PyTensor;
use pyo3::exceptions::{PyImportError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyDict, PyList, PyTuple};

use crate::Failure;
use crate::argument::operand::{Operand, Slot, Written};
use crate::argument::{Instance, Writable};
use crate::call::{Plan, wrong_dtypes};
use crate::definition::{Checked, Operator, checked};
use crate::kind::{Kind, Scalar};
use crate::raw::{self, numpy, torch, xla};
use crate::signature::Axis;

/// Adds operators to a module.
pub trait AddOperator {
    /// Adds a function that is an operator of PyTorch and of JAX, and a function of every other array.
    ///
    /// The name of the module is the namespace: `torch.ops.my_module.scale`. PyTorch's operator is registered when
    /// PyTorch is imported already, else at the function's first call with a tensor of PyTorch. The operator that `backward`
    /// names is added as well.
    ///
    /// # Errors
    ///
    /// If the module or PyTorch has an operator of this name, or in a sub-interpreter.
    fn add_operator<O: Operator>(&self, operator: O) -> PyResult<()>;
}

impl AddOperator for Bound<'_, PyModule> {
    fn add_operator<O: Operator>(&self, _: O) -> PyResult<()> {
        add::<O>(self)
    }
}

fn add<O: Operator>(target: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = target.py();
    let operator = checked::<O>().map_err(raised)?;
    let signature = &operator.signature;
    let module: String = target.name()?.extract()?;
    if !raw::is_main_interpreter(py) {
        return Err(PyImportError::new_err(format!(
            "expected the main interpreter, found a sub-interpreter; import {module} in the main one"
        )));
    }
    let identity = format!("{:?}", TypeId::of::<O>());
    if let Some(found) = target.getattr_opt(O::NAME)? {
        if found.getattr_opt("_about")?.is_some_and(|about| {
            about.get_item("type").is_ok_and(|known| known.eq(&identity).unwrap_or(false))
        }) {
            return Ok(());
        }
        let name = O::NAME;
        return Err(PyValueError::new_err(format!(
            "expected one {name} in {module}, found another one; rename it"
        )));
    }
    let namespace = module.rsplit('.').next().unwrap_or(&module).to_owned();
    let about = PyDict::new(py);
    about.set_item("name", O::NAME)?;
    about.set_item("module", &module)?;
    about.set_item("type", &identity)?;
    about.set_item("namespace", &namespace)?;
    about.set_item("doc", O::DOC.trim())?;
    let backward = O::BACKWARD.map(|other| (other.checked)()).transpose().map_err(raised)?;
    about.set_item("backward", backward.map(|other| other.name))?;
    about.set_item("with_results", O::BACKWARD.map(|other| other.with_results))?;
    about.set_item("defaults", defaults(operator))?;
    about.set_item("whole", signature.is_whole)?;
    let name = |axis: &usize| match &signature.axes[*axis] {
        Axis::Named(name) => name.into_pyobject(py).map(Bound::into_any),
        Axis::Fixed(extent) => Ok(extent.into_pyobject(py)?.into_any()),
    };
    let axes = |operands: &[Vec<usize>]| {
        let names = |axes: &Vec<usize>| axes.iter().map(name).collect::<Result<Vec<_>, _>>();
        operands.iter().map(names).collect::<Result<Vec<_>, _>>()
    };
    about.set_item("inputs", axes(&signature.inputs)?)?;
    about.set_item("outputs", axes(&signature.outputs)?)?;
    about.set_item("parameters", described(py, operator)?)?;
    about.set_item("dtypes", dtypes(operator))?;
    about.set_item("floating", operator.floating())?;
    let refuse = PyCFunction::new_closure(py, None, None, move |arguments, _| {
        let (found, convert, is_wide): (Vec<Option<String>>, String, bool) = arguments.extract()?;
        let error = operator.named(wrong_dtypes(operator, &found, &convert, is_wide));
        PyResult::<()>::Err(PyTypeError::new_err(error.to_string()))
    })?;
    about.set_item("refuse", refuse)?;
    about.set_item("cuda", operator.instances.iter().any(|one| one.cuda.is_some()))?;
    let eager =
        PyCFunction::new_closure(py, None, None, move |arguments, _| eager(operator, arguments))?;
    let space = module.clone();
    let register = PyCFunction::new_closure(py, None, None, move |arguments, _| {
        let library: PathBuf = arguments.get_item(0)?.extract()?;
        let too_old = |error: Failure| PyImportError::new_err(error.to_string());
        torch::load(operator, &library).map_err(too_old)?;
        torch::load_autograd(&arguments.get_item(1)?)?;
        let cuda: Option<PathBuf> = arguments.get_item(2)?.extract()?;
        if let Some(library) = cuda {
            torch::load_cuda(&library).map_err(too_old)?;
        }
        let recorded = arguments.get_item(3)?.unbind();
        torch::register::<O>(&space, recorded).map_err(raised)
    })?;
    let targets = (xla::capsule::<O, false>(py)?, xla::capsule::<O, true>(py)?);
    let ufunc = |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
        numpy::ufunc::<O>(arguments.py()).map(Bound::unbind)
    };
    let ufunc = PyCFunction::new_closure(py, None, None, ufunc)?;
    let space = module.clone();
    let of_half = PyCFunction::new_closure(py, None, None, move |arguments, _| {
        let name: String = arguments.get_item(0)?.extract()?;
        half(arguments.py(), &space, &name).map(|module| module.clone().unbind())
    })?;
    let ways = (eager, register, targets, ufunc, of_half);
    let function = half(py, &module, "operator")?.getattr("make")?.call1((about, ways, target))?;
    target.add(O::NAME, function)?;
    // That of the gradients as well, so that it is there when they are asked for.
    O::BACKWARD.map_or(Ok(()), |other| (other.add)(target))
}

fn raised(error: Failure) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A part of the Python half of an operator: the class, or that for a framework. It is compiled when it is needed, which
/// takes milliseconds. `torch.compile` imports it by its name, which begins with that of the `owner`, the first module that
/// needs it: another extension, of another version of this crate, has its own.
fn half<'py>(py: Python<'py>, owner: &str, name: &str) -> PyResult<&'py Bound<'py, PyModule>> {
    static MODULES: [PyOnceLock<Py<PyModule>>; 4] = [const { PyOnceLock::new() }; 4];
    const SHAPES: &str = include_str!("shapes.py");
    let (at, parts) = match name {
        "operator" => (0, [include_str!("operator.py"), ""]),
        "torch" => (1, [include_str!("in_torch.py"), ""]),
        "torch_rules" => (2, [SHAPES, include_str!("torch_rules.py")]),
        _ => (3, [SHAPES, include_str!("in_jax.py")]),
    };
    if MODULES[at].get(py).is_none() {
        let full_name = format!("{owner}.dlbridge_operators_{name}");
        let made = PyModule::new(py, &full_name)?;
        let builtins = py.import("builtins")?;
        let file = format!("dlbridge_operators_{name}.py");
        let code = builtins.getattr("compile")?.call1((parts.concat(), file, "exec"))?;
        builtins.getattr("exec")?.call1((code, made.dict()))?;
        let modules = py.import("sys")?.getattr("modules")?;
        // Another thread may have been quicker.
        let _ = MODULES[at].set(py, made.unbind());
        modules.set_item(full_name, MODULES[at].get(py))?;
    }
    let made = MODULES[at].get(py).map(|made| made.bind(py));
    made.ok_or_else(|| PyRuntimeError::new_err("no module"))
}

/// The names of the arguments that a caller may leave out.
fn defaults(operator: &Checked) -> Vec<&'static str> {
    let all = operator.parameters[..operator.arguments].iter().enumerate();
    all.filter(|(at, _)| operator.has_default(*at)).map(|(_, one)| one.name).collect()
}

/// The name and kind of each parameter of the Python function.
fn described<'py>(py: Python<'py>, operator: &Checked) -> PyResult<Bound<'py, PyList>> {
    let kinds = operator.parameters.iter().filter_map(|one| Some((one.name, one.kind.name()?)));
    PyList::new(py, kinds.collect::<Vec<_>>())
}

/// For each instance, the names of the tensors' dtypes and of the outputs'.
fn dtypes(operator: &Checked) -> Vec<(Vec<String>, Vec<String>)> {
    let instance = |one: &'static Instance| {
        let outputs = one.parameters.iter().filter_map(|one| one.kind.output());
        let found = one.tensors().map(|(_, dtype)| dtype.to_string());
        (found.collect(), outputs.map(|dtype| dtype.to_string()).collect())
    };
    operator.instances.iter().map(instance).collect()
}

/// An array of Python that is borrowed until the function has returned.
enum Borrowed {
    Read(PyTensor),
    Write(Writable),
}

/// How a caller makes an array of another dtype.
const CONVERT: &str = "{}.astype(\"{}\")";

/// The function for arrays of any framework: imports them, and returns new arrays of the first one's type.
fn eager(operator: &'static Checked, arguments: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
    let py = arguments.py();
    let failed = |error: Failure| PyTypeError::new_err(error.to_string());
    let mut borrowed = Vec::with_capacity(operator.arguments);
    for (parameter, argument) in operator.parameters.iter().zip(arguments) {
        match parameter.kind {
            Kind::Optional(_) if argument.is_none() => {}
            Kind::InPlace(_) => {
                borrowed.push(Borrowed::Write(writable(operator, parameter.name, &argument)?));
            }
            kind if kind.is_tensor() => borrowed.push(Borrowed::Read(argument.extract()?)),
            _ => {}
        }
    }
    let mut tensors = borrowed.iter();
    let mut slots = Vec::with_capacity(operator.parameters.len());
    for (parameter, argument) in operator.parameters.iter().zip(arguments) {
        slots.push(match parameter.kind {
            Kind::Optional(_) if argument.is_none() => Slot::Absent,
            Kind::Float | Kind::Int | Kind::Bool => {
                let found = scalar(parameter.kind, &argument);
                Slot::Scalar(found.map_err(|error| named(operator, parameter.name, &error, py))?)
            }
            Kind::Output(_) => break,
            _ => match tensors.next() {
                Some(Borrowed::Read(tensor)) => {
                    Slot::Read(Operand::reading(tensor).map_err(failed)?)
                }
                Some(Borrowed::Write(tensor)) => {
                    Slot::Write(Written::borrowed(tensor).map_err(failed)?)
                }
                None => return Err(PyTypeError::new_err("no tensor")),
            },
        });
    }
    let plan = Plan::new(operator, slots, CONVERT).map_err(failed)?;
    let made = plan.outputs().map(|(dtype, shape)| Tensor::zeros(dtype, &shape[..]));
    let made = made.collect::<Result<Vec<Tensor>, _>>();
    let mut results = made.map_err(dlbridge_pyo3::Error::from)?;
    plan.run(results.iter_mut().map(Written::filling)).map_err(raised)?;
    let caller = arguments.get_item(0)?;
    let give = |result: Tensor| Ok(PyTensor::from(result).to_caller(&caller)?);
    let mut results = results.into_iter().map(give).collect::<PyResult<Vec<_>>>()?;
    match results.len() {
        0 => Ok(py.None()),
        1 => Ok(results.remove(0).unbind()),
        _ => Ok(PyTuple::new(py, results)?.into_any().unbind()),
    }
}

fn scalar(kind: Kind, argument: &Bound<'_, PyAny>) -> PyResult<Scalar> {
    match kind {
        Kind::Float => argument.extract().map(Scalar::Float),
        Kind::Int => argument.extract().map(Scalar::Int),
        _ => argument.extract().map(Scalar::Bool),
    }
}

/// The exception of an argument, with the names of the operator and the argument in front.
fn named(operator: &Checked, name: &str, error: &PyErr, py: Python<'_>) -> PyErr {
    let words = format!("{}: {name}: {}", operator.name, error.value(py));
    PyErr::from_type(error.get_type(py), words)
}

/// Borrows an array to write it, by the instance of its dtype, or by the first one, whose error says what is expected.
fn writable(
    operator: &'static Checked,
    name: &str,
    argument: &Bound<'_, PyAny>,
) -> PyResult<Writable> {
    let dtype = argument.extract::<PyTensor>()?.dtype();
    let instances = operator.instances.iter();
    let mut all = instances.filter_map(|one| one.parameters.iter().find(|one| one.name == name));
    let found = all.clone().find(|one| one.kind.dtype() == dtype).or_else(|| all.next());
    let borrow = found.and_then(|one| one.borrow);
    borrow.ok_or_else(|| PyTypeError::new_err("expected an array to write"))?(argument)
}
