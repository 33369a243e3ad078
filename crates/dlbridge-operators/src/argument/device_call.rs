//! A call of an operator's CUDA function: tensors that only the device accesses, with all axes.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use dlbridge::ffi::BorrowedTensor;
use dlbridge::sys::DLTensor;
use dlbridge::{Error, Flags, MAX_RANK};

use super::operand::{Operand, Slot, described};
use crate::Failure;
use crate::device::{DeviceValue, OnDevice};

/// A descriptor, and room for strides.
type Descriptor = (DLTensor, [MaybeUninit<i64>; MAX_RANK]);

/// # Safety
///
/// As for [`BorrowedTensor::from_raw`].
unsafe fn validated(descriptor: &mut Descriptor) -> Result<BorrowedTensor<'_>, Error> {
    let (tensor, room) = descriptor;
    // SAFETY: the caller's duty.
    unsafe { BorrowedTensor::from_raw(tensor, room, Flags::NONE) }
}

/// Calls a function with the arguments, whose tensors have all leading axes.
///
/// # Errors
///
/// That of the function, or if a tensor is not valid.
pub(crate) fn call_on_device(
    slots: &[Slot<'_>],
    function: impl FnOnce(Vec<DeviceValue<'_>>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let describe = |slot: &Slot<'_>| {
        let operand = slot.tensor()?;
        let Operand { data, dtype, device, .. } = *operand;
        let lists = (operand.shape(), operand.strides());
        Some((described(data, dtype, device, lists), BorrowedTensor::NO_STRIDES))
    };
    let mut descriptors: Vec<Option<Descriptor>> = slots.iter().map(describe).collect();
    // SAFETY: the operands' elements, by their invariant, which are repeated along axes without a stride; the lists
    // live as long (R1, R2).
    let tensor = |one| unsafe { validated(one) };
    let tensors: Vec<_> = descriptors.iter_mut().map(|one| one.as_mut().map(tensor)).collect();
    let mut values = Vec::with_capacity(slots.len());
    for (slot, tensor) in slots.iter().zip(&tensors) {
        let tensor = tensor.as_ref().map(|one| one.as_ref().map_err(Clone::clone)).transpose()?;
        values.push(DeviceValue(match (slot, tensor) {
            (Slot::Read(_), Some(tensor)) => OnDevice::Read(tensor),
            (Slot::Write(_), Some(tensor)) => OnDevice::Write(tensor),
            (Slot::Scalar(scalar), _) => OnDevice::Scalar(*scalar),
            _ => OnDevice::Absent,
        }));
    }
    function(values)
}
