//! The arguments of an operator's CUDA function: memory that only the device accesses.

use std::marker::PhantomData;
use std::ops::Deref;

use dlbridge::{Element, Tensor};

use crate::Failure;
use crate::operator::{Inner, Value, other_kind};

/// A tensor in CUDA memory to read: shape, strides, dtype, device and address, by the [`Tensor`] that it is.
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

impl<'a, T: Element> DeviceView<'a, T> {
    pub(crate) fn new(value: &'a Value<'_>) -> Result<Self, Failure> {
        match &value.0 {
            Inner::Input(tensor) => Ok(Self { tensor: tensor.tensor(), element: PhantomData }),
            _ => other_kind("a tensor to read"),
        }
    }
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

impl<'a, T: Element> DeviceViewMut<'a, T> {
    pub(crate) fn new(value: &'a mut Value<'_>) -> Result<Self, Failure> {
        match &value.0 {
            Inner::Output(tensor) => {
                let view = DeviceView { tensor: tensor.tensor(), element: PhantomData };
                Ok(Self { view, element: PhantomData })
            }
            _ => other_kind("a tensor to fill"),
        }
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
