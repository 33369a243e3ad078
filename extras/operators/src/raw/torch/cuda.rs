//! The device of a call of the CUDA kernel, and PyTorch's current stream there.

use std::ffi::c_void;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use dlbridge::Device;
use libloading::Library;

use super::shim::{CPU, CUDA, Code, Handle, Owned, Shim};
use crate::argument::device_call::Copies;
use crate::argument::operand::Operand;
use crate::definition::Checked;
use crate::{DeviceStream, Failure};

/// `aoti_torch_get_current_cuda_stream`, of PyTorch's library for CUDA.
type CurrentStream = unsafe extern "C-unwind" fn(i32, *mut *mut c_void) -> Code;

static CURRENT_STREAM: OnceLock<CurrentStream> = OnceLock::new();

/// Finds the function in PyTorch's library for CUDA, which only a PyTorch with CUDA has.
pub(super) fn load(library: &Path) -> Result<(), Failure> {
    if CURRENT_STREAM.get().is_some() {
        return Ok(());
    }
    // SAFETY: loaded by PyTorch already, so that no initialiser runs (F5).
    let opened = unsafe { Library::new(library) };
    let opened = opened.map_err(|error| Failure::new(format!("PyTorch's library: {error}")))?;
    // SAFETY: PyTorch's library, whose header declares this type (F5).
    let found = unsafe { opened.get(b"aoti_torch_get_current_cuda_stream\0") };
    let found = *found.map_err(|error| Failure::new(format!("PyTorch's library: {error}")))?;
    let _ = CURRENT_STREAM.set(found);
    // The function is used until the process ends.
    std::mem::forget(opened);
    Ok(())
}

/// Where a call of the CUDA kernel runs. The device is PyTorch's current one until this is dropped.
pub(super) struct Place<'s> {
    shim: &'s Shim,
    guard: Handle,
    pub(super) stream: DeviceStream<'s>,
}

impl<'s> Place<'s> {
    /// The place of a call with these tensors: all are on one CUDA device.
    pub(super) fn of(
        operator: &Checked,
        shim: &'s Shim,
        tensors: &[Owned<'_>],
    ) -> Result<Self, Failure> {
        operator.check_cuda("x.cpu()")?;
        Self::with_tensors(shim, tensors).map_err(|error| operator.named(error))
    }

    fn with_tensors(shim: &'s Shim, tensors: &[Owned<'_>]) -> Result<Self, Failure> {
        let devices = tensors.iter().map(|tensor| shim.device(tensor));
        let devices = devices.collect::<Result<Vec<_>, _>>()?;
        let index = devices.iter().find_map(|&(kind, index)| (kind == CUDA).then_some(index));
        let index = index.ok_or_else(|| Failure::new("expected memory on cuda, found none"))?;
        if let Some((kind, other)) = devices.iter().find(|&&device| device != (CUDA, index)) {
            let found = match *kind {
                CPU => "cpu".to_owned(),
                CUDA => format!("cuda:{other}"),
                _ => "another device".to_owned(),
            };
            return Err(Failure::new(format!(
                "expected all tensors on cuda:{index}, found one on {found}; use x.to(\"cuda:{index}\")"
            )));
        }
        let current = CURRENT_STREAM.get().ok_or_else(|| {
            Failure::new("expected a PyTorch with CUDA, found one without its library")
        })?;
        let (mut stream, mut guard) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a place to write to (F2, F5).
        shim.check(unsafe { current(index, &mut stream) })?;
        // SAFETY: PyTorch's current stream of this device, which exists during the call (T14).
        let stream = unsafe { DeviceStream::new(stream, Device::cuda(index)) };
        // SAFETY: a place to write to (F2, F5).
        shim.check(unsafe { (shim.aoti_torch_create_device_guard)(index, &mut guard) })?;
        Ok(Self { shim, guard, stream })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // SAFETY: made by PyTorch, and deleted once (R7).
        let _ = unsafe { (self.shim.aoti_torch_delete_device_guard)(self.guard) };
    }
}

/// Contiguous copies of a call's tensors, made on PyTorch's current stream. The allocator keeps their memory for the
/// order of that stream.
pub(super) struct TensorCopies<'t> {
    shim: &'t Shim,
    tensors: &'t [Owned<'t>],
    made: Vec<Owned<'t>>,
    /// Those that the function writes, with the tensors that get their values.
    written: Vec<(Handle, Handle)>,
}

impl<'t> TensorCopies<'t> {
    pub(super) fn new(shim: &'t Shim, tensors: &'t [Owned<'t>]) -> Self {
        Self { shim, tensors, made: Vec::new(), written: Vec::new() }
    }

    /// Copies the values that the function has written to where they belong.
    pub(super) fn back(&self) -> Result<(), Failure> {
        self.written.iter().try_for_each(|&(to, from)| self.copy(to, from))
    }

    fn copy(&self, to: Handle, from: Handle) -> Result<(), Failure> {
        // SAFETY: live tensors, of which the first is written (F5).
        self.shim.check(unsafe { (self.shim.aoti_torch_copy_)(to, from, 0) })
    }
}

impl Copies for TensorCopies<'_> {
    fn contiguous(
        &mut self,
        number: usize,
        operand: &Operand<'_>,
        is_written: bool,
    ) -> Result<*mut c_void, Failure> {
        let tensor = self.tensors.get(number).ok_or_else(|| Failure::new("a tensor is missing"))?;
        let copy = self.shim.empty(operand.dtype, operand.shape(), operand.device)?;
        self.copy(copy.1, tensor.1)?;
        let address = self.shim.address(&copy)?;
        if is_written {
            self.written.push((tensor.1, copy.1));
        }
        self.made.push(copy);
        Ok(address)
    }
}

impl Shim {
    /// The code and the index of a tensor's device.
    fn device(&self, tensor: &Owned<'_>) -> Result<(i32, i32), Failure> {
        let (mut kind, mut index) = (0, 0);
        // SAFETY: a live tensor, and a place to write to (F2, F5).
        self.check(unsafe { (self.aoti_torch_get_device_type)(tensor.1, &mut kind) })?;
        // SAFETY: the same.
        self.check(unsafe { (self.aoti_torch_get_device_index)(tensor.1, &mut index) })?;
        Ok((kind, index))
    }
}
