//! The walk over the leading axes of a call, and the tensors that the function sees at each index.
//! Invariant: from each index within `leading`, the steps of a part lead to the first of the elements that its shape
//! and strides reach, alive for the lifetime; no other code accesses those of a part that is written.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

use dlbridge::ffi::{self, BorrowedTensor, Dims};
use dlbridge::sys::{DLDataType, DLTensor};
use dlbridge::{DType, Device, Element, Error, Flags, MAX_RANK, View, ViewMut};

use super::operand::{Operand, Slot};
use crate::operator::{Inner, Scalar, Value};
use crate::{Failure, Instance};

/// The places of a function's parameters, for each index of the leading axes.
pub(crate) struct Walk<'a> {
    leading: Dims,
    places: Vec<Place<'a>>,
}

enum Place<'a> {
    Read(Part<'a>),
    Write(Part<'a>),
    Absent,
    Scalar(Scalar),
    /// A scalar for each index, at an address and a step in bytes.
    Scalars(*const c_void, i64, unsafe fn(*const c_void) -> Scalar),
}

/// Where the parts of an operand are.
struct Part<'a> {
    data: *mut c_void,
    dtype: DType,
    shape: Dims,
    strides: Dims,
    /// In bytes, along each leading axis.
    steps: Dims,
    tensor: MaybeUninit<DLTensor>,
    room: [MaybeUninit<i64>; MAX_RANK],
    memory: PhantomData<&'a mut c_void>,
}

impl<'a> Walk<'a> {
    /// A walk over leading axes, for a function of so many parameters.
    pub(crate) fn new(leading: Dims, parameters: usize) -> Self {
        Self { leading, places: Vec::with_capacity(parameters) }
    }

    /// Adds the next parameter, whose tensor has `core` axes of its own. `whole` are leading axes that the function
    /// sees as well.
    ///
    /// # Errors
    ///
    /// If the leading axes of the tensor do not broadcast, or one that is written would be repeated.
    pub(crate) fn add(
        &mut self,
        slot: &Slot<'a>,
        core: usize,
        whole: &[i64],
        is_written: bool,
    ) -> Result<(), Failure> {
        let operand = match slot {
            Slot::Tensor(operand) => operand,
            Slot::Absent | Slot::Scalar(_) => {
                let scalar = if let Slot::Scalar(scalar) = slot { Some(*scalar) } else { None };
                self.places.push(scalar.map_or(Place::Absent, Place::Scalar));
                return Ok(());
            }
        };
        let leading = if whole.is_empty() { &self.leading[..] } else { whole };
        let front = operand.shape.len().checked_sub(core);
        let front = front.filter(|front| *front <= leading.len()).ok_or_else(mismatch)?;
        let steps = broadcast(operand, front, leading)?;
        if is_written && operand.shape[..front] != *leading {
            let found = &operand.shape[..front];
            return Err(Failure::new(format!(
                "expected leading axes {leading:?} of a tensor that is written, found {found:?}"
            )));
        }
        let itemsize = operand.dtype.itemsize().unwrap_or(0) as i64;
        let (shape, strides, steps) = if whole.is_empty() {
            let mut steps = steps;
            steps.iter_mut().for_each(|step| *step = step.wrapping_mul(itemsize));
            let own = |list: &[i64]| Dims::from(&list[front..]);
            (own(&operand.shape), own(&operand.strides), steps)
        } else {
            (Dims::from(whole), steps, Dims::zeros(self.leading.len()))
        };
        // SAFETY: the operand's elements, by its invariant; repeated along axes without a step (R1, R2).
        unsafe { self.add_raw(operand.data, operand.dtype, shape, strides, steps, is_written) };
        Ok(())
    }

    /// Adds a tensor whose strides count elements, and whose steps count bytes.
    ///
    /// # Safety
    ///
    /// The invariant of this file.
    pub(crate) unsafe fn add_raw(
        &mut self,
        data: *mut c_void,
        dtype: DType,
        shape: Dims,
        strides: Dims,
        steps: Dims,
        is_written: bool,
    ) {
        let (tensor, room) = (MaybeUninit::uninit(), BorrowedTensor::NO_STRIDES);
        let part = Part { data, dtype, shape, strides, steps, tensor, room, memory: PhantomData };
        self.places.push(if is_written { Place::Write(part) } else { Place::Read(part) });
    }

    /// Adds a scalar for each index of a walk along one axis.
    ///
    /// # Safety
    ///
    /// From each index, `step` leads from `data` to a value that `read` may read.
    pub(crate) unsafe fn add_scalars(
        &mut self,
        data: *const c_void,
        step: i64,
        read: unsafe fn(*const c_void) -> Scalar,
    ) {
        self.places.push(Place::Scalars(data, step, read));
    }

    /// Calls a function for each index.
    pub(crate) fn call(&mut self, instance: &Instance) -> Result<(), Failure> {
        let Self { leading, places } = self;
        if leading.contains(&0) {
            return Ok(());
        }
        let mut index = Dims::zeros(leading.len());
        loop {
            let values = places.iter_mut().map(|place| place.at(&index));
            let mut values = values.collect::<Result<Vec<_>, _>>()?;
            (instance.call)(&mut values)?;
            drop(values);
            let Some(axis) = (0..leading.len()).rev().find(|&at| index[at] + 1 < leading[at])
            else {
                return Ok(());
            };
            index[axis] += 1;
            index[axis + 1..].fill(0);
        }
    }
}

/// The strides of an operand along axes to which its first `front` ones broadcast.
fn broadcast(operand: &Operand<'_>, front: usize, leading: &[i64]) -> Result<Dims, Failure> {
    let mut steps = Dims::zeros(leading.len());
    // An axis that the operand lacks, or has once, is repeated.
    let missing = leading.len() - front;
    for (own, (step, &extent)) in steps[missing..].iter_mut().zip(&leading[missing..]).enumerate() {
        match operand.shape[own] {
            found if found == extent => *step = operand.strides[own],
            1 => {}
            _ => return Err(mismatch()),
        }
    }
    Ok(steps)
}

fn mismatch() -> Failure {
    Failure::new("expected leading axes that broadcast")
}

impl Place<'_> {
    /// The value at an index within the leading axes.
    fn at(&mut self, index: &[i64]) -> Result<Value<'_>, Error> {
        Ok(Value(match self {
            Self::Read(part) => Inner::Input(part.at(index)?),
            Self::Write(part) => Inner::Output(part.at(index)?),
            Self::Absent => Inner::Absent,
            Self::Scalar(scalar) => Inner::Scalar(*scalar),
            Self::Scalars(data, step, read) => {
                let bytes = index.first().map_or(0, |at| at.wrapping_mul(*step));
                // SAFETY: an address of a value (the duty of who added the scalars).
                Inner::Scalar(unsafe { read(data.wrapping_byte_offset(bytes as isize)) })
            }
        }))
    }
}

impl Part<'_> {
    fn at(&mut self, index: &[i64]) -> Result<Borrowed<'_>, Error> {
        let steps = self.steps.iter().zip(index);
        let bytes: i64 = steps.map(|(step, at)| step.wrapping_mul(*at)).sum();
        let tensor = self.tensor.write(DLTensor {
            data: self.data.wrapping_byte_offset(bytes as isize),
            device: Device::CPU.into(),
            ndim: self.shape.len() as i32,
            dtype: DLDataType::from(self.dtype),
            shape: self.shape.as_mut_ptr(),
            strides: self.strides.as_mut_ptr(),
            byte_offset: 0,
        });
        if self.shape.is_empty() {
            (tensor.shape, tensor.strides) = (ptr::null_mut(), ptr::null_mut());
        }
        // SAFETY: the first of the elements at this index (the invariant; R1, R2), with lists that live as long.
        Ok(Borrowed(unsafe { BorrowedTensor::from_raw(tensor, &mut self.room, Flags::NONE) }?))
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
        // SAFETY: written, since `Inner::Output` alone calls this, and no other code accesses it (T10, T13);
        // borrowed mutably.
        unsafe { ffi::view_mut_unchecked(&self.0) }
    }
}
