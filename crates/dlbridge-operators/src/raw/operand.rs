//! The tensors of a call: memory that a framework describes.
//! Invariant: an `Operand`'s elements are alive for its lifetime; no other code writes those of one that is filled.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;

use dlbridge::ffi::{Bytes, Dims};
use dlbridge::{Access, DType, Device, Tensor, layout};

use crate::Failure;
use crate::operator::Scalar;

/// One argument or result of a call.
#[derive(Debug)]
pub(crate) enum Slot<'a> {
    Tensor(Operand<'a>),
    /// An optional tensor that is absent.
    Absent,
    Scalar(Scalar),
}

impl<'a> Slot<'a> {
    pub(crate) fn tensor(&self) -> Option<&Operand<'a>> {
        match self {
            Self::Tensor(operand) => Some(operand),
            Self::Absent | Self::Scalar(_) => None,
        }
    }

    pub(crate) fn shape(&self) -> Option<&[i64]> {
        self.tensor().map(|operand| &*operand.shape)
    }
}

/// A tensor of a call. Strides count elements.
#[derive(Debug)]
pub(crate) struct Operand<'a> {
    pub(super) data: *mut c_void,
    pub(crate) dtype: DType,
    pub(crate) shape: Dims,
    pub(super) strides: Dims,
    pub(crate) device: Device,
    memory: PhantomData<&'a mut c_void>,
}

impl<'a> Operand<'a> {
    /// A tensor in host memory.
    ///
    /// # Safety
    ///
    /// `shape` and `strides` reach only elements of `dtype` in one allocation from `data` on, alive for `'a`. If
    /// it is filled, no other code accesses them meanwhile.
    pub(crate) unsafe fn new(
        data: *mut c_void,
        dtype: DType,
        shape: Dims,
        strides: Option<Dims>,
    ) -> Self {
        let strides = strides.unwrap_or_else(|| contiguous(&shape));
        Self { data, dtype, shape, strides, device: Device::CPU, memory: PhantomData }
    }

    /// The same memory, which is on this device. The elements of a GPU's are never accessed here.
    pub(crate) fn on(self, device: Device) -> Self {
        Self { device, ..self }
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
        let (shape, strides) = (Dims::from(tensor.shape()), Dims::from(tensor.strides()));
        // SAFETY: a valid tensor, borrowed for `'a` (R1, R2).
        Ok(unsafe { Self::new(tensor.data_ptr(), tensor.dtype(), shape, Some(strides)) })
    }

    /// A tensor to fill.
    pub(crate) fn filling(tensor: &'a mut Tensor) -> Result<Self, Failure> {
        // Exclusive, so that no other code reads or writes the elements.
        if tensor.access() != Access::Exclusive {
            return Err(Failure::new("expected exclusive memory to fill"));
        }
        Self::reading(tensor)
    }

    /// Whether writing to it is well defined, beside tensors that are read: no element has two indices, and none is
    /// one of theirs.
    pub(crate) fn check_written(&self, name: &str, others: &[Slot<'_>]) -> Result<(), Failure> {
        if layout::may_overlap(&self.shape, &self.strides) {
            return Err(Failure::new(format!(
                "{name}: expected elements that are written once, found some that are written more than once; pass a copy"
            )));
        }
        let Some(own) = self.bytes()? else { return Ok(()) };
        for other in others.iter().filter_map(Slot::tensor).filter(|other| !ptr::eq(*other, self)) {
            if other.bytes()?.is_some_and(|other| own.overlaps(&other)) {
                return Err(Failure::new(format!(
                    "{name}: expected memory that no other argument has, found some that is another one's; pass a copy"
                )));
            }
        }
        Ok(())
    }

    /// The bytes of the elements; `None` without elements.
    fn bytes(&self) -> Result<Option<Bytes>, Failure> {
        // Checks that no size overflows.
        layout::span(&self.shape, &self.strides)?;
        let size = self.dtype.itemsize().unwrap_or(1);
        Ok(Bytes::of(self.data.addr(), &self.shape, &self.strides, size))
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
        let is_contiguous = |one: &Operand<'_>| layout::is_contiguous(&one.shape, &one.strides);
        if (self.dtype, &*self.shape) != (to.dtype, &*to.shape)
            || !is_contiguous(self)
            || !is_contiguous(to)
        {
            return Err(Failure::new(
                "expected a result with the extents of the argument in place",
            ));
        }
        let bytes = layout::contiguous_nbytes(self.dtype, &self.shape)?;
        if self.data != to.data && bytes > 0 {
            let (from, to) = (self.data.cast::<u8>(), to.data.cast::<u8>());
            // SAFETY: as many bytes each (the invariant, R1), which may overlap; the caller's duty.
            unsafe { ptr::copy(from, to, bytes) };
        }
        Ok(())
    }
}

/// The strides of contiguous elements.
pub(crate) fn contiguous(shape: &[i64]) -> Dims {
    let mut strides = Dims::zeros(shape.len());
    layout::contiguous_strides(shape, &mut strides);
    strides
}
