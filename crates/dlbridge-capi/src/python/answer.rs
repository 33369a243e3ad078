//! Parses the arguments of `__dlpack__`, and makes the capsule that it returns.
//! The class belongs to `class`, capsules to `capsule`, what a request permits to
//! `dlbridge::protocol::call`.
//! Invariant: a refusal is a `BufferError`, never a `TypeError`, which consumers take for a missing
//! keyword.

use std::ffi::CStr;

use dlbridge::protocol::{self, call, stream};
use dlbridge::{ArcTensor, Device, Tensor};

use super::api::Pointer;
use super::attached::{Object, Python};
use super::capsule;
use super::exception::{Exception, raise};
use crate::error::{Error, Result};

/// The keywords of `__dlpack__`, array API standard 2024.12.
#[derive(Default)]
pub(super) struct Arguments {
    stream: Option<Object>,
    max_version: Option<Object>,
    dl_device: Option<Object>,
    copy: Option<Object>,
}

impl Arguments {
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
            unsafe { python.api.PyTuple_Size(names) }
        };
        for index in 0..count {
            // SAFETY: within the tuple; the reference is the tuple's (F2).
            let name = unsafe { python.api.PyTuple_GetItem(names, index) };
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
            unsafe { python.api.PyUnicode_CompareWithASCIIString(name, wanted.as_ptr()) == 0 }
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
    pub(super) fn answer(&self, python: Python, tensor: &ArcTensor) -> Result<Object> {
        let answer = self.request()?.answer(tensor.device(), Device::is_host_accessible)?;
        // Work on device memory was done before it was exported, so that any stream may go on with it.
        self.check_stream(answer.device)?;
        let exported =
            if answer.copy { tensor.to_contiguous()? } else { Tensor::from(tensor.clone()) };
        if !answer.versioned {
            dlbridge::ffi::check_legacy(&exported)?;
        }
        capsule::new(python, answer.versioned, || exported)
    }

    fn request(&self) -> Result<call::Request, Exception> {
        let small = |number: i64| number.clamp(0, u32::MAX.into()) as u32;
        let version = |pair: &Object| {
            Ok::<_, Exception>((small(pair.item(0)?.integer()?), small(pair.item(1)?.integer()?)))
        };
        Ok(call::Request {
            max_version: self.max_version.as_ref().map(version).transpose()?,
            dl_device: self.dl_device.as_ref().map(read_device).transpose()?,
            copy: self.copy.as_ref().map(Object::is_true).transpose()?,
        })
    }

    fn check_stream(&self, device: Device) -> Result<()> {
        let Some(found) = &self.stream else { return Ok(()) };
        match found.integer() {
            Ok(number) => stream::number_on(Some(number), device).map(drop)?,
            Err(_) => return Err(stream::not_a_stream(&text(found), device).into()),
        }
        Ok(())
    }
}

pub(super) fn read_device(pair: &Object) -> Result<Device, Exception> {
    let kind = pair.item(0)?.integer()?;
    let id = pair.item(1)?;
    let id = if id.is_none() { None } else { Some(id.integer()?) };
    let small = |number: i64| i32::try_from(number).unwrap_or(-1);
    Ok(protocol::device(small(kind), id.map(small)))
}

fn text(object: &Object) -> String {
    object.text().unwrap_or_default()
}

fn type_error(python: Python, message: &str) -> Error {
    raise(python, |api| api.PyExc_TypeError, message);
    Exception::take(python).into()
}
