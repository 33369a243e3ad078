//! Makes tensors over foreign memory that has no DLPack descriptor, and over other tensors' memory.
//! Reading the description belongs to the file of each protocol.
//! Invariant: no element's address overflows, and strides count elements. Only files of `ffi` describe
//! memory.

use std::ffi::c_void;

use dlbridge::ffi::{assume_class, assume_legacy, from_owner_at, keep_alive};
use dlbridge::{Access, ArcTensor, DType, Device, Flags, MAX_NDIM, Tensor, layout};
use pyo3::exceptions::PyValueError;

use crate::error::error_of;
use crate::{Error, Result};

/// A protocol's description of an object's memory.
pub(crate) struct ForeignMemory {
    /// The address of element `[0, 0, ...]`.
    pub(super) data: *mut c_void,
    pub(super) device: Device,
    pub(super) dtype: DType,
    pub(super) shape: Vec<i64>,
    /// In bytes; contiguous row-major ones if `None`.
    pub(super) strides: Option<Vec<i64>>,
    pub(super) read_only: bool,
}

/// The range of a tensor's elements in bytes, relative to the first one: the start of the lowest,
/// and the end of the highest.
pub(crate) struct Reach {
    pub(crate) below: usize,
    pub(crate) above: usize,
}

impl ForeignMemory {
    pub(crate) fn data(&self) -> *mut c_void {
        self.data
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Says which device the memory is on.
    #[cfg(feature = "cuda")]
    pub(crate) fn set_device(&mut self, device: Device) {
        self.device = device;
    }

    /// Steps in elements. An axis that is never stepped along may have any step.
    fn steps(&self) -> Result<Vec<i64>> {
        let mut steps = vec![0; self.shape.len()];
        layout::contiguous_strides(&self.shape, &mut steps);
        let Some(strides) = &self.strides else { return Ok(steps) };
        let (ndim, found) = (self.shape.len(), strides.len());
        if found != ndim {
            return Err(Error::buffer(format!("strides: expected {ndim} of them, found {found}")));
        }
        let itemsize = self.itemsize();
        let is_empty = layout::is_empty(&self.shape);
        for (axis, (step, &bytes)) in steps.iter_mut().zip(strides).enumerate() {
            if bytes % itemsize == 0 {
                *step = bytes / itemsize;
            } else if self.shape[axis] > 1 && !is_empty {
                return Err(Error::buffer(format!(
                    "strides: axis {axis}: expected a multiple of {itemsize} bytes, the size of \
                     {}, found {bytes}",
                    self.dtype
                )));
            }
        }
        Ok(steps)
    }

    /// The size of one element; every dtype that comes here has whole bytes.
    fn itemsize(&self) -> i64 {
        self.dtype.itemsize().map_or(1, |size| size.max(1) as i64)
    }

    /// Whether the elements are contiguous in row-major order.
    pub(crate) fn is_contiguous(&self) -> Result<bool> {
        Ok(layout::is_contiguous(&self.shape, &self.steps()?))
    }

    /// Measures the memory.
    ///
    /// # Errors
    ///
    /// More axes than a tensor has, a negative extent, strides that are not whole elements, and
    /// sizes or addresses that overflow.
    pub(crate) fn reach(&self) -> Result<Reach> {
        self.reach_by(&self.steps()?)
    }

    fn reach_by(&self, steps: &[i64]) -> Result<Reach> {
        if self.shape.len() > MAX_NDIM {
            let found = self.shape.len();
            return Err(Error::buffer(format!(
                "shape: expected {MAX_NDIM} axes or fewer, found {found}"
            )));
        }
        let span = layout::span(&self.shape, steps)?;
        // Broadcast axes make more elements than there are places.
        layout::nbytes(span.len, self.dtype, Flags::NONE)?;
        layout::nbytes(span.extent(), self.dtype, Flags::NONE)?;
        if span.len == 0 {
            return Ok(Reach { below: 0, above: 0 });
        }
        // Each is a part of the extent, so it fits.
        let size = |count: usize| layout::nbytes(count, self.dtype, Flags::NONE);
        let (below, above) = (size(span.low.unsigned_abs())?, size(span.high.unsigned_abs() + 1)?);
        let address = self.data.addr();
        if address.checked_sub(below).is_none() || address.checked_add(above).is_none() {
            let message = format!(
                "data: expected memory within the address space, found address {address:#x}"
            );
            return Err(Error::buffer(message));
        }
        Ok(Reach { below, above })
    }

    /// A tensor over this memory that keeps `owner`.
    ///
    /// # Safety
    ///
    /// As for [`Builder::build_raw`](dlbridge::Builder::build_raw): the elements are there as
    /// long as the owner lives.
    pub(super) unsafe fn tensor<O: Send + 'static>(self, owner: O) -> Result<Tensor> {
        let steps = self.steps()?;
        self.reach_by(&steps)?;
        let flags = if self.read_only { Flags::READ_ONLY } else { Flags::NONE };
        let (layout, memory) = ((self.dtype, &*self.shape, &*steps), (self.data, self.device));
        // SAFETY: the caller's duty.
        Ok(unsafe { from_owner_at(owner, layout, memory, flags) }?)
    }
}

/// The memory of a contiguous tensor on the host, with another dtype, shape and flags. Memory that is
/// read-only stays so.
///
/// # Errors
///
/// A `ValueError` for other memory, for a shape or a dtype that no tensor has, or that has not as many
/// bytes.
pub(crate) fn reinterpret(
    bytes: Tensor,
    dtype: DType,
    shape: &[i64],
    flags: Flags,
) -> Result<Tensor> {
    let wrong = |message: String| Error::from(error_of::<PyValueError>(message));
    if !bytes.device().is_host_accessible() || !bytes.is_contiguous() {
        return Err(wrong(format!(
            "data: expected contiguous bytes in host memory, found strides {:?} on {}",
            bytes.strides(),
            bytes.device()
        )));
    }
    let size = |error: dlbridge::Error| wrong(error.to_string());
    let mut strides = vec![0; shape.len()];
    layout::contiguous_strides(shape, &mut strides);
    let len = layout::span(shape, &strides).map_err(size)?.len;
    let expected = layout::nbytes(len, dtype, flags).map_err(size)?;
    if expected != bytes.nbytes() {
        let found = bytes.nbytes();
        return Err(wrong(format!(
            "data: expected {expected} bytes of {dtype}{shape:?}, found {found}"
        )));
    }
    let read_only = if bytes.is_read_only() { Flags::READ_ONLY } else { Flags::NONE };
    let data = bytes.data_ptr();
    let (layout, memory) = ((dtype, shape, &*strides), (data, Device::CPU));
    // SAFETY: `expected` bytes from `data` on, which the owner keeps (T3); `read_only` says whether
    // they may be written (T8).
    unsafe { from_owner_at(bytes, layout, memory, Flags(flags.0 | read_only.0)) }.map_err(size)
}

/// The same bytes as elements of another dtype, along the last axis.
///
/// # Errors
///
/// A `ValueError` for another size of the elements, if the last axis has gaps, or if its bytes, or a stride, are no whole
/// number of elements.
pub(crate) fn viewed(tensor: &ArcTensor, dtype: DType) -> Result<Tensor> {
    let wrong = |message: String| Err(Error::from(error_of::<PyValueError>(message)));
    let found = tensor.dtype();
    let is_padded = tensor.flags().contains(Flags::SUBBYTE_PADDED);
    let flags = Flags(tensor.flags().0 & (Flags::READ_ONLY | Flags::SUBBYTE_PADDED).0);
    let (mut shape, mut strides) = (tensor.shape().to_vec(), tensor.strides().to_vec());
    if found.element_bits() != dtype.element_bits() {
        let is_dense = !is_padded
            && strides.last().zip(shape.last()).is_some_and(|(&step, &len)| step == 1 || len < 2);
        if !is_dense {
            return wrong(format!(
                "dtype: expected elements of {} bits, or a last axis without gaps, found {dtype}; pass \
                 np.ascontiguousarray(x)",
                found.element_bits()
            ));
        }
        let (old, new) = (i64::from(found.element_bits()), i64::from(dtype.element_bits()));
        let scaled = |number: i64| {
            let bits = number.checked_mul(old)?;
            (new != 0 && bits % new == 0).then(|| bits / new)
        };
        let last = shape.len() - 1;
        for axis in 0..last {
            strides[axis] = match scaled(strides[axis]) {
                Some(stride) => stride,
                // Never stepped along.
                None if shape[axis] < 2 => 0,
                None => {
                    let stride = strides[axis];
                    return wrong(format!(
                        "strides: axis {axis}: expected whole elements of {dtype}, found {stride} of {found}; pass \
                         np.ascontiguousarray(x)"
                    ));
                }
            };
        }
        let Some(extent) = scaled(shape[last]) else {
            return wrong(format!(
                "shape: axis {last}: expected whole elements of {dtype}, found {} of {found}",
                shape[last]
            ));
        };
        (shape[last], strides[last]) = (extent, 1);
    }
    let (layout, memory) = ((dtype, &*shape, &*strides), (tensor.data_ptr(), tensor.device()));
    // SAFETY: the bytes of `tensor`, whose memory the owner keeps (T3); read-only if it is (T8).
    let viewed = match keep_alive(tensor) {
        // SAFETY: as above.
        Some(owner) => unsafe { from_owner_at(owner, layout, memory, flags) },
        // SAFETY: as above.
        None => unsafe { from_owner_at(Tensor::from(tensor.clone()), layout, memory, flags) },
    };
    // SAFETY: the memory of a legacy producer, as `tensor` is (T8).
    Ok(if tensor.is_legacy_read_only() { unsafe { assume_legacy(viewed?) } } else { viewed? })
}

/// Device memory that a framework's allocator just made, which may be written on the device. The host cannot access it.
///
/// # Errors
///
/// Host memory, and memory that is read-only or has gaps.
pub(crate) fn exclusive_on_device(tensor: Tensor) -> Result<Tensor> {
    let device = tensor.device();
    if device.is_host_accessible() {
        return Err(Error::buffer(format!("device: expected memory of a GPU, found {device}")));
    }
    if tensor.is_read_only() {
        return Err(dlbridge::Error::ReadOnly.into());
    }
    if !tensor.is_contiguous() {
        let (shape, strides) = (tensor.shape(), tensor.strides());
        let message =
            format!("strides: expected contiguous memory, found {strides:?} for shape {shape:?}");
        return Err(Error::buffer(message));
    }
    // SAFETY: an allocator's memory is new (T10), and no code of the host reads or writes it.
    Ok(unsafe { assume_class(tensor, Access::Exclusive) })
}
