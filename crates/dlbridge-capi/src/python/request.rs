//! The keywords of a call of `__dlpack__`, and the capsule that answers it.
//! The class belongs to `class`, capsules to `capsule`.
//! Invariant: a refusal is a `BufferError`, never a `TypeError`, which consumers take for a missing
//! keyword.

use std::ffi::CStr;

use dlbridge::{Device, DeviceKind, SharedTensor, Tensor};

use super::api::Pointer;
use super::capsule;
use super::exception::{Exception, raise};
use super::object::{Object, Python};
use crate::error::{Error, Result};

/// The keywords of `__dlpack__`, array API standard 2024.12.
#[derive(Default)]
pub(super) struct Request {
    stream: Option<Object>,
    max_version: Option<Object>,
    dl_device: Option<Object>,
    copy: Option<Object>,
}

impl Request {
    /// Reads the arguments of a fast call.
    ///
    /// # Safety
    ///
    /// `arguments` has `positional` objects and one more for each name in the tuple `names`, which
    /// is null if there are none.
    pub(super) unsafe fn read(
        python: Python,
        arguments: *const Pointer,
        positional: isize,
        names: Pointer,
    ) -> Result<Self> {
        if positional != 0 {
            return Err(type_error(python, "__dlpack__() takes keyword arguments only"));
        }
        let mut request = Self::default();
        let count = if names.is_null() {
            0
        } else {
            // SAFETY: a tuple, attached (F1).
            unsafe { (python.api.PyTuple_Size)(names) }
        };
        for index in 0..count {
            // SAFETY: within the tuple; the reference is the tuple's (F2).
            let name = unsafe { (python.api.PyTuple_GetItem)(names, index) };
            // SAFETY: as many arguments as names (the caller's duty).
            let value = unsafe { arguments.wrapping_offset(index).read() };
            // SAFETY: a live object that the caller of the method holds (F2).
            let value = unsafe { python.borrow(value) }.filter(|value| !value.is_none());
            *request.field(python, name)? = value;
        }
        Ok(request)
    }

    fn field(&mut self, python: Python, name: Pointer) -> Result<&mut Option<Object>> {
        let is = |wanted: &CStr| {
            // SAFETY: names of keywords are strings; attached (F1).
            unsafe { (python.api.PyUnicode_CompareWithASCIIString)(name, wanted.as_ptr()) == 0 }
        };
        if is(c"max_version") {
            Ok(&mut self.max_version)
        } else if is(c"stream") {
            Ok(&mut self.stream)
        } else if is(c"dl_device") {
            Ok(&mut self.dl_device)
        } else if is(c"copy") {
            Ok(&mut self.copy)
        } else {
            Err(type_error(python, "__dlpack__() got an unexpected keyword argument"))
        }
    }

    /// A capsule over the tensor's memory, or over a copy.
    pub(super) fn answer(&self, python: Python, tensor: &SharedTensor) -> Result<Object> {
        self.check_stream(tensor.device())?;
        let copy = self.copy()?;
        let relocated = self.check_device(tensor.device(), copy)?;
        let exported = if copy == Some(true) || relocated {
            tensor.to_compact()?
        } else {
            Tensor::from(tensor.clone())
        };
        let versioned = self.wants_versioned()?;
        if !versioned {
            exported.check_legacy()?;
        }
        capsule::new(python, versioned, || exported)
    }

    /// A consumer that names no version, or one below 1, reads the legacy ABI only.
    fn wants_versioned(&self) -> Result<bool> {
        let Some(version) = &self.max_version else { return Ok(false) };
        let major = version.item(0).and_then(|major| major.integer());
        Ok(major? >= 1)
    }

    fn copy(&self) -> Result<Option<bool>> {
        self.copy.as_ref().map(Object::is_true).transpose().map_err(Error::Python)
    }

    /// Host memory has no streams: only `None` and -1 ("do not synchronise") mean something. Work
    /// on device memory was done before it was exported, so that any stream may go on with it.
    fn check_stream(&self, device: Device) -> Result<()> {
        let Some(stream) = &self.stream else { return Ok(()) };
        if !device.is_host_accessible() || stream.integer().is_ok_and(|stream| stream == -1) {
            return Ok(());
        }
        let found = text(stream);
        Err(buffer(format!("stream: expected None or -1 for {device}, found {found}")))
    }

    /// Whether the memory must be copied to reach the device asked for.
    fn check_device(&self, device: Device, copy: Option<bool>) -> Result<bool> {
        let Some(wanted) = &self.dl_device else { return Ok(false) };
        let wanted = read_device(wanted)?;
        if wanted == device {
            return Ok(false);
        }
        if wanted == Device::CPU && device.is_host_accessible() && copy != Some(false) {
            return Ok(true);
        }
        Err(buffer(format!("dl_device: expected {device}, where the memory is, found {wanted}")))
    }
}

pub(super) fn read_device(pair: &Object) -> Result<Device, Exception> {
    let kind = pair.item(0)?.integer()?;
    let id = pair.item(1)?;
    // Paddle says `None` for the host's number.
    let id = if id.is_none() { 0 } else { id.integer()? };
    let small = |number: i64| i32::try_from(number).unwrap_or(-1);
    Ok(Device::new(DeviceKind(small(kind)), small(id)))
}

fn text(object: &Object) -> String {
    object.text().unwrap_or_default()
}

/// Everything but an exception becomes a `BufferError` (see `class`).
fn buffer(message: String) -> Error {
    Error::Unsupported(message)
}

fn type_error(python: Python, message: &str) -> Error {
    raise(python, |api| api.PyExc_TypeError, message);
    Error::Python(Exception::take(python))
}
