//! Exports and imports Candle tensors on a GPU without a copy.
//!
//! Building needs NVIDIA's toolkit, whose compiler Candle runs; running needs a GPU. So far the
//! program has only been type-checked, not run.
#![forbid(unsafe_code)]

use candle_core::cuda_backend::cudarc::driver::CudaSlice;
use candle_core::op::BackpropOp;
use candle_core::{CudaStorage, Device, Storage};
use dlbridge::{Tensor, candle_core_0_11_cuda};

/// A read-only tensor over Candle's memory; Candle does not write to the memory while it lives.
fn from_candle(x: candle_core::Tensor) -> Result<Tensor, dlbridge::Error> {
    candle_core_0_11_cuda::from_candle::<f32>(x, |storage| match storage {
        Storage::Cuda(storage) => storage.as_cuda_slice::<f32>().ok(),
        _ => None,
    })
}

/// Converts a tensor that was created from a whole CUDA slice to a Candle tensor; returns any other
/// tensor unchanged.
fn into_candle(tensor: Tensor, device: &Device) -> Result<candle_core::Tensor, Tensor> {
    let Ok(device) = device.as_cuda_device() else { return Err(tensor) };
    let dims: Vec<usize> = tensor.shape().iter().map(|&extent| extent as usize).collect();
    let (len, is_contiguous) = (tensor.len(), tensor.is_contiguous());
    let slice = tensor.into_as::<CudaSlice<f32>>()?;
    if !is_contiguous || slice.len() != len {
        return Err(Tensor::try_from(slice).expect("it was one before"));
    }
    let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(slice, device.clone()));
    Ok(candle_core::Tensor::from_storage(storage, dims, BackpropOp::none(), false))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::new_cuda(0)?;
    let x = candle_core::Tensor::arange(0_f32, 6.0, &device)?.reshape((2, 3))?;
    let tensor = from_candle(x.t()?)?;
    println!("{tensor:?}");

    let stream = device.as_cuda_device()?.cuda_stream();
    let slice = stream.clone_htod(&[1_f32, 2.0, 3.0, 4.0])?;
    let tensor = Tensor::builder(slice).shape([2, 2]).build_cuda()?;
    let Ok(y) = into_candle(tensor, &device) else { return Err("another device".into()) };
    println!("{y}");
    Ok(())
}
