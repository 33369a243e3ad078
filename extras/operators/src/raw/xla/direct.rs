//! A call of the handler without a plan: in host memory, where no tensor is broadcast, absent or changed in place.
//! Invariant: what is not so is left to the plan, which says what is wrong.

use std::mem::take;

use super::{Frame, buffers, check_own, dtype, number};
use crate::Failure;
use crate::argument::Instance;
use crate::argument::rows::Rows;
use crate::call::guarded;
use crate::definition::Checked;
use crate::few::make_contiguous;
use crate::kind::Kind;
use crate::signature::Axis;

/// So many axes of a signature, and of all tensors, need no plan.
const AXES: usize = 8;
const ALL_AXES: usize = 32;

/// Calls the function, whose rows are contiguous and follow each other; `None` if it needs a plan.
pub(super) fn call(operator: &'static Checked, frame: &Frame) -> Option<Result<(), Failure>> {
    let signature = &operator.signature;
    let instance = operator.instances.iter().find(|one| is_for(one, frame))?;
    let (mut arguments, mut results) = (buffers(&frame.arguments), buffers(&frame.results));
    let first = buffers(&frame.arguments).next()?.shape();
    let leading = first.get(..first.len().checked_sub(signature.inputs.first()?.len())?)?;
    let is_whole = signature.is_whole;
    let count = [if is_whole { 1 } else { product(1, leading)? }];
    let outer = if is_whole { &[][..] } else { &count };
    let (mut extents, mut room) = ([None; AXES], [0; ALL_AXES]);
    let mut room = &mut room[..];
    let mut rows = Rows::new(outer);
    let mut cores = signature.operands();
    for parameter in instance.parameters {
        if parameter.kind.is_scalar() {
            let (kind, value) = number(&frame.attributes, parameter.name).ok()?;
            // SAFETY: an attribute of this kind, alive during the call (F5).
            unsafe { rows.add_scalars(value.cast_mut(), 0, kind) };
            continue;
        }
        let is_written = parameter.kind.output().is_some();
        let buffer = if is_written { results.next() } else { arguments.next() }?;
        let (shape, axes) = (buffer.shape(), cores.next()?);
        let core = shape.strip_prefix(leading).filter(|core| core.len() == axes.len())?;
        for (&axis, &found) in axes.iter().zip(core) {
            let expected = match signature.axes.get(axis)? {
                Axis::Fixed(extent) => *extent,
                Axis::Named(_) => *extents.get_mut(axis)?.get_or_insert(found),
            };
            (expected == found).then_some(())?;
        }
        let row = if is_whole { shape } else { core };
        let (strides, rest) = take(&mut room).split_at_mut_checked(row.len())?;
        room = rest;
        make_contiguous(row, strides, 1);
        let dtype = parameter.kind.dtype();
        let step = product(dtype.itemsize()? as i64, row)?;
        let bytes = usize::try_from(product(step, outer)?).ok()?;
        (bytes == 0 || !buffer.data.is_null()).then_some(())?;
        if is_written {
            check_own(&frame.arguments, buffer.data.addr(), shape).ok()?;
            // SAFETY: the buffer of a result, which XLA made for this call (R1, T10).
            unsafe { buffer.data.cast::<u8>().write_bytes(0, bytes) };
        }
        // SAFETY: XLA's buffers are dense, and each row is behind another; a result is written by this call alone
        // (R1, T10, T13).
        unsafe { rows.add_raw(buffer.data, dtype, (row, strides), step as isize, is_written) }
            .ok()?;
    }
    (arguments.next().is_none() && results.next().is_none()).then_some(())?;
    Some(guarded(operator, || (instance.call)(rows.walk())))
}

/// A number times extents, if none is negative and it fits.
fn product(first: i64, extents: &[i64]) -> Option<i64> {
    extents.iter().try_fold(first, |all, &extent| all.checked_mul(extent).filter(|_| extent >= 0))
}

/// Whether the buffers have the dtypes of an instance that takes tensors to read and to fill.
fn is_for(instance: &Instance, frame: &Frame) -> bool {
    let (mut arguments, mut results) = (buffers(&frame.arguments), buffers(&frame.results));
    let mut tensors = instance.parameters.iter().filter(|one| !one.kind.is_scalar());
    tensors.all(|one| {
        let buffer = match one.kind {
            Kind::Input(_) => arguments.next(),
            Kind::Output(_) => results.next(),
            _ => None,
        };
        buffer.is_some_and(|buffer| dtype(buffer.dtype) == Some(one.kind.dtype()))
    })
}
