//! The tensors of a call: host memory that a framework describes.
//! Invariant: an `Operand`'s elements are alive for its lifetime; no other code writes those
//! of an output.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use dlbridge::ffi::{self, BorrowedTensor};
use dlbridge::sys::{DLDataType, DLTensor};
use dlbridge::{
    Access, DType, Device, Element, Error, Flags, MAX_RANK, Tensor, View, ViewMut, layout,
};

use crate::Failure;

/// A tensor of a call, in host memory. Strides count elements.
#[derive(Debug)]
pub(crate) struct Operand<'a> {
    data: *mut c_void,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<i64>,
    pub(crate) strides: Vec<i64>,
    memory: PhantomData<&'a mut c_void>,
}

impl<'a> Operand<'a> {
    /// # Safety
    ///
    /// `shape` and `strides` reach only elements of `dtype` in one allocation from `data` on, alive for `'a`. If
    /// it is filled, no other code accesses them meanwhile.
    pub(crate) unsafe fn new(
        data: *mut c_void,
        dtype: DType,
        shape: Vec<i64>,
        strides: Vec<i64>,
    ) -> Self {
        Self { data, dtype, shape, strides, memory: PhantomData }
    }

    /// A tensor in host memory, to read.
    pub(crate) fn reading(tensor: &'a Tensor) -> Result<Self, Failure> {
        if !tensor.device().is_host_accessible() {
            let device = tensor.device();
            return Err(Failure::new(format!("expected host memory, found memory on {device}")));
        }
        let (shape, strides) = (tensor.shape().to_vec(), tensor.strides().to_vec());
        // SAFETY: a valid tensor, borrowed for `'a` (R1, R2).
        Ok(unsafe { Self::new(tensor.data_ptr(), tensor.dtype(), shape, strides) })
    }

    /// A tensor to fill.
    pub(crate) fn filling(tensor: &'a mut Tensor) -> Result<Self, Failure> {
        // Exclusive, so that no other code reads or writes the elements.
        if tensor.access() != Access::Exclusive {
            return Err(Failure::new("expected exclusive memory to fill"));
        }
        Self::reading(tensor)
    }

    /// The parts at the indices of broadcast leading axes: what the function sees of the operand, which has `core`
    /// axes of its own. If `is_whole`, the function sees all axes at once.
    ///
    /// # Errors
    ///
    /// If the operand's leading axes do not broadcast to `leading`.
    pub(crate) fn parts(
        &self,
        core: usize,
        leading: &[i64],
        is_whole: bool,
    ) -> Result<Parts<'_>, Failure> {
        let wrong = || Failure::new("expected leading axes that broadcast");
        let front = self.shape.len().checked_sub(core).ok_or_else(wrong)?;
        // An axis that the operand lacks, or has once, is repeated.
        let missing = leading.len().checked_sub(front).ok_or_else(wrong)?;
        let mut steps = vec![0; leading.len()];
        for (axis, step) in steps.iter_mut().enumerate().skip(missing) {
            let own = axis - missing;
            match self.shape[own] {
                extent if extent == leading[axis] => *step = self.strides[own],
                1 => {}
                _ => return Err(wrong()),
            }
        }
        let leading = leading.to_vec();
        let (shape, strides, leading, steps) = if is_whole && core == 0 {
            (leading, steps, Vec::new(), Vec::new())
        } else {
            (self.shape[front..].to_vec(), self.strides[front..].to_vec(), leading, steps)
        };
        Ok(Parts { operand: self, shape, strides, leading, steps })
    }
}

/// The strides of contiguous elements.
pub(crate) fn contiguous(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![0; shape.len()];
    layout::contiguous_strides(shape, &mut strides);
    strides
}

/// The parts of an operand. Invariant: from an index of `leading`, `steps` lead to the first of the elements of a
/// part of `shape` and `strides`.
pub(crate) struct Parts<'o> {
    operand: &'o Operand<'o>,
    shape: Vec<i64>,
    strides: Vec<i64>,
    leading: Vec<i64>,
    steps: Vec<i64>,
}

impl Parts<'_> {
    /// The part at an index.
    ///
    /// # Panics
    ///
    /// If there is no such index.
    pub(crate) fn at(&self, index: &[i64]) -> Part<'_> {
        let is_inside = |(at, extent): (&i64, &i64)| (0..*extent).contains(at);
        let fits =
            index.len() == self.leading.len() && index.iter().zip(&self.leading).all(is_inside);
        assert!(fits, "expected an index within {:?}, found {index:?}", self.leading);
        let offset: i64 = self.steps.iter().zip(index).map(|(step, at)| step * at).sum();
        let dtype = self.operand.dtype;
        let bytes = offset.wrapping_mul(dtype.itemsize().unwrap_or(0) as i64);
        let data = self.operand.data.cast::<u8>().wrapping_offset(bytes as isize).cast();
        let tensor = DLTensor {
            data,
            device: Device::CPU.into(),
            ndim: self.shape.len() as i32,
            dtype: DLDataType::from(dtype),
            shape: self.shape.as_ptr().cast_mut(),
            strides: self.strides.as_ptr().cast_mut(),
            byte_offset: 0,
        };
        Part { tensor, room: BorrowedTensor::NO_STRIDES, lists: PhantomData }
    }
}

/// A described part of an operand.
pub(crate) struct Part<'v> {
    tensor: DLTensor,
    room: [MaybeUninit<i64>; MAX_RANK],
    lists: PhantomData<&'v i64>,
}

impl Part<'_> {
    /// Validates the description.
    pub(crate) fn borrow(&mut self) -> Result<Borrowed<'_>, Error> {
        let Self { tensor, room, .. } = self;
        // SAFETY: a part of an operand (its invariant; R1, R2), with lists that live as long as this.
        Ok(Borrowed(unsafe { BorrowedTensor::from_raw(tensor, room, Flags::NONE) }?))
    }
}

/// A validated part of an operand.
#[derive(Debug)]
pub(crate) struct Borrowed<'a>(BorrowedTensor<'a>);

impl Borrowed<'_> {
    pub(crate) fn view<T: Element>(&self) -> Result<View<'_, T>, Error> {
        self.0.view()
    }

    pub(crate) fn view_mut<T: Element>(&mut self) -> Result<ViewMut<'_, T>, Error> {
        // SAFETY: an output, since `Inner::Output` alone calls this, which no other code accesses (T10); borrowed
        // mutably.
        unsafe { ffi::view_mut_unchecked(&self.0) }
    }
}
