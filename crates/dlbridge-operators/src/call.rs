//! Plans the call of an operator's function: chooses the instance, and resolves the shapes.
//! Invariant: no panic of the function leaves a call.

use dlbridge::DType;
use dlbridge::ffi::{Dims, catch};

use crate::argument::Instance;
use crate::argument::device_call::call_on_device;
use crate::argument::operand::{Slot, Written};
use crate::argument::rows::Rows;
use crate::definition::{Checked, named};
use crate::kind::Kind;
use crate::signature::Resolved;
use crate::{DeviceStream, Failure};

/// A call of an operator: its arguments, the extents and the instance.
pub(crate) struct Plan<'a> {
    operator: &'static Checked,
    instance: &'static Instance,
    resolved: Resolved,
    /// The arguments, then the results.
    slots: Vec<Slot<'a>>,
}

impl<'a> Plan<'a> {
    /// Plans a call with these arguments: tensors, then scalars. `convert` is how a caller of this framework makes a
    /// tensor of another dtype.
    pub(crate) fn new(
        operator: &'static Checked,
        slots: Vec<Slot<'a>>,
        convert: fn(DType) -> String,
    ) -> Result<Self, Failure> {
        let instance = instance_for(operator, &slots, convert);
        let instance = instance.map_err(|error| operator.named(error))?;
        let names = instance.parameters.iter().map(|parameter| parameter.name);
        let shapes = slots.iter().map(Slot::shape);
        let resolved = operator.signature.resolve(names.zip(shapes));
        let resolved = resolved.map_err(|error| operator.named(error))?;
        Ok(Self { operator, instance, resolved, slots })
    }

    /// The types and shapes of the outputs.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (DType, Dims)> {
        expected(self.operator, self.instance, &self.resolved)
    }

    /// Calls the function for each index of the leading axes.
    pub(crate) fn run(
        mut self,
        outputs: impl Iterator<Item = Result<Written<'a>, Failure>>,
    ) -> Result<(), Failure> {
        guarded(self.operator, || {
            self.add_outputs(outputs)?;
            // The function sees all axes, so there is one row.
            let is_whole = self.operator.signature.is_whole;
            let leading = if is_whole { &[][..] } else { &self.resolved.leading[..] };
            let mut rows = Rows::new(leading);
            for (parameter, slot) in self.instance.parameters.iter().zip(&self.slots) {
                rows.add(slot).map_err(|error| named(parameter.name, &error))?;
            }
            (self.instance.call)(rows.walk())
        })
    }

    /// Calls the CUDA function once, with all axes. It queues its work on the stream.
    pub(crate) fn launch(
        mut self,
        stream: &DeviceStream<'_>,
        outputs: impl Iterator<Item = Result<Written<'a>, Failure>>,
    ) -> Result<(), Failure> {
        guarded(self.operator, || {
            let launch = self.instance.cuda.ok_or_else(|| Failure::new("no CUDA function"))?;
            self.add_outputs(outputs)?;
            let is_empty = |slot: &Slot<'_>| match slot {
                Slot::Write(written) => written.operand().shape().contains(&0),
                _ => true,
            };
            // A launch of no threads is an error of the driver.
            if self.slots.iter().all(is_empty) {
                return Ok(());
            }
            call_on_device(&self.slots, |values| launch(stream, values))
        })
    }

    /// Adds the results behind the arguments, and gives all the leading axes of the call. Rejects results that the
    /// declaration does not have, and arguments in place that cannot be written.
    fn add_outputs(
        &mut self,
        outputs: impl Iterator<Item = Result<Written<'a>, Failure>>,
    ) -> Result<(), Failure> {
        for (parameter, slot) in self.instance.parameters.iter().zip(&self.slots) {
            if let Slot::Write(written) = slot {
                written.operand().check_written(parameter.name, &self.slots)?;
            }
        }
        let mut declared = expected(self.operator, self.instance, &self.resolved);
        for output in outputs {
            let output = output?;
            let found = output.operand();
            let Some((dtype, shape)) = declared.next() else { return Err(Failure::of_count()) };
            if (dtype, &*shape) != (found.dtype, found.shape()) {
                let (shape, other, found) = (&*shape, found.dtype, found.shape());
                return Err(Failure::new(format!(
                    "expected an output {dtype}{shape:?}, found {other}{found:?}"
                )));
            }
            self.slots.push(Slot::Write(output));
        }
        let mut cores = self.operator.signature.cores();
        let mut core = |kind: Kind| {
            let has_axes = kind.is_tensor() || kind.output().is_some();
            if has_axes { cores.next() } else { None }.unwrap_or(0)
        };
        for (parameter, slot) in self.instance.parameters.iter().zip(&mut self.slots) {
            let placed = slot.broadcast(core(parameter.kind), &self.resolved.leading);
            placed.map_err(|error| named(parameter.name, &error))?;
        }
        Ok(())
    }
}

fn expected(
    operator: &Checked,
    instance: &Instance,
    resolved: &Resolved,
) -> impl Iterator<Item = (DType, Dims)> {
    let dtypes = instance.parameters.iter().filter_map(|one| one.kind.output());
    let shapes = operator.signature.outputs.iter().map(|axes| resolved.shape(axes));
    dtypes.zip(shapes)
}

/// Runs what calls the function, and names the operator in its error or panic.
pub(crate) fn guarded(
    operator: &Checked,
    call: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    match catch(call) {
        Ok(result) => result.map_err(|error| operator.named(error)),
        Err(panic) => Err(Failure::new(format!("{} panicked: {}", operator.name, panic.words()))),
    }
}

fn instance_for(
    operator: &'static Checked,
    slots: &[Slot<'_>],
    convert: fn(DType) -> String,
) -> Result<&'static Instance, Failure> {
    if slots.len() != operator.arguments {
        return Err(Failure::of_count());
    }
    let fits = |one: &&'static Instance| {
        one.tensors()
            .zip(slots)
            .all(|((_, dtype), slot)| slot.tensor().is_none_or(|operand| operand.dtype == dtype))
    };
    operator.instances.iter().find(fits).ok_or_else(|| {
        let list = |instance: &'static Instance| {
            let tensors = instance.tensors().map(|(name, dtype)| format!("{name}: {dtype}"));
            tensors.collect::<Vec<_>>().join(", ")
        };
        let expected: Vec<_> = operator.instances.iter().map(list).collect();
        let found = slots.iter().filter_map(Slot::tensor);
        let found: Vec<_> = found.map(|operand| operand.dtype.to_string()).collect();
        let wrong = |((name, dtype), slot): ((&'static str, DType), &Slot<'_>)| {
            let is_wrong = slot.tensor().is_some_and(|operand| operand.dtype != dtype);
            is_wrong.then(|| convert(dtype).replacen('x', name, 1))
        };
        let first = operator.instances.first().into_iter();
        let advice: Vec<_> =
            first.flat_map(|one| one.tensors().zip(slots).filter_map(wrong)).collect();
        Failure::new(format!(
            "expected {}, found {}; convert with {}",
            expected.join(" or "),
            found.join(", "),
            advice.join(" and ")
        ))
    })
}
