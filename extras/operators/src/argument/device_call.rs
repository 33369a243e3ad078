//! A call of an operator's CUDA function: tensors that only the device accesses, with all axes.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::marker::PhantomData;

use dlbridge::{Error, Flags, Tensor};

use super::operand::{Operand, Slot, Written};
use super::{ForArgument, Launch};
use crate::device::{DeviceValue, DeviceValues, OnDevice};
use crate::{DeviceStream, Failure};

/// How a framework makes a tensor of a call contiguous.
pub(crate) trait Copies {
    /// The address of contiguous memory for the tensor of this number among those of the call, with its values; the
    /// extents are those of `operand`. Memory that the function writes is copied back after the call.
    fn contiguous(
        &mut self,
        number: usize,
        operand: &Operand<'_>,
        is_written: bool,
    ) -> Result<*mut c_void, Failure>;
}

/// A call of a CUDA function with the arguments, whose tensors have all leading axes.
pub struct DeviceCall<'c, 's> {
    stream: &'c DeviceStream<'c>,
    slots: &'c mut [Slot<'s>],
    copies: &'c mut dyn Copies,
}

/// A parameter of a CUDA function, whose type the compiler infers from the call.
#[derive(Debug)]
pub struct Parameter<D>(PhantomData<fn() -> D>);

impl<D> Parameter<D> {
    /// A parameter of any type.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "made by `operator!` alone")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }

    /// Whether its elements must be contiguous.
    #[must_use]
    pub const fn is_contiguous<'v, A>(&self) -> bool
    where
        D: ForArgument<'v, A>,
    {
        D::IS_CONTIGUOUS
    }

    /// Its value, the next one.
    ///
    /// # Errors
    ///
    /// If it is of another kind, or there is none.
    pub fn take<'v, A>(&self, name: &str, values: &mut DeviceValues<'v>) -> Result<D, Failure>
    where
        D: ForArgument<'v, A>,
    {
        D::of(values.next()?).ok_or_else(|| Failure::of_kind(name))
    }
}

impl std::fmt::Debug for DeviceCall<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceCall").field("slots", &self.slots).finish_non_exhaustive()
    }
}

/// Calls a CUDA function.
///
/// # Errors
///
/// That of the function, or if a tensor is not valid.
pub(crate) fn call_on_device(
    launch: Launch,
    stream: &DeviceStream<'_>,
    slots: &mut [Slot<'_>],
    copies: &mut dyn Copies,
) -> Result<(), Failure> {
    let mut call = DeviceCall { stream, slots, copies };
    launch(&mut call)
}

/// # Safety
///
/// The tensor is dropped before the operand's memory is freed.
unsafe fn borrowed(operand: &Operand<'_>) -> Result<Tensor, Error> {
    let Operand { data, dtype, device, .. } = *operand;
    let tensor = Tensor::builder(()).dtype(dtype).shape(operand.shape());
    // SAFETY: the operand's elements, by its invariant (R1); the caller's duty.
    unsafe { tensor.strides(operand.strides()).build_raw(data, device, Flags::NONE) }
}

impl DeviceCall<'_, '_> {
    /// The stream of the call, and the values of the arguments. Those whose elements must be contiguous are copied
    /// where they are not.
    ///
    /// # Errors
    ///
    /// If there are more or fewer arguments, a tensor is not valid, or there is no memory for a copy.
    pub fn arguments<const N: usize>(
        &mut self,
        contiguous: [bool; N],
    ) -> Result<(&DeviceStream<'_>, DeviceValues<'_>), Failure> {
        if self.slots.len() != N {
            return Err(Failure::of_count());
        }
        let mut number = 0;
        for (slot, must_be) in self.slots.iter_mut().zip(contiguous) {
            let is_written = matches!(slot, Slot::Write(_));
            let (Slot::Read(operand) | Slot::Write(Written(operand))) = slot else { continue };
            if must_be && !operand.tensor()?.is_contiguous() {
                let data = self.copies.contiguous(number, operand, is_written)?;
                // SAFETY: contiguous memory of these extents, which the framework keeps for the order of the stream
                // (T14).
                unsafe { operand.move_to(data) };
            }
            number += 1;
        }
        let mut values = Vec::with_capacity(N);
        for slot in &*self.slots {
            // SAFETY: the value borrows the slot (R2).
            let tensor = |operand| unsafe { borrowed(operand) };
            let value = match slot {
                Slot::Read(operand) => OnDevice::Read(tensor(operand)?),
                Slot::Write(Written(operand)) => OnDevice::Write(tensor(operand)?),
                Slot::Absent => OnDevice::Absent,
                Slot::Scalar(scalar) => OnDevice::Scalar(*scalar),
            };
            values.push(DeviceValue(value, PhantomData));
        }
        Ok((self.stream, DeviceValues(values.into_iter())))
    }
}
