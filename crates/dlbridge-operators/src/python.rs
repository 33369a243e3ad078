//! Adds operators to Python modules.

use std::any::TypeId;
use std::ffi::CString;
use std::ops::Deref;
use std::path::PathBuf;

use dlbridge::{DType, Tensor, TypeCode};
use dlbridge_pyo3::PyTensor;
use pyo3::exceptions::{PyImportError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyDict, PyList, PyTuple};

use crate::call::{Plan, check, parameters, tensors};
use crate::operator::{Kind, Parameter, Scalar};
use crate::raw::attach::is_main_interpreter;
use crate::raw::autograd::Known;
use crate::raw::operand::{Operand, Slot};
use crate::raw::{numpy, torch, xla};
use crate::signature::Axis;
use crate::{Failure, Operator};

/// Adds operators to a module.
pub trait AddOperator {
    /// Adds a function that is an operator of PyTorch and of JAX, and a function of every other array.
    ///
    /// The name of the module is the namespace: `torch.ops.my_module.scale`. PyTorch's operator is registered when
    /// PyTorch is imported already, else at the function's first call with a tensor of PyTorch.
    ///
    /// # Errors
    ///
    /// If the declaration contradicts itself, if the module or PyTorch has an operator of this name, or in a sub-interpreter.
    fn add_operator<O: Operator>(&self, operator: O) -> PyResult<()>;
}

impl AddOperator for Bound<'_, PyModule> {
    fn add_operator<O: Operator>(&self, _: O) -> PyResult<()> {
        let py = self.py();
        let signature = check::<O>().map_err(raised)?;
        let module: String = self.name()?.extract()?;
        if !is_main_interpreter(py) {
            return Err(PyImportError::new_err(format!(
                "expected the main interpreter, found a sub-interpreter; import {module} in the main one"
            )));
        }
        if self.hasattr(O::NAME)? {
            let name = O::NAME;
            return Err(PyValueError::new_err(format!(
                "expected one {name} in {module}, found another one; rename it"
            )));
        }
        let namespace = module.rsplit('.').next().unwrap_or(&module).to_owned();
        let about = PyDict::new(py);
        about.set_item("name", O::NAME)?;
        about.set_item("module", &module)?;
        about.set_item("type", format!("{:?}", TypeId::of::<O>()))?;
        about.set_item("namespace", &namespace)?;
        about.set_item("doc", O::DOC.trim())?;
        about.set_item("backward", O::BACKWARD)?;
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
        about.set_item("parameters", described::<O>(py)?)?;
        about.set_item("dtypes", dtypes::<O>())?;
        about.set_item("floating", floating::<O>())?;
        let eager = PyCFunction::new_closure(py, None, None, |arguments, _| eager::<O>(arguments))?;
        let space = namespace.clone();
        let register = PyCFunction::new_closure(py, None, None, move |arguments, _| {
            let library: PathBuf = arguments.get_item(0)?.extract()?;
            let too_old = |error: Failure| PyImportError::new_err(error.to_string());
            torch::load::<O>(&library).map_err(too_old)?;
            let known: Option<Known<'_>> = arguments.get_item(1)?.extract()?;
            let cuda: Option<PathBuf> = arguments.get_item(2)?.extract()?;
            if let Some(library) = cuda {
                torch::cuda::load(&library).map_err(too_old)?;
            }
            torch::register::<O>(&space, known.as_ref()).map_err(raised)
        })?;
        let targets = (xla::capsule::<O, false>(py)?, xla::capsule::<O, true>(py)?);
        let ufunc = |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
            numpy::ufunc::<O>(arguments.py()).map(Bound::unbind)
        };
        let ufunc = PyCFunction::new_closure(py, None, None, ufunc)?;
        let ways = (eager, register, targets, ufunc);
        let function = glue(py)?.getattr("make")?.call1((about, ways, self))?;
        self.add(O::NAME, function)
    }
}

fn raised(error: Failure) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// The Python half: it calls PyTorch's and JAX's own functions for operators.
fn glue(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static GLUE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    if GLUE.get(py).is_none() {
        let code = CString::new(concat!(
            include_str!("shapes.py"),
            include_str!("glue.py"),
            include_str!("autograd.py"),
            include_str!("operator.py")
        ))
        .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let made = PyModule::from_code(py, &code, c"dlbridge_operators.py", c"dlbridge_operators")?;
        // Another thread may have been quicker.
        let _ = GLUE.set(py, made.unbind());
    }
    GLUE.get(py).map(|glue| glue.bind(py)).ok_or_else(|| PyRuntimeError::new_err("no glue"))
}

/// The name and kind of each parameter of the Python function.
fn described<O: Operator>(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let all = parameters::<O>();
    let kinds = all.iter().filter_map(|parameter| {
        let kind = match parameter.kind {
            Kind::Input(_) => "tensor",
            Kind::Optional(_) => "optional",
            Kind::InPlace(_) => "in place",
            Kind::Float => "float",
            Kind::Int => "int",
            Kind::Bool => "bool",
            Kind::Output(_) => return None,
        };
        Some((parameter.name, kind))
    });
    PyList::new(py, kinds.collect::<Vec<_>>())
}

/// For each instance, the names of the tensors' dtypes and of the outputs'.
fn dtypes<O: Operator>() -> Vec<(Vec<String>, Vec<String>)> {
    let instance = |one: &'static crate::Instance| {
        let outputs = one.parameters.iter().filter_map(Parameter::output);
        let found = tensors(one).map(|(_, dtype)| dtype.to_string());
        (found.collect(), outputs.map(|dtype| dtype.to_string()).collect())
    };
    O::INSTANCES.iter().map(instance).collect()
}

/// For each tensor, whether its elements are floating-point numbers in an instance, which have gradients.
fn floating<O: Operator>() -> Vec<bool> {
    let is_real = |word: &str| word.ends_with("float") || word == "complex";
    let has_gradient = |code: TypeCode| code.name().is_some_and(is_real);
    let count = O::INSTANCES.first().into_iter().flat_map(tensors).count();
    let is_floating = |one, at| {
        tensors(one).nth(at).is_some_and(|(_, dtype): (_, DType)| has_gradient(dtype.code))
    };
    let in_any = |at| O::INSTANCES.iter().any(|one| is_floating(one, at));
    (0..count).map(in_any).collect()
}

/// The function for arrays of any framework: imports them, and returns new arrays of the first one's type.
fn eager<O: Operator>(arguments: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
    let py = arguments.py();
    let failed = |error: Failure| PyTypeError::new_err(error.to_string());
    let all = parameters::<O>();
    // They borrow their memory until the function has returned.
    let mut borrowed: Vec<Box<dyn Deref<Target = Tensor>>> = Vec::new();
    for (parameter, argument) in all.iter().zip(arguments) {
        match parameter.kind {
            Kind::Optional(_) if argument.is_none() => {}
            Kind::InPlace(_) => borrowed.push(writable::<O>(parameter.name, &argument)?),
            kind if kind.is_tensor() => borrowed.push(Box::new(argument.extract::<PyTensor>()?)),
            _ => {}
        }
    }
    let mut tensors = borrowed.iter();
    let mut slots = Vec::new();
    for (parameter, argument) in all.iter().zip(arguments) {
        slots.push(match parameter.kind {
            Kind::Optional(_) if argument.is_none() => Slot::Absent,
            Kind::Float => Slot::Scalar(Scalar::Float(argument.extract()?)),
            Kind::Int => Slot::Scalar(Scalar::Int(argument.extract()?)),
            Kind::Bool => Slot::Scalar(Scalar::Bool(argument.extract()?)),
            Kind::Output(_) => break,
            _ => {
                let tensor = tensors.next().ok_or_else(|| PyTypeError::new_err("no tensor"))?;
                Slot::Tensor(Operand::reading(tensor).map_err(failed)?)
            }
        });
    }
    let plan = Plan::new::<O>(&slots).map_err(failed)?;
    let made = plan.outputs().map(|(dtype, shape)| Tensor::zeros(dtype, &shape));
    let made = made.collect::<Result<Vec<Tensor>, _>>();
    let mut results = made.map_err(dlbridge_pyo3::Error::from)?;
    let outputs = results.iter_mut().map(Operand::filling).collect::<Result<Vec<_>, _>>();
    plan.run::<O>(&slots, outputs.map_err(failed)?).map_err(raised)?;
    let caller = arguments.get_item(0)?;
    let give = |result: Tensor| Ok(PyTensor::from(result).to_caller(&caller)?);
    let mut results = results.into_iter().map(give).collect::<PyResult<Vec<_>>>()?;
    match results.len() {
        0 => Ok(py.None()),
        1 => Ok(results.remove(0).unbind()),
        _ => Ok(PyTuple::new(py, results)?.into_any().unbind()),
    }
}

/// Borrows an array to write it, by the instance of its dtype.
fn writable<O: Operator>(
    name: &str,
    argument: &Bound<'_, PyAny>,
) -> PyResult<Box<dyn Deref<Target = Tensor>>> {
    let named = |instance: &&'static crate::Instance| {
        instance.parameters.iter().find(|one| one.name == name).and_then(|one| one.borrow)
    };
    let mut last = PyTypeError::new_err("expected an array to write");
    for borrow in O::INSTANCES.iter().filter_map(|instance| named(&instance)) {
        match borrow(argument) {
            Ok(tensor) => return Ok(tensor),
            Err(error) => last = error,
        }
    }
    Err(last)
}
