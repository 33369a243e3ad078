//! The arguments of an operator's CUDA function: memory that only the device accesses.

use std::marker::PhantomData;
use std::ops::Deref;

use dlbridge::{Element, Tensor};

use crate::Failure;
use crate::kind::Scalar;

/// The value of one argument of a call of the CUDA function.
#[derive(Debug)]
pub struct DeviceValue<'a>(pub(crate) OnDevice<'a>);

#[derive(Debug)]
pub(crate) enum OnDevice<'a> {
    Read(&'a Tensor),
    Write(&'a Tensor),
    Absent,
    Scalar(Scalar),
}

/// The values of all arguments, in order.
pub type DeviceValues<'a> = Vec<DeviceValue<'a>>;

impl<'a> DeviceValue<'a> {
    pub(crate) fn view<T: Element>(self) -> Option<DeviceView<'a, T>> {
        match self.0 {
            OnDevice::Read(tensor) => Some(DeviceView { tensor, element: PhantomData }),
            _ => None,
        }
    }

    pub(crate) fn view_mut<T: Element>(self) -> Option<DeviceViewMut<'a, T>> {
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

    /// So many values, for the parameters of a function.
    ///
    /// # Errors
    ///
    /// If there are more or fewer.
    #[doc(hidden)]
    pub fn exactly<const N: usize>(values: DeviceValues<'a>) -> Result<[Self; N], Failure> {
        values.try_into().map_err(|_| Failure::of_count())
    }
}

/// A tensor in CUDA memory to read. It dereferences to a [`Tensor`] with its shape, strides, dtype, device and address.
///
/// It has the leading axes of the call in front of its own; a stride of 0 repeats its elements. The host cannot read
/// the elements: [`view`](Tensor::view) is an error.
#[derive(Debug, Clone, Copy)]
pub struct DeviceView<'a, T> {
    tensor: &'a Tensor,
    element: PhantomData<&'a T>,
}

/// A tensor in CUDA memory to fill or to change. Otherwise like [`DeviceView`].
#[derive(Debug)]
pub struct DeviceViewMut<'a, T> {
    view: DeviceView<'a, T>,
    element: PhantomData<&'a mut T>,
}

impl<T> DeviceView<'_, T> {
    /// The device address of the first element (a `CUdeviceptr`), as a kernel takes it.
    #[must_use]
    pub fn pointer(&self) -> u64 {
        self.tensor.data_ptr().addr() as u64
    }

    /// The same, for a kernel that expects contiguous elements.
    ///
    /// # Errors
    ///
    /// If there are gaps, or the elements are repeated or in another order.
    pub fn contiguous_pointer(&self) -> Result<u64, Failure> {
        if !self.tensor.is_contiguous() {
            let (shape, strides) = (self.tensor.shape(), self.tensor.strides());
            return Err(Failure::new(format!(
                "expected contiguous elements, found strides {strides:?} of the shape {shape:?}; pass x.contiguous()"
            )));
        }
        Ok(self.pointer())
    }
}

impl<T> Deref for DeviceView<'_, T> {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        self.tensor
    }
}

impl<'a, T> Deref for DeviceViewMut<'a, T> {
    type Target = DeviceView<'a, T>;

    fn deref(&self) -> &DeviceView<'a, T> {
        &self.view
    }
}
