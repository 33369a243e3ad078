//! The walk over the leading axes of a call, and the tensors that the function sees at each index.
//! Invariant: from each index within `leading`, the steps of a part lead to the first of the elements that its shape
//! and strides reach, alive for the lifetime; no other code accesses those of a part that is written.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

use dlbridge::ffi::{self, BorrowedTensor, Dims};
use dlbridge::sys::{DLDataType, DLTensor};
use dlbridge::{DType, Device, Element, Error, Flags, MAX_RANK, Tensor, View, ViewMut};

use super::operand::{Operand, Slot};
use crate::operator::{Inner, Kind, Scalar, Value};
use crate::{Failure, Instance};

/// So many parameters need no heap.
const FEW: usize = 8;

/// The places of a function's parameters, for each index of the leading axes.
pub(crate) struct Walk<'a, 'p> {
    leading: Dims,
    places: &'p mut [Place<'a>],
    added: usize,
}

/// Where the arguments for one parameter are.
pub(crate) enum Place<'a> {
    Read(Part<'a>),
    Write(Part<'a>),
    Absent,
    Scalar(Scalar),
    /// A scalar for each index, at an address and a step in bytes.
    Scalars(*const c_void, i64, unsafe fn(*const c_void) -> Scalar),
}

/// Where the parts of an operand are.
pub(crate) struct Part<'a> {
    data: *mut c_void,
    dtype: DType,
    shape: Dims,
    strides: Dims,
    device: Device,
    /// In bytes, along each leading axis.
    steps: Dims,
    memory: PhantomData<&'a mut c_void>,
}

/// The descriptor of the part at one index. Written when it is used.
struct Descriptor {
    tensor: MaybeUninit<DLTensor>,
    room: [MaybeUninit<i64>; MAX_RANK],
}

impl Descriptor {
    const fn new() -> Self {
        Self { tensor: MaybeUninit::uninit(), room: BorrowedTensor::NO_STRIDES }
    }
}

/// So many places: the first of `few`, or `many` if those do not suffice.
fn room<'r, T>(
    count: usize,
    few: &'r mut [T; FEW],
    many: &'r mut Vec<T>,
    empty: impl FnMut() -> T,
) -> &'r mut [T] {
    if count > FEW {
        many.resize_with(count, empty);
        return many;
    }
    &mut few[..count]
}

impl<'a> Walk<'a, '_> {
    /// Builds a walk over leading axes, for a function of so many parameters.
    pub(crate) fn with<R>(
        leading: Dims,
        parameters: usize,
        build: impl FnOnce(Walk<'a, '_>) -> R,
    ) -> R {
        let (mut few, mut many) = ([const { Place::Absent }; FEW], Vec::new());
        let places = room(parameters, &mut few, &mut many, || Place::Absent);
        build(Walk { leading, places, added: 0 })
    }

    fn push(&mut self, place: Place<'a>) -> Result<(), Failure> {
        let next = self.places.get_mut(self.added);
        *next.ok_or_else(|| Failure::new("more arguments than parameters"))? = place;
        self.added += 1;
        Ok(())
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
                return self.push(scalar.map_or(Place::Absent, Place::Scalar));
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
            let shape = joined(whole, &operand.shape[front..]);
            (shape, joined(&steps, &operand.strides[front..]), Dims::zeros(self.leading.len()))
        };
        // SAFETY: the operand's elements, by its invariant; repeated along axes without a step (R1, R2).
        unsafe { self.add_raw(operand.data, operand.dtype, shape, strides, steps, is_written) }?;
        if let Some(Place::Read(part) | Place::Write(part)) = self.places[..self.added].last_mut() {
            part.device = operand.device;
        }
        Ok(())
    }

    /// Adds a tensor in host memory, whose strides count elements, and whose steps count bytes.
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
    ) -> Result<(), Failure> {
        let (device, memory) = (Device::CPU, PhantomData);
        let part = Part { data, dtype, shape, strides, device, steps, memory };
        self.push(if is_written { Place::Write(part) } else { Place::Read(part) })
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
    ) -> Result<(), Failure> {
        self.push(Place::Scalars(data, step, read))
    }

    /// Calls an instance's function for each index.
    pub(crate) fn call(&mut self, instance: &Instance) -> Result<(), Failure> {
        self.each(|values| (instance.call)(values))
    }

    /// Calls a function for each index.
    pub(crate) fn each(
        &mut self,
        mut call: impl FnMut(&mut [Value<'_>]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let leading = &self.leading;
        let places = &mut self.places[..self.added];
        if leading.contains(&0) {
            return Ok(());
        }
        let (mut few, mut many) = ([const { Descriptor::new() }; FEW], Vec::new());
        let descriptors = room(places.len(), &mut few, &mut many, Descriptor::new);
        let mut index = Dims::zeros(leading.len());
        loop {
            let (mut few, mut many) = ([const { Value(Inner::Absent) }; FEW], Vec::new());
            let values = room(places.len(), &mut few, &mut many, || Value(Inner::Absent));
            for ((value, place), room) in values.iter_mut().zip(&mut *places).zip(&mut *descriptors)
            {
                *value = place.at(&index, room)?;
            }
            call(values)?;
            let Some(axis) = (0..leading.len()).rev().find(|&at| index[at] + 1 < leading[at])
            else {
                return Ok(());
            };
            index[axis] += 1;
            index[axis + 1..].fill(0);
        }
    }
}

/// Calls a function that sees all axes of its tensors.
pub(crate) fn once(
    instance: &Instance,
    arguments: &[Slot<'_>],
    outputs: &[Operand<'_>],
) -> Result<(), Failure> {
    let count = arguments.len() + outputs.len();
    let (mut few, mut many) = ([const { Descriptor::new() }; FEW], Vec::new());
    let mut rooms = room(count, &mut few, &mut many, Descriptor::new).iter_mut();
    let (mut few, mut many) = ([const { Value(Inner::Absent) }; FEW], Vec::new());
    let values = room(count, &mut few, &mut many, || Value(Inner::Absent));
    let (read, written) = values.split_at_mut(arguments.len());
    for (((value, slot), parameter), room) in
        read.iter_mut().zip(arguments).zip(instance.parameters).zip(&mut rooms)
    {
        value.0 = match slot {
            Slot::Tensor(operand) => match (operand.describe(room)?, parameter.kind) {
                (tensor, Kind::InPlace(_)) => Inner::Output(tensor),
                (tensor, _) => Inner::Input(tensor),
            },
            Slot::Absent => Inner::Absent,
            Slot::Scalar(scalar) => Inner::Scalar(*scalar),
        };
    }
    for ((value, operand), room) in written.iter_mut().zip(outputs).zip(rooms) {
        value.0 = Inner::Output(operand.describe(room)?);
    }
    (instance.call)(values)
}

impl Operand<'_> {
    fn describe<'r>(&'r self, to: &'r mut Descriptor) -> Result<Borrowed<'r>, Error> {
        // SAFETY: the operand's elements, by its invariant (R1, R2).
        unsafe { described(self.data, self.dtype, self.device, &self.shape, &self.strides, to) }
    }
}

/// Validates a description.
///
/// # Safety
///
/// `data` is the address of the first of the elements that shape and strides reach, alive for `'r` (R1, R2).
unsafe fn described<'r>(
    data: *mut c_void,
    dtype: DType,
    device: Device,
    shape: &'r [i64],
    strides: &'r [i64],
    to: &'r mut Descriptor,
) -> Result<Borrowed<'r>, Error> {
    let list = |numbers: &[i64]| match numbers {
        [] => ptr::null_mut(),
        numbers => numbers.as_ptr().cast_mut(),
    };
    // No code writes to the lists.
    let tensor = to.tensor.write(DLTensor {
        data,
        device: device.into(),
        ndim: shape.len() as i32,
        dtype: DLDataType::from(dtype),
        shape: list(shape),
        strides: list(strides),
        byte_offset: 0,
    });
    // SAFETY: the caller's duty, with lists that live as long.
    Ok(Borrowed(unsafe { BorrowedTensor::from_raw(tensor, &mut to.room, Flags::NONE) }?))
}

/// Two lists, one behind the other.
fn joined(front: &[i64], back: &[i64]) -> Dims {
    let mut all = Dims::zeros(front.len() + back.len());
    all[..front.len()].copy_from_slice(front);
    all[front.len()..].copy_from_slice(back);
    all
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
    fn at<'r>(&'r mut self, index: &[i64], room: &'r mut Descriptor) -> Result<Value<'r>, Error> {
        Ok(Value(match self {
            Self::Read(part) => Inner::Input(part.at(index, room)?),
            Self::Write(part) => Inner::Output(part.at(index, room)?),
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
    fn at<'r>(&'r mut self, index: &[i64], to: &'r mut Descriptor) -> Result<Borrowed<'r>, Error> {
        let steps = self.steps.iter().zip(index);
        let bytes: i64 = steps.map(|(step, at)| step.wrapping_mul(*at)).sum();
        let data = self.data.wrapping_byte_offset(bytes as isize);
        // SAFETY: the first of the elements at this index (the invariant; R1, R2).
        unsafe { described(data, self.dtype, self.device, &self.shape, &self.strides, to) }
    }
}

/// A validated part of an operand.
#[derive(Debug)]
pub(crate) struct Borrowed<'a>(BorrowedTensor<'a>);

impl Borrowed<'_> {
    pub(crate) fn tensor(&self) -> &Tensor {
        &self.0
    }

    pub(crate) fn view<T: Element>(&self) -> Result<View<'_, T>, Error> {
        self.0.view()
    }

    pub(crate) fn view_mut<T: Element>(&mut self) -> Result<ViewMut<'_, T>, Error> {
        // SAFETY: written, since `Inner::Output` alone calls this, and no other code accesses it (T10, T13);
        // borrowed mutably.
        unsafe { ffi::view_mut_unchecked(&self.0) }
    }
}
