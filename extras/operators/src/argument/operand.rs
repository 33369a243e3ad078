//! The tensors of a call: memory that a framework describes.
//! Invariant: an `Operand`'s elements are alive for its lifetime. Those of a `Written` have values, may be written, and
//! no other code accesses them.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;

use dlbridge::sys::{DLDataType, DLTensor};
use dlbridge::{Access, DType, Device, Error, Tensor, TensorRef};

use super::Writable;
use crate::Failure;
use crate::few::{Numbers, make_contiguous};
use crate::kind::Scalar;

/// One argument or result of a call.
#[derive(Debug)]
pub(crate) enum Slot<'a> {
    /// A tensor that was borrowed to be read.
    Read(Operand<'a>),
    /// A tensor that was borrowed to be written, or made for that.
    Write(Written<'a>),
    /// An optional tensor that is absent.
    Absent,
    Scalar(Scalar),
}

impl<'a> Slot<'a> {
    pub(crate) fn tensor(&self) -> Option<&Operand<'a>> {
        match self {
            Self::Read(operand) | Self::Write(Written(operand)) => Some(operand),
            Self::Absent | Self::Scalar(_) => None,
        }
    }

    pub(crate) fn shape(&self) -> Option<&[i64]> {
        self.tensor().map(|operand| operand.shape())
    }

    /// Gives a tensor the leading axes of a call, as [`Operand::broadcast`] does.
    pub(crate) fn broadcast(&mut self, core: usize, leading: &[i64]) -> Result<(), Failure> {
        match self {
            Self::Read(operand) => operand.broadcast(core, leading, false),
            Self::Write(Written(operand)) => operand.broadcast(core, leading, true),
            Self::Absent | Self::Scalar(_) => Ok(()),
        }
    }
}

/// A tensor of a call.
#[derive(Debug)]
pub(crate) struct Operand<'a> {
    pub(crate) data: *mut c_void,
    pub(crate) dtype: DType,
    pub(crate) device: Device,
    /// The extents, then the strides, which count elements.
    lists: Numbers,
    memory: PhantomData<&'a mut c_void>,
}

/// A tensor of a call that the function writes.
#[derive(Debug)]
pub(crate) struct Written<'a>(pub(super) Operand<'a>);

impl<'a> Written<'a> {
    /// A tensor whose elements have values.
    ///
    /// # Safety
    ///
    /// The elements may be written, and no other code accesses them for `'a`.
    pub(crate) unsafe fn new(operand: Operand<'a>) -> Self {
        Self(operand)
    }

    /// A new, contiguous tensor, whose elements become zero, so that an operator returns no memory of other code.
    /// Those on a device keep what they are, because the host cannot read them.
    ///
    /// # Safety
    ///
    /// As for [`new`](Self::new), but the elements need no values.
    ///
    /// # Errors
    ///
    /// If the memory is not contiguous, or none.
    pub(crate) unsafe fn zeroed(operand: Operand<'a>) -> Result<Self, Failure> {
        if operand.device == Device::CPU {
            let result = operand.tensor()?;
            if !result.is_contiguous() {
                return Err(Failure::new("expected a contiguous result"));
            }
            let bytes = result.nbytes();
            if bytes > 0 {
                // SAFETY: so many contiguous bytes (the invariant, R1), which may be written (the caller's duty).
                unsafe { operand.data.cast::<u8>().write_bytes(0, bytes) };
            }
        }
        Ok(Self(operand))
    }

    /// A tensor of Rust, to fill.
    pub(crate) fn filling(tensor: &'a mut Tensor) -> Result<Self, Failure> {
        // Exclusive, so that no other code reads or writes the elements.
        if tensor.access() != Access::Exclusive {
            return Err(Failure::new("expected exclusive memory to fill"));
        }
        Ok(Self(Operand::reading(tensor)?))
    }

    /// An array of Python that is borrowed to be written.
    pub(crate) fn borrowed(tensor: &'a Writable) -> Result<Self, Failure> {
        Ok(Self(Operand::reading(tensor.tensor())?))
    }

    pub(crate) fn operand(&self) -> &Operand<'a> {
        &self.0
    }
}

impl<'a> Operand<'a> {
    /// A tensor in host memory.
    ///
    /// # Safety
    ///
    /// `shape` and `strides` reach only elements of `dtype` in one allocation from `data` on, alive for `'a`.
    #[inline]
    pub(crate) unsafe fn new(
        data: *mut c_void,
        dtype: DType,
        shape: &[i64],
        strides: Option<&[i64]>,
    ) -> Self {
        let mut lists = Numbers::zeros(2 * shape.len());
        let (extents, steps) = lists.split_at_mut(shape.len());
        extents.copy_from_slice(shape);
        match strides {
            Some(strides) => steps.copy_from_slice(strides),
            None => make_contiguous(shape, steps, 1),
        }
        Self { data, dtype, device: Device::CPU, lists, memory: PhantomData }
    }

    #[inline]
    pub(crate) fn shape(&self) -> &[i64] {
        &self.lists[..self.lists.len() / 2]
    }

    #[inline]
    pub(super) fn strides(&self) -> &[i64] {
        &self.lists[self.lists.len() / 2..]
    }

    /// The same memory, which is on this device. The elements of a GPU's are never accessed here.
    pub(crate) fn on(self, device: Device) -> Self {
        Self { device, ..self }
    }

    /// The same extents in contiguous memory at another address.
    ///
    /// # Safety
    ///
    /// The memory has these elements, alive for `'a`.
    pub(super) unsafe fn move_to(&mut self, data: *mut c_void) {
        self.data = data;
        let (shape, strides) = {
            let ndim = self.lists.len() / 2;
            self.lists.split_at_mut(ndim)
        };
        make_contiguous(shape, strides, 1);
    }

    /// The address of the first element.
    pub(crate) fn address(&self) -> usize {
        self.data.addr()
    }

    /// The description, validated.
    ///
    /// # Errors
    ///
    /// If the address is null, the numbers are too large, or there are too many axes.
    pub(super) fn tensor(&self) -> Result<TensorRef<'_>, Error> {
        // Without axes there are no lists.
        let list = |numbers: &[i64]| match numbers {
            [] => ptr::null_mut(),
            numbers => numbers.as_ptr().cast_mut(),
        };
        let tensor = DLTensor {
            data: self.data,
            device: self.device.into(),
            ndim: self.shape().len() as i32,
            dtype: DLDataType::from(self.dtype),
            shape: list(self.shape()),
            strides: list(self.strides()),
            byte_offset: 0,
        };
        // SAFETY: the operand's elements, by its invariant, and lists that live as long, which no code writes (R1, R2).
        unsafe { TensorRef::from_raw(&raw const tensor) }
    }

    /// A tensor in host memory, to read.
    pub(crate) fn reading(tensor: &'a Tensor) -> Result<Self, Failure> {
        if !tensor.device().is_host_accessible() {
            let device = tensor.device();
            return Err(Failure::new(format!(
                "expected host memory or a tensor of PyTorch or JAX, found memory on {device}; \
                 copy it with dlbridge.from_dlpack(x, device=\"cpu\")"
            )));
        }
        let (shape, strides) = (tensor.shape(), tensor.strides());
        // SAFETY: a valid tensor, borrowed for `'a` (R1, R2).
        Ok(unsafe { Self::new(tensor.data_ptr(), tensor.dtype(), shape, Some(strides)) })
    }

    /// Gives the tensor, which has `core` axes of its own, the leading axes of a call, which `signature` has resolved: those
    /// that it lacks, or has once, are repeated.
    ///
    /// # Errors
    ///
    /// If its leading axes do not broadcast to these, or it is written and would be repeated.
    pub(super) fn broadcast(
        &mut self,
        core: usize,
        leading: &[i64],
        is_written: bool,
    ) -> Result<(), Failure> {
        let front = self.shape().len().checked_sub(core).ok_or_else(mismatch)?;
        let (own, inner) = self.shape().split_at(front);
        if own == leading {
            return Ok(());
        }
        if is_written {
            return Err(Failure::new(format!(
                "expected leading axes {leading:?} of a tensor that is written, found {own:?}"
            )));
        }
        let missing = leading.len().checked_sub(front).ok_or_else(mismatch)?;
        let ndim = leading.len() + inner.len();
        let mut lists = Numbers::zeros(2 * ndim);
        let (extents, steps) = lists.split_at_mut(ndim);
        extents[..leading.len()].copy_from_slice(leading);
        extents[leading.len()..].copy_from_slice(inner);
        steps[leading.len()..].copy_from_slice(&self.strides()[front..]);
        for (at, (&found, &stride)) in own.iter().zip(self.strides()).enumerate() {
            match found {
                found if found == leading[missing + at] => steps[missing + at] = stride,
                1 => {}
                _ => return Err(mismatch()),
            }
        }
        self.lists = lists;
        Ok(())
    }

    /// Whether writing to it is well defined, beside tensors that are read: no element has two indices, and none is
    /// one of theirs.
    pub(crate) fn check_written(&self, name: &str, others: &[Slot<'_>]) -> Result<(), Failure> {
        let own = self.tensor()?;
        if own.may_overlap() {
            return Err(Failure::new(format!(
                "{name}: expected elements that are written once, found some that are written more than once; pass a copy"
            )));
        }
        for other in others.iter().filter_map(Slot::tensor).filter(|other| !ptr::eq(*other, self)) {
            if own.may_share_memory(&other.tensor()?) {
                return Err(Failure::new(format!(
                    "{name}: expected memory that no other argument has, found some that is another one's; pass a copy"
                )));
            }
        }
        Ok(())
    }

    /// Copies the values to another operand, unless they are there.
    ///
    /// # Safety
    ///
    /// `to` is filled: no other code accesses it.
    ///
    /// # Errors
    ///
    /// If the dtypes or shapes differ, or one is not contiguous.
    pub(crate) unsafe fn copy_to(&self, to: &Operand<'_>) -> Result<(), Failure> {
        let own = self.tensor()?;
        if (self.dtype, self.shape()) != (to.dtype, to.shape())
            || !own.is_contiguous()
            || !to.tensor()?.is_contiguous()
        {
            return Err(Failure::new(
                "expected a result with the extents of the argument in place",
            ));
        }
        let bytes = own.nbytes();
        if self.data != to.data && bytes > 0 {
            let (from, to) = (self.data.cast::<u8>(), to.data.cast::<u8>());
            // SAFETY: as many bytes each (the invariant, R1), which may overlap; the caller's duty.
            unsafe { ptr::copy(from, to, bytes) };
        }
        Ok(())
    }
}

fn mismatch() -> Failure {
    Failure::new("expected leading axes that broadcast")
}
