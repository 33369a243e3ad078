//! An operator of PyTorch and JAX with a CUDA kernel, and its gradient. `scripts/gpu-tests.sh` packs its tests for a
//! machine with a GPU.
//! Invariant: a kernel is launched with the addresses and the number of its tensors' elements, on the call's stream.
#![allow(unsafe_code, reason = "launches a kernel")]

use std::ffi::{CString, c_void};
use std::sync::Mutex;

use cudarc::driver::result::{launch_kernel, module};
use cudarc::driver::{CudaStream, DriverError, sys};
use dlbridge_operators::{AddOperator, DeviceStream, DeviceView, DeviceViewMut, Failure, operator};
use pyo3::prelude::*;

operator! {
    /// Scales a tensor.
    pub fn scale(x: View<f32>, factor: f64, out: ViewMut<f32>) -> Result<(), dlbridge::Error>
    as "(...)->(...)", backward = scale_backward, cuda = scale_on_cuda {
        out.copy_from_slice(&x.map(|value| value * factor as f32))
    }
}

operator! {
    /// The gradient of `scale`.
    pub fn scale_backward(gradient: View<f32>, _x: View<f32>, factor: f64, of_x: ViewMut<f32>)
        -> Result<(), dlbridge::Error>
    as "(...),(...)->(...)", cuda = scale_backward_on_cuda {
        of_x.copy_from_slice(&gradient.map(|value| value * factor as f32))
    }
}

fn scale_on_cuda(
    stream: &DeviceStream<'_>,
    x: DeviceView<'_, f32>,
    factor: f64,
    out: DeviceViewMut<'_, f32>,
) -> Result<(), Failure> {
    let (mut from, mut to) = (x.pointer(), out.pointer());
    let (mut factor, mut len) = (factor as f32, x.len() as u64);
    let blocks = u32::try_from(len.div_ceil(256)).map_err(|_| "x: expected fewer elements")?;
    let stream = stream.cudarc()?;
    let Kernel(kernel) = kernel(stream)?;
    let mut arguments: [*mut c_void; 4] = [
        (&raw mut from).cast(),
        (&raw mut to).cast(),
        (&raw mut factor).cast(),
        (&raw mut len).cast(),
    ];
    let (grid, block) = ((blocks, 1, 1), (256, 1, 1));
    // SAFETY: the kernel's parameters; it reads and writes `len` floats at the addresses, on the stream of the call (T14).
    unsafe { launch_kernel(kernel, grid, block, 0, stream.cu_stream(), &mut arguments) }?;
    Ok(())
}

fn scale_backward_on_cuda(
    stream: &DeviceStream<'_>,
    gradient: DeviceView<'_, f32>,
    _x: DeviceView<'_, f32>,
    factor: f64,
    of_x: DeviceViewMut<'_, f32>,
) -> Result<(), Failure> {
    scale_on_cuda(stream, gradient, factor, of_x)
}

/// A kernel, which is never unloaded.
#[derive(Clone, Copy)]
struct Kernel(sys::CUfunction);

// SAFETY: the driver's functions may be called with a kernel on any thread (F7).
unsafe impl Send for Kernel {}

/// The kernel, loaded once for each device. The driver compiles it for the device.
fn kernel(stream: &CudaStream) -> Result<Kernel, DriverError> {
    static LOADED: Mutex<Vec<(usize, Kernel)>> = Mutex::new(Vec::new());
    const PTX: &str = concat!(include_str!("scale.ptx"), "\0");
    let context = stream.context();
    let mut loaded = LOADED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some((_, kernel)) = loaded.iter().find(|(device, _)| *device == context.ordinal()) {
        return Ok(*kernel);
    }
    context.bind_to_thread()?;
    // SAFETY: PTX that ends with NUL; the device's context is current (F2, F7).
    let module = unsafe { module::load_data(PTX.as_ptr().cast()) }?;
    // SAFETY: loaded just now, and never unloaded (F7).
    let kernel = Kernel(unsafe { module::get_function(module, CString::from(c"scale")) }?);
    loaded.push((context.ordinal(), kernel));
    Ok(kernel)
}

#[pymodule(gil_used = false)]
fn cuda_operators(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_operator(scale)?;
    module.add_operator(scale_backward)
}
