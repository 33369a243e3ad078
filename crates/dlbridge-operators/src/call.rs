//! Plans the call of an operator's function: chooses the instance, and resolves the shapes.
//! Invariant: no panic of the function leaves a call.

use dlbridge::DType;
use dlbridge::ffi::{Dims, catch};

use crate::operator::{Instance, Kind, Operator, Parameter};
use crate::raw::operand::{Operand, Slot};
use crate::raw::walk::{Walk, once};
use crate::signature::{Axis, Resolved, Signature};
use crate::{DeviceStream, Failure};

/// The extents and the instance of a call.
pub(crate) struct Plan {
    instance: &'static Instance,
    resolved: Resolved,
    signature: &'static Signature,
}

impl Plan {
    /// Plans a call with these arguments: tensors, then scalars.
    pub(crate) fn new<O: Operator>(arguments: &[Slot<'_>]) -> Result<Self, Failure> {
        let instance = instance_for::<O>(arguments).map_err(named::<O>)?;
        let signature = O::parsed().get(O::SIGNATURE)?;
        let names = instance.parameters.iter().map(|parameter| parameter.name);
        let shapes = arguments.iter().map(Slot::shape);
        let resolved = signature.resolve(names.zip(shapes)).map_err(named::<O>)?;
        Ok(Self { instance, resolved, signature })
    }

    /// The types and shapes of the outputs.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (DType, Dims)> {
        let dtypes = self.instance.parameters.iter().filter_map(Parameter::output);
        let shapes = self.signature.outputs.iter().map(|axes| self.resolved.shape(axes));
        dtypes.zip(shapes)
    }

    /// Calls the function for each index of the leading axes.
    pub(crate) fn run<'a, O: Operator>(
        &self,
        arguments: &[Slot<'a>],
        outputs: Vec<Operand<'a>>,
    ) -> Result<(), Failure> {
        guarded::<O>(|| {
            let leading = &self.resolved.leading;
            self.check_outputs(arguments, &outputs)?;
            let mut shapes = arguments.iter().filter_map(Slot::shape);
            if leading.is_empty() || self.signature.is_whole && shapes.all(|one| one == &**leading)
            {
                return once(self.instance, arguments, &outputs);
            }
            // The function sees all axes, so there is one call.
            let (walked, whole) = if self.signature.is_whole {
                (Dims::zeros(0), &leading[..])
            } else {
                (leading.clone(), &[][..])
            };
            Walk::with(walked, self.instance.parameters.len(), |mut walk| {
                self.place(&mut walk, whole, arguments, outputs)?;
                walk.call(self.instance)
            })
        })
    }

    /// Calls the CUDA function once, with all axes. It queues its work on the stream.
    pub(crate) fn launch<'a, O: Operator>(
        &self,
        stream: &DeviceStream<'_>,
        arguments: &[Slot<'a>],
        outputs: Vec<Operand<'a>>,
    ) -> Result<(), Failure> {
        guarded::<O>(|| {
            let launch = self.instance.cuda.ok_or_else(|| Failure::new("no CUDA function"))?;
            self.check_outputs(arguments, &outputs)?;
            let mut written = self.written(arguments);
            // A launch of no threads is an error of the driver.
            if written.all(|shape| shape.contains(&0)) {
                return Ok(());
            }
            Walk::with(Dims::zeros(0), self.instance.parameters.len(), |mut walk| {
                self.place(&mut walk, &self.resolved.leading, arguments, outputs)?;
                walk.each(|values| launch(stream, values))
            })
        })
    }

    /// The shapes of the tensors that the function writes.
    fn written(&self, arguments: &[Slot<'_>]) -> impl Iterator<Item = Dims> {
        let arguments = self.instance.parameters.iter().zip(arguments);
        let in_place = arguments.filter(|(one, _)| matches!(one.kind, Kind::InPlace(_)));
        let in_place = in_place.filter_map(|(_, slot)| slot.shape().map(Dims::from));
        in_place.chain(self.outputs().map(|(_, shape)| shape))
    }

    /// Rejects results that the declaration does not have, and arguments in place that cannot be written.
    fn check_outputs(
        &self,
        arguments: &[Slot<'_>],
        outputs: &[Operand<'_>],
    ) -> Result<(), Failure> {
        for (parameter, slot) in self.instance.parameters.iter().zip(arguments) {
            if let (Kind::InPlace(_), Some(operand)) = (parameter.kind, slot.tensor()) {
                operand.check_written(parameter.name, arguments)?;
            }
        }
        for ((dtype, shape), operand) in self.outputs().zip(outputs) {
            if (dtype, &*shape) != (operand.dtype, &*operand.shape) {
                let (shape, other, found) = (&*shape, operand.dtype, &*operand.shape);
                return Err(Failure::new(format!(
                    "expected an output {dtype}{shape:?}, found {other}{found:?}"
                )));
            }
        }
        Ok(())
    }

    /// Adds all arguments and outputs to a walk. `whole` are leading axes that the function sees as well.
    fn place<'a>(
        &self,
        walk: &mut Walk<'a, '_>,
        whole: &[i64],
        arguments: &[Slot<'a>],
        outputs: Vec<Operand<'a>>,
    ) -> Result<(), Failure> {
        let mut cores = self.signature.operands().map(Vec::len);
        for (parameter, slot) in self.instance.parameters.iter().zip(arguments) {
            let core = parameter.kind.is_tensor().then(|| cores.next()).flatten();
            let is_written = matches!(parameter.kind, Kind::InPlace(_));
            let placed = walk.add(slot, core.unwrap_or(0), whole, is_written);
            placed.map_err(|error| Failure::new(format!("{}: {error}", parameter.name)))?;
        }
        for operand in outputs {
            let core = cores.next().unwrap_or(0);
            walk.add(&Slot::Tensor(operand), core, whole, true)?;
        }
        Ok(())
    }
}

/// Runs what calls the function, and names the operator in its error or panic.
pub(crate) fn guarded<O: Operator>(
    call: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    match catch(call) {
        Ok(result) => result.map_err(named::<O>),
        Err(panic) => Err(Failure::new(format!("{} panicked: {}", O::NAME, panic.words()))),
    }
}

pub(crate) fn named<O: Operator>(error: Failure) -> Failure {
    Failure::new(format!("{}: {error}", O::NAME))
}

/// Whether an operator has a CUDA function; `advice` is the call for a caller of one that has none.
pub(crate) fn check_cuda<O: Operator>(advice: &str) -> Result<(), Failure> {
    match O::INSTANCES.first().and_then(|instance| instance.cuda) {
        Some(_) => Ok(()),
        None => Err(named::<O>(Failure::new(format!(
            "expected memory on cpu, found memory on cuda; pass {advice}, or declare `cuda = ...` in Rust"
        )))),
    }
}

/// The parameters, whose names and kinds are the same for all instances but for their types.
pub(crate) fn parameters<O: Operator>() -> &'static [Parameter] {
    O::INSTANCES.first().map_or(&[], |instance| instance.parameters)
}

/// The tensors among the arguments of an instance, with their types.
pub(crate) fn tensors(instance: &'static Instance) -> impl Iterator<Item = (&'static str, DType)> {
    instance.parameters.iter().filter_map(|parameter| match parameter.kind {
        Kind::Input(dtype) | Kind::Optional(dtype) | Kind::InPlace(dtype) => {
            Some((parameter.name, dtype))
        }
        _ => None,
    })
}

fn instance_for<O: Operator>(arguments: &[Slot<'_>]) -> Result<&'static Instance, Failure> {
    let fits = |one: &&'static Instance| {
        let tensors = tensors(one).zip(arguments);
        tensors
            .into_iter()
            .all(|((_, dtype), slot)| slot.tensor().is_none_or(|operand| operand.dtype == dtype))
    };
    O::INSTANCES.iter().find(fits).ok_or_else(|| {
        let list = |instance: &'static Instance| {
            let tensors = tensors(instance).map(|(name, dtype)| format!("{name}: {dtype}"));
            tensors.collect::<Vec<_>>().join(", ")
        };
        let expected: Vec<_> = O::INSTANCES.iter().map(list).collect();
        let found = arguments.iter().filter_map(Slot::tensor);
        let found: Vec<_> = found.map(|operand| operand.dtype.to_string()).collect();
        Failure::new(format!(
            "expected {}, found {}; convert with x.astype(...)",
            expected.join(" or "),
            found.join(", ")
        ))
    })
}

/// Whether an operator's own declaration is consistent: called once, when it is added to a module.
pub(crate) fn check<O: Operator>() -> Result<&'static Signature, Failure> {
    let signature = O::parsed().get(O::SIGNATURE)?;
    let wrong = |expected: &str| {
        let (name, text) = (O::NAME, O::SIGNATURE);
        Err(Failure::new(format!("{name}: expected {expected}; the signature is {text}")))
    };
    let rank = |one: &Parameter| match one.kind {
        Kind::Input(_) | Kind::Optional(_) | Kind::InPlace(_) => 0,
        Kind::Float | Kind::Int | Kind::Bool => 1,
        Kind::Output(_) => 2,
    };
    let parameters = parameters::<O>();
    let ranks: Vec<_> = parameters.iter().map(rank).collect();
    let count = |wanted| ranks.iter().filter(|rank| **rank == wanted).count();
    let fits = count(0) == signature.inputs.len() && count(2) == signature.outputs.len();
    if !ranks.is_sorted() || !fits {
        return wrong("tensors, then scalars, then tensors to fill, as many as the signature has");
    }
    if !parameters
        .first()
        .is_some_and(|first| matches!(rank(first), 0) && !first.kind.is_optional())
    {
        return wrong("a first tensor that is not optional");
    }
    let is_in_place = |one: &Parameter| matches!(one.kind, Kind::InPlace(_));
    let is_written = parameters.iter().any(is_in_place);
    if is_written && O::BACKWARD.is_some() {
        return wrong("no `backward`, because a tensor changes in place");
    }
    if !is_written && signature.outputs.is_empty() {
        return wrong("a tensor to fill, or to change in place");
    }
    let always = signature.inputs.iter().zip(parameters).filter(|(_, one)| !one.kind.is_optional());
    let known: Vec<_> = always.flat_map(|(axes, _)| axes).collect();
    let is_known =
        |axis: &usize| matches!(signature.axes[*axis], Axis::Fixed(_)) || known.contains(&axis);
    if !signature.outputs.iter().flatten().all(is_known) {
        return wrong("results whose axes are those of tensors that are not optional");
    }
    Ok(signature)
}
