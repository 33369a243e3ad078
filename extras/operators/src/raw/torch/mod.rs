//! Operators of PyTorch: registers the schema and the kernels.
//! Invariant: no Rust panic leaves a kernel; PyTorch's exception is raised when nothing is left to drop but a text.

mod autograd;
mod cuda;
mod exception;
mod kernel;
mod shim;

use std::path::Path;
use std::ptr;
use std::sync::PoisonError;

use pyo3::prelude::*;
pub(crate) use shim::load;

use self::shim::{rejected, text};
use crate::Failure;
use crate::definition::{Checked, Operator, checked};
use crate::kind::Kind;

/// Finds the functions in PyTorch's library for CUDA, which only a PyTorch with CUDA has.
pub(crate) fn load_cuda(library: &Path) -> Result<(), Failure> {
    cuda::load(library)
}

/// Finds the functions of PyTorch's autograd, with the answers that `known` returns, before an operator is registered.
pub(crate) fn load_autograd(known: &Bound<'_, PyAny>) -> PyResult<()> {
    shim::loaded().map_or(Ok(()), |shim| autograd::load(shim, known))
}

/// Registers the operator of a module with the PyTorch that was [loaded](load), once. The last part of the module's
/// name is the namespace. Returns whether it has a kernel for
/// autograd, which calls what `recorded` makes for tensors that need a gradient: see [`autograd`].
///
/// # Errors
///
/// If PyTorch has an operator of this name.
pub(crate) fn register<O: Operator>(module: &str, recorded: Py<PyAny>) -> Result<bool, Failure> {
    let operator = checked::<O>()?;
    let in_torch = || operator.in_torch.lock().unwrap_or_else(PoisonError::into_inner);
    // The first call may have been interrupted behind this function.
    if let Some((_, has_autograd)) = in_torch().iter().find(|(known, _)| known == module) {
        return Ok(*has_autograd);
    }
    let namespace = module.rsplit('.').next().unwrap_or(module);
    let shim = shim::loaded().ok_or_else(|| Failure::new("PyTorch is not loaded"))?;
    let (space, schema) = (text(namespace)?, text(&schema(operator))?);
    let (mut fragment, file) = (ptr::null_mut(), c"dlbridge".as_ptr());
    // SAFETY: static and live texts, and a place to write to (F2, F5).
    let code =
        unsafe { (shim.aoti_torch_library_init_fragment)(space.as_ptr(), file, 1, &mut fragment) };
    if code != 0 {
        return Err(rejected(namespace, operator.name, "the namespace"));
    }
    // SAFETY: a library made just now, and a live text (F2, F5).
    if unsafe { (shim.aoti_torch_library_def)(fragment, schema.as_ptr()) } != 0 {
        let what = "the operator: another one may have this name";
        return Err(rejected(namespace, operator.name, what));
    }
    shim.add_kernel(namespace, operator.name, c"CPU", kernel::kernel::<O, false>)?;
    shim.add_kernel(namespace, operator.name, c"CUDA", kernel::kernel::<O, true>)?;
    let has_autograd = autograd::register::<O>(operator, shim, namespace, recorded)?;
    in_torch().push((module.to_owned(), has_autograd));
    Ok(has_autograd)
}

/// Such as `scale(Tensor x, float factor) -> Tensor`.
fn schema(operator: &Checked) -> String {
    let (mut arguments, mut results) = (Vec::new(), 0);
    for (at, parameter) in operator.parameters.iter().enumerate() {
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
        let default = if operator.has_default(at) { "=None" } else { "" };
        arguments.push(format!("{kind} {}{default}", parameter.name));
    }
    let results = match results {
        1 => "Tensor".to_owned(),
        _ => format!("({})", vec!["Tensor"; results].join(", ")),
    };
    format!("{}({}) -> {results}", operator.name, arguments.join(", "))
}
