//! The description of a tensor as plain structs for C.
//! Owning tensors belongs to `handle`.
//! Invariant: the pointers of an info are those of its tensor.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use dlbridge::{DType, Device, DeviceKind, Tensor, TypeCode, layout};

use crate::entry::{contained, write_out, write_text};
use crate::error::{Error, Result, Status};

/// A stream that memory is ready on.
pub(crate) type Stream = Option<*mut c_void>;

/// The type of one element, with the numbers of DLPack's `DLDataType`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct DataType {
    /// The kind of number: one of `DLB_TYPE_*`, or a newer one.
    pub code: u8,
    /// Width of one lane in bits.
    pub bits: u8,
    /// Numbers in one element; 1 for anything but a vector type.
    pub lanes: u16,
}

/// A device, with the numbers of DLPack's `DLDevice`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct DeviceId {
    /// The kind of device: one of `DLB_DEVICE_*`, or a newer one.
    pub kind: i32,
    /// The number of the device among those of its kind.
    pub id: i32,
}

/// The address, shape, strides, type and device of a tensor. Filled by the library only; later
/// versions add fields at the end.
#[derive(Debug)]
#[repr(C)]
pub struct TensorInfo {
    /// The address of element `[0, 0, ...]`. May be null if there are no elements. On a device
    /// without addresses it is a handle.
    pub data: *mut c_void,
    /// The offset of the first element from a handle, in bytes; 0 on devices with addresses.
    pub byte_offset: u64,
    /// `ndim` extents, outermost axis first. `ndim` is at most 64.
    pub shape: *const i64,
    /// `ndim` steps from one element to the next, in elements. Never null.
    pub strides: *const i64,
    /// The number of elements.
    pub len: usize,
    /// The sum of `DLB_FLAG_*`.
    pub flags: u64,
    /// The device that the memory is on.
    pub device: DeviceId,
    /// The type of the elements.
    pub dtype: DataType,
    /// The number of axes.
    pub ndim: i32,
    /// Whether the host can read `data`: 1 or 0.
    pub is_host: u8,
    /// Whether the elements are contiguous in row-major order: 1 or 0.
    pub is_row_major: u8,
    /// Whether they are contiguous in column-major order: 1 or 0.
    pub is_column_major: u8,
    /// Whether `stream` is known: 1 or 0.
    pub has_stream: u8,
    /// The stream of the device on which the memory is ready: a handle of its driver. Other streams
    /// must wait for it.
    pub stream: *mut c_void,
}

impl TensorInfo {
    pub(crate) fn of(tensor: &Tensor, stream: Stream) -> Self {
        let (shape, strides) = (tensor.shape(), tensor.strides());
        let (device, dtype) = (tensor.device(), tensor.dtype());
        Self {
            data: tensor.data_ptr(),
            byte_offset: tensor.byte_offset(),
            shape: shape.as_ptr(),
            strides: strides.as_ptr(),
            len: tensor.len(),
            flags: tensor.flags().0,
            device: DeviceId { kind: device.kind.0, id: device.id },
            dtype: DataType { code: dtype.code.0, bits: dtype.bits, lanes: dtype.lanes },
            // At most `MAX_NDIM`.
            ndim: shape.len() as i32,
            is_host: device.is_host_accessible().into(),
            is_row_major: tensor.is_contiguous().into(),
            is_column_major: layout::is_column_major(shape, strides).into(),
            has_stream: stream.is_some().into(),
            stream: stream.unwrap_or(ptr::null_mut()),
        }
    }
}

impl DataType {
    pub(crate) fn dtype(self) -> DType {
        DType { code: TypeCode(self.code), bits: self.bits, lanes: self.lanes }
    }
}

impl DeviceId {
    pub(crate) fn device(self) -> Device {
        Device::new(DeviceKind(self.kind), self.id)
    }
}

/// Writes a type's name, such as `float32`, to `buffer` and gives its length. A name that does not
/// fit `size` bytes with its closing zero is cut; 64 bytes are enough for all.
///
/// # Safety
///
/// `buffer` is null or can be written for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_dtype_name(
    dtype: DataType,
    buffer: *mut c_char,
    size: usize,
) -> usize {
    let name = contained(String::new(), || dtype.dtype().to_string());
    // SAFETY: the caller's duty.
    unsafe { write_text(&name, buffer, size) }
}

/// Writes a device's name, such as `cuda:0`, to `buffer`; otherwise as `dlb_dtype_name`.
///
/// # Safety
///
/// As for `dlb_dtype_name`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_device_name(
    device: DeviceId,
    buffer: *mut c_char,
    size: usize,
) -> usize {
    let name = contained(String::new(), || device.device().to_string());
    // SAFETY: the caller's duty.
    unsafe { write_text(&name, buffer, size) }
}

/// Reads the name of a type, such as `float32` or `complex64`, as `dlb_dtype_name` writes it.
///
/// # Safety
///
/// `name` is null or a text; `out` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_dtype_parse(name: *const c_char, out: *mut DataType) -> Status {
    let parse = || {
        // SAFETY: the caller's duty.
        let DType { code, bits, lanes } = unsafe { text(name) }?.parse()?;
        Ok(DataType { code: code.0, bits, lanes })
    };
    // SAFETY: the caller's duty.
    unsafe { write_out(out, parse) }
}

/// # Safety
///
/// `text` is null, or ends with a zero byte and lives for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(Error::Invalid("name: expected a text, found a null pointer"));
    }
    // SAFETY: the caller's duty.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Error::Invalid("name: expected UTF-8, found other bytes"))
}
