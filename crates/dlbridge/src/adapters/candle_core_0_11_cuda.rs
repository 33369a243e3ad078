//! `candle-core` 0.11 on CUDA devices: tensors out. Feature `candle-core-0_11-cuda`.
//!
//! Candle's own feature `cuda`, which needs NVIDIA's compiler to build, is not needed here: the
//! program that has it says where the slice of a storage is, see [`from_candle`].

use candle_core::Storage;
use cudarc::driver::CudaSlice;

use super::candle_core_0_11::{as_laid_out, dtype};
use super::candle_core_0_11_memory::Locked;
use super::cudarc_0_19_memory::export_borrowed;
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
/// `examples/candle-cuda` is both as a program. No GPU has confirmed either yet.
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
