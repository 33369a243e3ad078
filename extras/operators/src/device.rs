//! The arguments of an operator's CUDA function: memory that only the device accesses.

use std::marker::PhantomData;
use std::ops::Deref;

use dlbridge::{Element, Tensor};

use crate::Failure;
use crate::kind::Scalar;

/// The value of one argument of a call of the CUDA function.
#[derive(Debug)]
pub struct DeviceValue<'a>(pub(crate) OnDevice, pub(crate) PhantomData<&'a ()>);

/// A tensor owns no memory: no other code gets it by value.
#[derive(Debug)]
pub(crate) enum OnDevice {
    Read(Tensor),
    Write(Tensor),
    Absent,
    Scalar(Scalar),
}

impl<'a> DeviceValue<'a> {
    pub(crate) fn view<T: Element, S: Strides>(self) -> Option<DeviceView<'a, T, S>> {
        match self.0 {
            OnDevice::Read(tensor) => Some(DeviceView { tensor, element: PhantomData }),
            _ => None,
        }
    }

    pub(crate) fn view_mut<T: Element, S: Strides>(self) -> Option<DeviceViewMut<'a, T, S>> {
        match self.0 {
            OnDevice::Write(tensor) => {
                let view = DeviceView { tensor, element: PhantomData };
                Some(DeviceViewMut { view, element: PhantomData })
            }
            _ => None,
        }
    }

    pub(crate) fn is_absent(&self) -> bool {
        matches!(self.0, OnDevice::Absent)
    }

    pub(crate) fn scalar(&self) -> Option<Scalar> {
        if let OnDevice::Scalar(scalar) = self.0 { Some(scalar) } else { None }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// The strides that a CUDA function takes: [`Contiguous`] or [`Strided`].
pub trait Strides: sealed::Sealed {
    /// Whether the elements must be contiguous.
    #[doc(hidden)]
    const ARE_CONTIGUOUS: bool;
}

/// Elements without gaps, in row-major order. PyTorch makes a contiguous copy of a tensor with other strides, or
/// of one that is broadcast, on the stream of the call; JAX passes nothing else.
#[derive(Debug)]
pub enum Contiguous {}

/// Elements of any strides, which count elements; a stride of 0 repeats them.
#[derive(Debug)]
pub enum Strided {}

impl sealed::Sealed for Contiguous {}

impl Strides for Contiguous {
    const ARE_CONTIGUOUS: bool = true;
}

impl sealed::Sealed for Strided {}

impl Strides for Strided {
    const ARE_CONTIGUOUS: bool = false;
}

/// A tensor in CUDA memory to read. It dereferences to a [`Tensor`] with its shape, strides, dtype, device and address.
///
/// It has the leading axes of the call in front of its own. Its elements are contiguous, unless the function's
/// parameter is a `DeviceView<'_, T, Strided>`. The host cannot read them: [`view`](Tensor::view) is an error.
#[derive(Debug)]
pub struct DeviceView<'a, T, S: Strides = Contiguous> {
    tensor: Tensor,
    element: PhantomData<(&'a T, S)>,
}

/// A tensor in CUDA memory to fill or to change. Otherwise like [`DeviceView`].
#[derive(Debug)]
pub struct DeviceViewMut<'a, T, S: Strides = Contiguous> {
    view: DeviceView<'a, T, S>,
    element: PhantomData<&'a mut T>,
}

impl<T, S: Strides> DeviceView<'_, T, S> {
    /// The device address of the first element (a `CUdeviceptr`), as a kernel takes it.
    #[must_use]
    pub fn pointer(&self) -> u64 {
        self.tensor.data_ptr().addr() as u64
    }
}

impl<T, S: Strides> Deref for DeviceView<'_, T, S> {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.tensor
    }
}

impl<'a, T, S: Strides> Deref for DeviceViewMut<'a, T, S> {
    type Target = DeviceView<'a, T, S>;

    fn deref(&self) -> &DeviceView<'a, T, S> {
        &self.view
    }
}

/// The values of the arguments of a call, in order.
#[derive(Debug)]
pub struct DeviceValues<'a>(pub(crate) std::vec::IntoIter<DeviceValue<'a>>);

impl<'a> DeviceValues<'a> {
    /// The next one.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(crate) fn next(&mut self) -> Result<DeviceValue<'a>, Failure> {
        self.0.next().ok_or_else(Failure::of_count)
    }
}
