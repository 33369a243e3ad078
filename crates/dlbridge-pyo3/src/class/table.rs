//! What `dlbridge.Tensor` and users' classes publish in their exchange tables.
//! The table itself belongs to `ffi::table`, answering `__dlpack__` to `export::answer`.

use std::any::TypeId;

use dlbridge::protocol::call::Request;
use dlbridge::{Access, ArcTensor, Tensor};
use pyo3::prelude::*;

use super::traits::{ExportDlpack, export, on_host, permitted};
use crate::ffi::borrow;
use crate::ffi::buffer::{Extents, KeepsExtents};
use crate::ffi::callbacks::{Borrow, Publish};
use crate::stream::{Ready, settle};
use crate::{Error, Result, TensorObject};

impl<T: ExportDlpack> Publish for T {
    const LENT: Option<Borrow<Self>> = T::BORROW;

    fn drops_objects() -> bool {
        TypeId::of::<T>() != TypeId::of::<TensorObject>()
    }

    fn exported(object: &Bound<'_, Self>) -> Result<Tensor> {
        let (tensor, ready) = export(object.as_borrowed())?;
        settle(ready.as_deref(), tensor.device())?;
        let request = permitted(object, &tensor, Request::default())?;
        let is_copied = request.copy == Some(true);
        if is_copied { copied(object.py(), &tensor) } else { Ok(tensor) }
    }

    fn before_borrow(&self, tensor: &Tensor) -> Result<()> {
        check_borrowable(tensor)?;
        settle(self.ready(tensor).as_deref(), tensor.device())
    }

    fn on_host(object: &Bound<'_, Self>) -> Result<Tensor> {
        on_host(object)
    }

    /// A `dlbridge.Tensor`, for every class. DLPack's header asks for an array of the producer's
    /// own type, but not every class can be made from any tensor.
    fn made(py: Python<'_>, tensor: ArcTensor) -> PyResult<Bound<'_, PyAny>> {
        Ok(TensorObject::sharing(tensor).into_bound(py)?.into_any())
    }
}

impl KeepsExtents for TensorObject {
    fn parts<'a>(object: &'a Bound<'_, Self>) -> Result<(&'a Tensor, &'a Extents)> {
        let this = object.get();
        Ok((this.on_host(object.py())?, &this.extents))
    }
}

/// A copy, made once the host may read the memory.
fn copied(py: Python<'_>, tensor: &Tensor) -> Result<Tensor> {
    if let Some(ready) = Ready::for_tensor(tensor) {
        py.detach(|| ready.before_host(tensor.device()))?;
    }
    borrow::copied(tensor)
}

/// A plain descriptor has no flags, so consumers assume that the memory is writable.
fn check_borrowable(tensor: &Tensor) -> Result<()> {
    if tensor.is_read_only() {
        return Err(Error::buffer(
            "access: a borrowed descriptor cannot say read-only; take an owning one",
        ));
    }
    if tensor.access() == Access::Exclusive {
        return Err(Error::buffer(
            "access: expected shared memory, found a tensor that is exclusive to the class; \
             share it with into_shared()",
        ));
    }
    Ok(())
}
