//! The kernel of an operator: PyTorch's stack becomes a call of the function.

use std::ffi::{CString, c_void};
use std::ptr;

use dlbridge::{DType, Device};

use super::autograd::throw_out_of_memory;
use super::cuda;
use super::shim::{self, CPU, CUDA, DTYPES, Handle, Owned, Shim, handle, raise};
use crate::Failure;
use crate::argument::operand::{Operand, Slot, Written};
use crate::call::Plan;
use crate::definition::{Checked, Operator, checked, named};
use crate::failure::catch;
use crate::few::Numbers;
use crate::kind::{Kind, Scalar};

/// The kernel for the CPU, or for CUDA. On the stack are the arguments, a tensor as a handle that is owned; the results
/// take their place.
pub(super) unsafe extern "C-unwind" fn kernel<O: Operator, const ON_CUDA: bool>(
    stack: *mut u64,
    inputs: u64,
    outputs: u64,
) {
    let Some(shim) = shim::loaded() else { return };
    // SAFETY: PyTorch's stack has room for all arguments and results (F5).
    let stack = unsafe { std::slice::from_raw_parts_mut(stack, inputs.max(outputs) as usize) };
    let result = catch(|| shim.call::<ON_CUDA>(checked::<O>()?, stack));
    if let Err(error) = result.unwrap_or_else(Err) {
        let message = error.to_string();
        throw_out_of_memory(&message);
        raise(shim, &CString::new(message.replace('\0', " ")).unwrap_or_default());
    }
}

/// How a caller makes a tensor of another dtype.
const CONVERT: &str = "{}.to(torch.{})";

impl Shim {
    fn call<const ON_CUDA: bool>(
        &self,
        operator: &'static Checked,
        stack: &mut [u64],
    ) -> Result<(), Failure> {
        let parameters = operator.parameters;
        // Deleted when this function returns, after what reads them.
        let mut owned: Vec<Owned<'_>> = Vec::with_capacity(parameters.len());
        for (parameter, word) in parameters.iter().zip(stack.iter_mut()) {
            match parameter.kind {
                Kind::Optional(_) => owned.extend(self.optional(*word)),
                kind if kind.is_tensor() => owned.push(Owned(self, handle(*word))),
                _ => {}
            }
            if let (Kind::InPlace(_), Some(tensor)) = (parameter.kind, owned.last()) {
                // Before any address is taken: copy-on-write memory, which a view shares, moves here.
                self.address(tensor)?;
            }
        }
        let place = if ON_CUDA { Some(cuda::Place::of(operator, self, &owned)?) } else { None };
        let device = place.as_ref().map_or(Device::CPU, |place| place.stream.device());
        let mut tensors = owned.iter();
        let mut slots = Vec::with_capacity(parameters.len());
        for (parameter, &word) in parameters.iter().zip(stack.iter()) {
            let mut next = || tensors.next().ok_or_else(|| Failure::new("a tensor is missing"));
            let refused = |error| operator.named(named(parameter.name, &error));
            slots.push(match parameter.kind {
                Kind::Optional(_) if word == 0 => Slot::Absent,
                Kind::Input(_) | Kind::Optional(_) => {
                    Slot::Read(self.operand(next()?).map_err(refused)?.on(device))
                }
                Kind::InPlace(_) => {
                    let operand = self.writable(next()?).map_err(refused)?.on(device);
                    // SAFETY: PyTorch's tensor, which the schema says is written (T13).
                    Slot::Write(unsafe { Written::new(operand) })
                }
                Kind::Float => Slot::Scalar(Scalar::Float(f64::from_bits(word))),
                Kind::Int => Slot::Scalar(Scalar::Int(word as i64)),
                Kind::Bool => Slot::Scalar(Scalar::Bool(word & 1 != 0)),
                Kind::Output(_) => break,
            });
        }
        let plan = Plan::new(operator, slots, CONVERT)?;
        let results = plan.outputs().map(|(dtype, shape)| self.empty(dtype, &shape, device));
        let results = results.collect::<Result<Vec<_>, _>>()?;
        let outputs = results.iter().map(|tensor| {
            let operand = self.writable(tensor)?.on(device);
            // SAFETY: PyTorch made it just now, for this call (T10).
            unsafe { Written::zeroed(operand) }
        });
        match &place {
            None => plan.run(outputs)?,
            Some(place) => {
                let mut copies = cuda::TensorCopies::new(self, &owned);
                plan.launch(&place.stream, outputs, &mut copies)?;
                copies.back()?;
            }
        }
        for (place, result) in stack.iter_mut().zip(results) {
            *place = result.1.expose_provenance() as u64;
            // Now PyTorch's.
            std::mem::forget(result);
        }
        Ok(())
    }

    /// The tensor of an optional argument: null, or the address of a word that is deleted.
    pub(super) fn optional(&self, word: u64) -> Option<Owned<'_>> {
        let place: *mut u64 = ptr::with_exposed_provenance_mut(word as usize);
        // SAFETY: null, or a word of PyTorch's (F5).
        let tensor = unsafe { place.as_ref() }.map(|word| Owned(self, handle(*word)));
        if let (Some(_), Some(delete)) = (&tensor, self.torch_delete_stable_ivalue) {
            // SAFETY: owned, and deleted once (R7).
            let _ = unsafe { delete(place) };
        }
        tensor
    }

    /// Describes a tensor, with the address of its elements.
    fn describe<'t>(
        &self,
        tensor: &'t Owned<'_>,
        address: impl FnOnce(Handle) -> Result<*mut c_void, Failure>,
    ) -> Result<Operand<'t>, Failure> {
        let handle = tensor.1;
        let (mut ndim, mut dtype) = (0, 0);
        let (mut sizes, mut strides) = (ptr::null(), ptr::null());
        // SAFETY: a live tensor, and places to write to (F2, F5).
        self.check(unsafe { (self.aoti_torch_get_dim)(handle, &mut ndim) })?;
        // SAFETY: the same.
        self.check(unsafe { (self.aoti_torch_get_sizes)(handle, &mut sizes) })?;
        // SAFETY: the same.
        self.check(unsafe { (self.aoti_torch_get_strides)(handle, &mut strides) })?;
        // SAFETY: the same.
        self.check(unsafe { (self.aoti_torch_get_dtype)(handle, &mut dtype) })?;
        let known = DTYPES.iter().find(|(code, _)| *code == dtype);
        let (_, dtype) = known.ok_or_else(|| {
            Failure::new(format!(
                "expected a dtype of numbers, found another one, PyTorch's number {dtype}"
            ))
        })?;
        let list = |numbers: *const i64| match ndim {
            0 => &[][..],
            // SAFETY: as many numbers as the tensor has axes (T2).
            _ => unsafe { std::slice::from_raw_parts(numbers, ndim as usize) },
        };
        let (shape, strides) = (list(sizes), list(strides));
        // SAFETY: a tensor's own description of its elements, which the handle keeps alive (T3, T13).
        Ok(unsafe { Operand::new(address(handle)?, *dtype, shape, Some(strides)) })
    }

    /// A tensor to read.
    fn operand<'t>(&self, tensor: &'t Owned<'_>) -> Result<Operand<'t>, Failure> {
        self.describe(tensor, |handle| {
            let mut data = ptr::null();
            // SAFETY: a live tensor, and a place to write to (F2, F5).
            self.check(unsafe { (self.torch_get_const_data_ptr)(handle, &mut data) })?;
            Ok(data.cast_mut())
        })
    }

    /// A tensor with the address to write to.
    fn writable<'t>(&self, tensor: &'t Owned<'_>) -> Result<Operand<'t>, Failure> {
        self.describe(tensor, |_| self.address(tensor))
    }

    /// The address to write to.
    pub(super) fn address(&self, tensor: &Owned<'_>) -> Result<*mut c_void, Failure> {
        let mut data = ptr::null_mut();
        // SAFETY: a live tensor, and a place to write to (F2, F5).
        self.check(unsafe { (self.torch_get_mutable_data_ptr)(tensor.1, &mut data) })?;
        Ok(data)
    }

    /// A new contiguous tensor.
    pub(super) fn empty(
        &self,
        dtype: DType,
        shape: &[i64],
        device: Device,
    ) -> Result<Owned<'_>, Failure> {
        let code = DTYPES.iter().find(|(_, known)| *known == dtype);
        let (code, _) =
            code.ok_or_else(|| Failure::new(format!("PyTorch has no tensors of {dtype}")))?;
        let strides = Numbers::contiguous(shape, 1);
        let (ndim, mut made) = (shape.len() as i64, ptr::null_mut());
        let (sizes, steps) = (shape.as_ptr(), strides.as_ptr());
        let (kind, index) = if device == Device::CPU { (CPU, -1) } else { (CUDA, device.id) };
        // SAFETY: lists of `ndim` numbers, and a place to write to (F2, F5).
        let made_it = self.check(unsafe {
            (self.aoti_torch_empty_strided)(ndim, sizes, steps, *code, kind, index, &mut made)
        });
        made_it.map_err(|error| {
            Failure::new(format!("PyTorch cannot allocate {dtype}{shape:?}: {error}"))
        })?;
        Ok(Owned(self, made))
    }
}
