//! Adds operators to Python modules.

use std::ffi::CString;
use std::path::PathBuf;

use dlbridge::Tensor;
use dlbridge_pyo3::PyTensor;
use pyo3::exceptions::{PyImportError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyDict, PyList, PyTuple};

use crate::call::{Plan, check, inputs, parameters};
use crate::operator::{Kind, Scalar};
use crate::raw::operand::Operand;
use crate::raw::{torch, xla};
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
    /// If the declaration contradicts itself, or PyTorch has an operator of this name.
    fn add_operator<O: Operator>(&self, operator: O) -> PyResult<()>;
}

impl AddOperator for Bound<'_, PyModule> {
    fn add_operator<O: Operator>(&self, _: O) -> PyResult<()> {
        let py = self.py();
        let signature = check::<O>().map_err(raised)?;
        let module: String = self.name()?.extract()?;
        let namespace = module.rsplit('.').next().unwrap_or(&module).to_owned();
        let about = PyDict::new(py);
        about.set_item("name", O::NAME)?;
        about.set_item("module", &module)?;
        about.set_item("namespace", &namespace)?;
        about.set_item("doc", O::DOC.trim())?;
        about.set_item("backward", O::BACKWARD)?;
        about.set_item("whole", signature.is_whole)?;
        let axes = |operands: &[Vec<Axis>]| {
            let names = |axes: &Vec<Axis>| {
                let name = |axis: &Axis| match axis {
                    Axis::Named(name) => name.clone().into_pyobject(py).map(Bound::into_any),
                    Axis::Fixed(extent) => Ok(extent.into_pyobject(py)?.into_any()),
                };
                axes.iter().map(name).collect::<Result<Vec<_>, _>>()
            };
            operands.iter().map(names).collect::<Result<Vec<_>, _>>()
        };
        about.set_item("inputs", axes(&signature.inputs)?)?;
        about.set_item("outputs", axes(&signature.outputs)?)?;
        about.set_item("parameters", described::<O>(py)?)?;
        about.set_item("dtypes", dtypes::<O>())?;
        let eager = PyCFunction::new_closure(py, None, None, |arguments, _| eager::<O>(arguments))?;
        let space = namespace.clone();
        let register = PyCFunction::new_closure(py, None, None, move |arguments, _| {
            let library: PathBuf = arguments.get_item(0)?.extract()?;
            let too_old = |error: Failure| PyImportError::new_err(error.to_string());
            torch::load(&library).map_err(too_old)?;
            torch::register::<O>(&space).map_err(raised)
        })?;
        let target = xla::capsule::<O>(py)?;
        let function = glue(py)?.getattr("make")?.call1((about, eager, register, target, self))?;
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
        let code = CString::new(include_str!("glue.py"))
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
            Kind::Float => "float",
            Kind::Int => "int",
            Kind::Bool => "bool",
            Kind::Output(_) => return None,
        };
        Some((parameter.name, kind))
    });
    PyList::new(py, kinds.collect::<Vec<_>>())
}

/// For each instance, the names of the inputs' dtypes and of the outputs'.
fn dtypes<O: Operator>() -> Vec<(Vec<String>, Vec<String>)> {
    let instance = |one: &'static crate::Instance| {
        let outputs = one.parameters.iter().filter_map(|parameter| match parameter.kind {
            Kind::Output(dtype) => Some(dtype.to_string()),
            _ => None,
        });
        (inputs(one).map(|(_, dtype)| dtype.to_string()).collect(), outputs.collect())
    };
    O::INSTANCES.iter().map(instance).collect()
}

/// The function for arrays of any framework: imports them, and returns new arrays of the first one's type.
fn eager<O: Operator>(arguments: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
    let py = arguments.py();
    let all = parameters::<O>();
    let (mut tensors, mut scalars) = (Vec::new(), Vec::new());
    for (parameter, argument) in all.iter().zip(arguments) {
        match parameter.kind {
            // It borrows its memory until the function has returned.
            Kind::Input(_) => tensors.push(argument.extract::<PyTensor>()?),
            Kind::Float => scalars.push(Scalar::Float(argument.extract()?)),
            Kind::Int => scalars.push(Scalar::Int(argument.extract()?)),
            Kind::Bool => scalars.push(Scalar::Bool(argument.extract()?)),
            Kind::Output(_) => {}
        }
    }
    let failed = |error: Failure| PyTypeError::new_err(error.to_string());
    let inputs = tensors
        .iter()
        .map(|tensor| Operand::reading(tensor))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    let plan = Plan::new::<O>(&inputs).map_err(failed)?;
    let results = plan.output_dtypes().zip(&plan.resolved.outputs);
    let made = results.map(|(dtype, shape)| Tensor::zeros(dtype, shape));
    let mut results: Vec<Tensor> =
        made.collect::<Result<_, _>>().map_err(dlbridge_pyo3::Error::from)?;
    {
        let outputs = results
            .iter_mut()
            .map(Operand::filling)
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?;
        plan.run::<O>(&inputs, &scalars, &outputs).map_err(raised)?;
    }
    let caller = arguments.get_item(0)?;
    let give = |result: Tensor| Ok(PyTensor::from(result).to_caller(&caller)?);
    let mut results = results.into_iter().map(give).collect::<PyResult<Vec<_>>>()?;
    match results.len() {
        1 => Ok(results.remove(0).unbind()),
        _ => Ok(PyTuple::new(py, results)?.into_any().unbind()),
    }
}
