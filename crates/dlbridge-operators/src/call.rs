//! Calls an operator's function: chooses the instance, checks shapes, and walks the leading axes.
//! Invariant: no panic leaves it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use dlbridge::DType;

use crate::operator::{Inner, Instance, Kind, Operator, Parameter, Scalar};
use crate::raw::operand::{Operand, Parts};
use crate::signature::{Resolved, Signature};
use crate::{Failure, Value};

/// The extents and the instance of a call.
pub(crate) struct Plan {
    pub(crate) instance: &'static Instance,
    pub(crate) resolved: Resolved,
    signature: &'static Signature,
}

impl Plan {
    /// Plans a call with these inputs.
    pub(crate) fn new<O: Operator>(operands: &[Operand<'_>]) -> Result<Self, Failure> {
        let dtypes: Vec<_> = operands.iter().map(|operand| operand.dtype).collect();
        let shapes: Vec<_> = operands.iter().map(|operand| &operand.shape[..]).collect();
        let name = O::NAME;
        let wrong = |error: Failure| Failure::new(format!("{name}: {error}"));
        let instance = instance_for::<O>(&dtypes).map_err(wrong)?;
        let signature = O::parsed().get(O::SIGNATURE)?;
        let names: Vec<_> = inputs(instance).map(|(name, _)| name).collect();
        let resolved = signature.resolve(&names, &shapes).map_err(wrong)?;
        Ok(Self { instance, resolved, signature })
    }

    /// The types of the outputs.
    pub(crate) fn output_dtypes(&self) -> impl Iterator<Item = DType> {
        self.instance.parameters.iter().filter_map(|parameter| match parameter.kind {
            Kind::Output(dtype) => Some(dtype),
            _ => None,
        })
    }

    /// Calls the function for each index of the leading axes.
    pub(crate) fn run<O: Operator>(
        &self,
        inputs: &[Operand<'_>],
        scalars: &[Scalar],
        outputs: &[Operand<'_>],
    ) -> Result<(), Failure> {
        let name = O::NAME;
        let expected = self.output_dtypes().zip(&self.resolved.outputs);
        for ((dtype, shape), found) in expected.zip(outputs) {
            if (dtype, shape) != (found.dtype, &found.shape) {
                let (other, dims) = (found.dtype, &found.shape);
                return Err(Failure::new(format!(
                    "{name}: expected an output {dtype}{shape:?}, found {other}{dims:?}"
                )));
            }
        }
        let call = || self.walk(inputs, scalars, outputs);
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(result) => result.map_err(|error| Failure::new(format!("{name}: {error}"))),
            Err(payload) => Err(Failure::new(format!("{name} panicked: {}", words(payload)))),
        }
    }

    fn walk(
        &self,
        inputs: &[Operand<'_>],
        scalars: &[Scalar],
        outputs: &[Operand<'_>],
    ) -> Result<(), Failure> {
        let (leading, is_whole) = (&self.resolved.leading, self.signature.is_whole);
        if leading.contains(&0) {
            return Ok(());
        }
        let all = inputs.iter().chain(outputs).zip(self.signature.operands());
        let all = all.map(|(operand, core)| operand.parts(core.len(), leading, is_whole));
        let all = all.collect::<Result<Vec<_>, _>>()?;
        let walked = if is_whole { &[][..] } else { &leading[..] };
        let mut index = vec![0; walked.len()];
        loop {
            self.call_once(&all, inputs.len(), &index, scalars)?;
            let Some(axis) = (0..walked.len()).rev().find(|&axis| index[axis] + 1 < walked[axis])
            else {
                return Ok(());
            };
            index[axis] += 1;
            index[axis + 1..].fill(0);
        }
    }

    fn call_once(
        &self,
        all: &[Parts<'_>],
        inputs: usize,
        index: &[i64],
        scalars: &[Scalar],
    ) -> Result<(), Failure> {
        let mut parts: Vec<_> = all.iter().map(|parts| parts.at(index)).collect();
        let mut values = Vec::with_capacity(parts.len() + scalars.len());
        for (at, part) in parts.iter_mut().enumerate() {
            if at == inputs {
                values.extend(scalars.iter().map(|scalar| Value(Inner::Scalar(*scalar))));
            }
            let tensor = part.borrow()?;
            let inner = if at < inputs { Inner::Input(tensor) } else { Inner::Output(tensor) };
            values.push(Value(inner));
        }
        (self.instance.call)(&mut values)
    }
}

/// The parameters, whose names and kinds are the same for all instances but for their types.
pub(crate) fn parameters<O: Operator>() -> &'static [Parameter] {
    O::INSTANCES.first().map_or(&[], |instance| instance.parameters)
}

/// The inputs of an instance, with their types.
pub(crate) fn inputs(instance: &'static Instance) -> impl Iterator<Item = (&'static str, DType)> {
    instance.parameters.iter().filter_map(|parameter| match parameter.kind {
        Kind::Input(dtype) => Some((parameter.name, dtype)),
        _ => None,
    })
}

fn instance_for<O: Operator>(dtypes: &[DType]) -> Result<&'static Instance, Failure> {
    let fits =
        |one: &&'static Instance| inputs(one).map(|(_, dtype)| dtype).eq(dtypes.iter().copied());
    O::INSTANCES.iter().find(fits).ok_or_else(|| {
        let list = |instance: &'static Instance| {
            let inputs = inputs(instance).map(|(name, dtype)| format!("{name}: {dtype}"));
            inputs.collect::<Vec<_>>().join(", ")
        };
        let expected: Vec<_> = O::INSTANCES.iter().map(list).collect();
        let found: Vec<_> = dtypes.iter().map(ToString::to_string).collect();
        Failure::new(format!(
            "expected {}, found {}; convert with x.astype(...)",
            expected.join(" or "),
            found.join(", ")
        ))
    })
}

/// The message of a panic.
pub(crate) fn words(payload: Box<dyn Any + Send>) -> String {
    let words = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(words), _) => (*words).to_owned(),
        (_, Some(words)) => words.clone(),
        _ => "without words".to_owned(),
    };
    // Dropping the payload could panic again.
    std::mem::forget(payload);
    words
}

/// Whether an operator's own declaration is consistent: called once, when it is added to a module.
pub(crate) fn check<O: Operator>() -> Result<&'static Signature, Failure> {
    let signature = O::parsed().get(O::SIGNATURE)?;
    for instance in O::INSTANCES {
        let rank = |kind: &Kind| match kind {
            Kind::Input(_) => 0,
            Kind::Float | Kind::Int | Kind::Bool => 1,
            Kind::Output(_) => 2,
        };
        let ranks: Vec<_> = instance.parameters.iter().map(|one| rank(&one.kind)).collect();
        let count = |wanted| ranks.iter().filter(|rank| **rank == wanted).count();
        let fits = count(0) == signature.inputs.len() && count(2) == signature.outputs.len();
        if !ranks.is_sorted() || !fits {
            return Err(Failure::new(format!(
                "{}: expected tensors to read, then scalars, then tensors to fill, as many as the signature {} has",
                O::NAME,
                O::SIGNATURE
            )));
        }
    }
    Ok(signature)
}
