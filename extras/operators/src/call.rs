//! Plans the call of an operator's function: chooses the instance, and resolves the shapes.
//! Invariant: no panic of the function leaves a call.

use dlbridge::DType;
use dlbridge_pyo3::CurrentContext;

use crate::argument::Instance;
use crate::argument::device_call::{Copies, call_on_device};
use crate::argument::operand::{Slot, Written};
use crate::argument::rows::Rows;
use crate::definition::{Checked, named};
use crate::failure::catch;
use crate::few::Numbers;
use crate::kind::{Kind, is_of_64_bits};
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
    /// Plans a call with these arguments: tensors, then scalars. `convert` is as in [`wrong_dtypes`].
    pub(crate) fn new(
        operator: &'static Checked,
        slots: Vec<Slot<'a>>,
        convert: &'static str,
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
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (DType, Numbers)> {
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

    /// Calls the CUDA function once, with all axes and the device's primary context current. It queues its work on the
    /// stream.
    pub(crate) fn launch(
        mut self,
        stream: &DeviceStream<'_>,
        outputs: impl Iterator<Item = Result<Written<'a>, Failure>>,
        copies: &mut dyn Copies,
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
            let _current = CurrentContext::of(stream.device())?;
            call_on_device(launch, stream, &mut self.slots, copies)
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
) -> impl Iterator<Item = (DType, Numbers)> {
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
        Err(panic) => Err(Failure::new(format!("{} panicked: {panic}", operator.name))),
    }
}

fn instance_for(
    operator: &'static Checked,
    slots: &[Slot<'_>],
    convert: &'static str,
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
        let found = slots.iter().filter(|slot| !matches!(slot, Slot::Scalar(_)));
        let found = found.map(|slot| slot.tensor().map(|operand| operand.dtype.to_string()));
        wrong_dtypes(operator, &found.collect::<Vec<_>>(), convert, true)
    })
}

/// The error for tensors with dtypes of these names, of which no instance is: it names the conversion that keeps most.
/// `convert` is the caller's, for the name of a tensor and a dtype: `{}.astype({})`; `is_wide` whether it has dtypes of
/// 64 bits, which JAX has on request.
#[cold]
pub(crate) fn wrong_dtypes(
    operator: &'static Checked,
    found: &[Option<String>],
    convert: &str,
    is_wide: bool,
) -> Failure {
    let dtypes: Vec<_> =
        found.iter().map(|name| name.as_ref().map(|name| name.parse::<DType>().ok())).collect();
    let lost = |instance: &Instance| {
        let lost = instance.tensors().zip(&dtypes).map(|((_, to), from)| match *from {
            Some(Some(from)) if from == to || is_wide || !is_of_64_bits(to) => from.lost_bits(to),
            Some(_) => None,
            None => Some(0),
        });
        lost.sum::<Option<u32>>()
    };
    let possible = operator.instances.iter().filter_map(|one| Some((lost(one)?, one)));
    let advice = possible.min_by_key(|(lost, _)| *lost).map(|(lost, instance)| {
        let pairs = instance.tensors().zip(&dtypes);
        let wrong = pairs.filter(|((_, to), from)| from.is_some_and(|from| from != Some(*to)));
        let calls = wrong.map(|((name, dtype), _)| {
            convert.replacen("{}", name, 1).replacen("{}", &dtype.to_string(), 1)
        });
        let calls = calls.collect::<Vec<_>>().join(" and ");
        format!("; convert with {calls}{}", if lost > 0 { ", which rounds" } else { "" })
    });
    let list = |instance: &Instance| {
        let tensors = instance.tensors().map(|(name, dtype)| format!("{name}: {dtype}"));
        tensors.collect::<Vec<_>>().join(", ")
    };
    let expected: Vec<_> = operator.instances.iter().map(list).collect();
    let found: Vec<_> = found.iter().flatten().map(String::as_str).collect();
    let (expected, found) = (expected.join(" or "), found.join(", "));
    Failure::new(format!("expected {expected}, found {found}{}", advice.unwrap_or_default()))
}
