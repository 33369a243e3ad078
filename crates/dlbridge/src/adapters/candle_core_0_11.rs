//! `candle-core` 0.11, both ways: tensors on the CPU. Feature `candle-core-0_11`.
//!
//! | from | to | copies |
//! | --- | --- | --- |
//! | a Candle tensor | [`Tensor`], read-only, any strides, by `TryFrom` | no |
//! | a [`Tensor`] that was made of a `Vec` | a Candle tensor, by [`into_as`](Tensor::into_as) | no |
//! | any tensor in host memory | a Candle tensor, by [`copy_as`](Tensor::copy_as) | yes |
//!
//! Candle's memory is always a vector, so other memory is copied.
//!
//! ```
//! use dlbridge::Tensor;
//!
//! let tensor = Tensor::builder(vec![1_i64, 2, 3, 4]).shape([2, 2]).build()?;
//! let copy: candle_core::Tensor = tensor.copy_as()?;
//! assert_eq!(copy.to_vec2::<i64>()?, [[1, 2], [3, 4]]);
//! let moved: candle_core::Tensor = tensor.into_as().expect("made of a vector");
//! assert_eq!(moved.dims(), [2, 2]);
//!
//! let other = Tensor::from([1.0_f32, 2.0]).into_as::<candle_core::Tensor>().unwrap_err();
//! assert_eq!(other.copy_as::<candle_core::Tensor>()?.dims(), [2]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use candle_core::{DType as CandleType, Device as CandleDevice, DeviceLocation};
use half::{bf16, f16};

use super::candle_core_0_11_memory::{Locked, export_locked};
use crate::layout::extents;
use crate::memory::Checked;
use crate::{Access, Builder, DType, Device, Error, Plain, Tensor, TensorMut, TensorRef, View};

/// What Candle has a type for, on the CPU.
const TYPES: &str = "uint8, uint32, int16, int32, int64, bfloat16, float16, float32 or float64";

/// A Candle tensor on the CPU becomes a read-only tensor without a copy, whatever its strides.
///
/// Candle's tensors share storages, so the storage is locked for reading until the tensor is
/// dropped: an operation in place waits as long, and on the thread that would drop the tensor it waits
/// for ever. A variable, or a tensor computed from one, is therefore refused, as PyTorch refuses a tensor
/// that requires grad: `Var::set` would wait for the consumer. Pass `copy()?.detach()`, or `detach()` for
/// a result that no variable shares.
///
/// ```
/// use candle_core::Device;
/// use dlbridge::Tensor;
///
/// let candle = candle_core::Tensor::new(&[[1.0_f32, 2.0], [3.0, 4.0]], &Device::Cpu)?;
/// let tensor = Tensor::try_from(candle.t()?)?;
/// assert_eq!((tensor.shape(), tensor.strides()), (&[2, 2][..], &[1, 2][..]));
/// assert_eq!(tensor.view::<f32>()?.to_vec(), [1.0, 3.0, 2.0, 4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`NotHostAccessible`](Error::NotHostAccessible) for a tensor on a GPU,
/// [`NotConvertible`](Error::NotConvertible) for floats of 4 and 6 bits and for tensors that track
/// gradients, and [`OutOfBounds`](Error::OutOfBounds) if its layout reaches past its storage.
impl TryFrom<candle_core::Tensor> for Tensor {
    type Error = Error;

    fn try_from(tensor: candle_core::Tensor) -> Result<Self, Error> {
        let dtype = dtype(tensor.dtype())?;
        check_cpu(tensor.device())?;
        let locked = Locked::new(tensor)?;
        if locked.storage().dtype() != locked.tensor().dtype() {
            let found = format!("a storage of {:?}", locked.storage().dtype());
            let expected = "one of the tensor's own type";
            return Err(Error::NotConvertible { what: "dtype", found, expected });
        }
        as_laid_out(locked, dtype)?.place(export_locked)
    }
}

/// What places a locked tensor where its layout says.
fn as_laid_out(locked: Locked, dtype: DType) -> Result<Builder<Locked>, Error> {
    let layout = locked.tensor().layout().clone();
    let (shape, strides) = (extents(layout.dims())?, extents(layout.stride())?);
    let builder = Tensor::builder(locked).dtype(dtype).shape(&shape).strides(&strides);
    Ok(builder.offset(layout.start_offset()))
}

try_from!([] &Tensor => candle_core::Tensor, tensor => copied(tensor.checked()));
try_from!([] &TensorRef<'_> => candle_core::Tensor, tensor => copied(tensor.checked()));
try_from!([] &TensorMut<'_> => candle_core::Tensor, tensor => copied(tensor.checked()));

/// Moves the elements to a Candle tensor on the CPU, without a copy, if the tensor was made of a
/// `Vec` that begins with them, contiguous, and never left Rust.
///
/// # Errors
///
/// The tensor itself, if it is not made of such a vector: [`copy_as`](Tensor::copy_as) copies it.
impl TryFrom<Tensor> for candle_core::Tensor {
    type Error = Tensor;

    fn try_from(tensor: Tensor) -> Result<Self, Tensor> {
        moved(tensor)
    }
}

fn check_cpu(device: &CandleDevice) -> Result<(), Error> {
    let device = match device.location() {
        DeviceLocation::Cpu => return Ok(()),
        DeviceLocation::Cuda { gpu_id } => Device::cuda(gpu_id as i32),
        DeviceLocation::Metal { gpu_id } => Device::new(crate::DeviceKind::METAL, gpu_id as i32),
    };
    Err(Error::NotHostAccessible { device })
}

/// Candle's extents. An extent was checked not to be negative.
fn dims(shape: &[i64]) -> Vec<usize> {
    shape.iter().map(|&extent| extent as usize).collect()
}

fn from_vec<T: candle_core::WithDType>(
    values: Vec<T>,
    shape: Vec<usize>,
) -> Result<candle_core::Tensor, Error> {
    let made = candle_core::Tensor::from_vec(values, shape, &CandleDevice::Cpu);
    made.map_err(|error| Error::NotConvertible {
        what: "shape",
        found: error.to_string(),
        expected: "one that Candle can have",
    })
}

/// Moves the vector out of a tensor that owns one, unless there is anything before the elements.
fn moved_vec<T: Plain + candle_core::WithDType>(
    tensor: Tensor,
) -> Result<candle_core::Tensor, Tensor> {
    let (shape, strides) = (tensor.shape().to_vec(), tensor.strides().to_vec());
    let (data, len) = (tensor.data_ptr().addr(), tensor.len());
    let (access, is_read_only) = (tensor.access(), tensor.is_read_only());
    if !tensor.is_contiguous() || tensor.is_empty() {
        return Err(tensor);
    }
    let dims = dims(&shape);
    let mut values = tensor.into_owner::<Vec<T>>()?;
    if values.as_ptr().addr() == data {
        values.truncate(len);
        return Ok(from_vec(values, dims).expect("as many values as the shape has"));
    }
    let offset = (data - values.as_ptr().addr()) / size_of::<T>();
    let again = Tensor::builder(values).shape(&shape).strides(&strides).offset(offset);
    let again = again.build::<T>().expect("as it was built before");
    // The class that it had: other handles of Python, or of C, may still reach the memory.
    let again = if access == Access::Shared { again.into_shared().into() } else { again };
    Err(if is_read_only { again.into_frozen().into() } else { again })
}

macro_rules! types {
    ($($dtype:ident = $ty:ty;)*) => {
        fn dtype(found: CandleType) -> Result<DType, Error> {
            match found {
                $(CandleType::$dtype => Ok(DType::$dtype),)*
                CandleType::F8E4M3 => Ok(DType::FLOAT8_E4M3FN),
                _ => Err(Error::other_dtype(found.as_str(), TYPES)),
            }
        }

        fn copied(checked: Checked<'_>) -> Result<candle_core::Tensor, Error> {
            match checked.dtype() {
                $(DType::$dtype => {
                    from_vec(View::<$ty>::new(checked)?.elements.to_vec()?, dims(checked.shape()))
                })*
                found => Err(Error::other_dtype(found, TYPES)),
            }
        }

        fn moved(tensor: Tensor) -> Result<candle_core::Tensor, Tensor> {
            match tensor.dtype() {
                $(DType::$dtype => moved_vec::<$ty>(tensor),)*
                _ => Err(tensor),
            }
        }
    };
}

types! {
    U8 = u8;
    U32 = u32;
    I16 = i16;
    I32 = i32;
    I64 = i64;
    BF16 = bf16;
    F16 = f16;
    F32 = f32;
    F64 = f64;
}

#[cfg(feature = "candle-core-0_11-cuda")]
pub(super) mod cuda {
    use candle_core::Storage;
    use cudarc::driver::CudaSlice;

    use super::{as_laid_out, dtype};
    use crate::adapters::candle_core_0_11_memory::Locked;
    use crate::adapters::cudarc_0_19_memory::export_borrowed;
    use crate::{Error, Plain, Tensor};

    /// A Candle tensor on a CUDA device becomes a read-only tensor without a copy, whatever its
    /// strides. It tells its stream, as that of a CUDA slice does, and locks its storage for
    /// reading, as one of the CPU does.
    ///
    /// `slice` gives the storage's slice. Only a program that builds Candle with the feature `cuda`
    /// can say it, in one line:
    ///
    /// ```text
    /// let tensor = candle_core_0_11_cuda::from_candle::<f32>(x, |storage| match storage {
    ///     Storage::Cuda(storage) => storage.as_cuda_slice::<f32>().ok(),
    ///     _ => None,
    /// })?;
    /// ```
    ///
    /// The other way, without a copy for a tensor that was made of a CUDA slice:
    ///
    /// ```text
    /// let dims: Vec<usize> = tensor.shape().iter().map(|&extent| extent as usize).collect();
    /// let slice = CudaSlice::<f32>::try_from(tensor).expect("made of a slice of f32");
    /// let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(slice, device.as_cuda_device()?.clone()));
    /// let x = candle_core::Tensor::from_storage(storage, dims, BackpropOp::none(), false);
    /// ```
    ///
    /// `examples/candle-cuda` is both as a program.
    ///
    /// # Errors
    ///
    /// [`DTypeMismatch`](Error::DTypeMismatch) for a tensor of other elements,
    /// [`NotConvertible`](Error::NotConvertible) if there is no slice or the tensor tracks gradients, and
    /// [`OutOfBounds`](Error::OutOfBounds) if the tensor's layout reaches past it.
    pub fn from_candle<T: Plain>(
        tensor: candle_core::Tensor,
        slice: impl FnOnce(&Storage) -> Option<&CudaSlice<T>>,
    ) -> Result<Tensor, Error> {
        let found = dtype(tensor.dtype())?;
        if found != T::DTYPE {
            return Err(Error::DTypeMismatch { found, expected: T::DTYPE });
        }
        let location = format!("{:?}", tensor.device().location());
        let locked = Locked::new(tensor)?;
        as_laid_out(locked, found)?.place(|owner, placement| {
            export_borrowed(owner, placement, |locked| {
                let (what, expected) = ("storage", "one with a CUDA slice of these elements");
                let none = || Error::NotConvertible { what, found: location, expected };
                slice(locked.storage()).ok_or_else(none)
            })
        })
    }
}
