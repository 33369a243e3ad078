//! Exports a tensor as an Arrow array: `__arrow_c_array__`.
//! Invariant: each struct owns what its fields point to, its child included, so that a consumer can
//! move a child away; the innermost array owns the tensor.

use std::ffi::{CStr, CString, c_void};
use std::ptr;

use dlbridge::ffi::catch;
use dlbridge::{DType, Tensor};
use pyo3::ffi;
use pyo3::prelude::*;

use super::{ArrowArray, ArrowSchema, Owned, Releasable};
use crate::dtypes::arrow::format_of;
use crate::ffi::borrow::{copied, give_shared};
use crate::ffi::capsule;
use crate::release::ObjectTensor;
use crate::{Error, Result};

/// Arrow's flag for a column that can have nulls. Every type that a user writes has it.
const NULLABLE: i64 = 2;

/// The pair of capsules over a host tensor's memory: a column of numbers, or of lists of one size
/// for each further axis. Memory that is not contiguous or not aligned is copied, and truth values
/// are packed to bits.
pub(crate) fn capsules<'py>(
    py: Python<'py>,
    tensor: Tensor,
) -> Result<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let dtype = tensor.dtype();
    let refused = |found: String, help: &str| {
        Err(Error::buffer(format!("__arrow_c_array__: expected {found}; {help}")))
    };
    if !tensor.device().is_host_accessible() {
        let found = format!("host memory, found memory on {}", tensor.device());
        return refused(found, "copy it first: from_dlpack(x, device=\"cpu\")");
    }
    let is_bool = dtype == DType::BOOL;
    let Some(format) = format_of(dtype).or(is_bool.then_some("b")) else {
        return refused(format!("numbers that Arrow has, found {dtype}"), "cast to float32 first");
    };
    let Some((&rows, extents)) = tensor.shape().split_first() else {
        return refused("one axis or more, found a scalar".to_owned(), "use x.reshape(1)");
    };
    if extents.iter().any(|&extent| i32::try_from(extent).is_err()) {
        let found = format!("inner extents of 32 bits, found shape {:?}", tensor.shape());
        return refused(found, "reshape it");
    }
    let mut formats: Vec<_> = extents.iter().map(|extent| format!("+w:{extent}")).collect();
    formats.push(format.to_owned());
    let mut lengths = vec![rows];
    lengths.extend(extents.iter().scan(rows, |len, extent| {
        // Fewer than all elements, or none.
        *len = len.saturating_mul(*extent);
        Some(*len)
    }));
    let tensor = if is_bool { packed(&tensor)? } else { plain(tensor)? };
    let schema = capsule(py, schema(&formats, c""))?;
    Ok((schema, capsule(py, array(&lengths, &mut Some(tensor)))?))
}

/// A tensor whose memory is as Arrow's: the same, or a copy.
fn plain(tensor: Tensor) -> Result<Tensor> {
    let is_aligned = tensor.data_ptr().addr() % tensor.dtype().itemsize().unwrap_or(1).max(1) == 0;
    let is_plain = tensor.is_contiguous() && is_aligned;
    if is_plain { Ok(tensor) } else { copied(&tensor) }
}

/// Truth values as bits, least significant bit first.
fn packed(tensor: &Tensor) -> Result<Tensor> {
    let mut bits = Tensor::zeros(DType::U8, [(tensor.len().div_ceil(8)) as i64])?;
    let bytes = bits.as_slice_mut::<u8>()?;
    for (index, value) in tensor.view::<bool>()?.iter().enumerate() {
        bytes[index / 8] |= u8::from(value) << (index % 8);
    }
    Ok(bits)
}

/// What a struct owns: its child, in the form of its field `children`, and the rest.
struct Parts<T, K> {
    child: [*mut T; 1],
    kept: K,
}

/// The buffers of an array, and the tensor of the innermost one.
type ArrayParts = Parts<ArrowArray, ([*const c_void; 2], Option<ObjectTensor>)>;

/// The child's place, the number of children, and the pointer to the parts of a struct.
fn parts<T: Releasable, K>(child: Option<T>, kept: K) -> (*mut Parts<T, K>, i64) {
    let count = i64::from(child.is_some());
    let boxed = |child| Box::into_raw(Box::new(Owned(child))).cast::<T>();
    let child = [child.map_or(ptr::null_mut(), boxed)];
    (Box::into_raw(Box::new(Parts { child, kept })), count)
}

/// The schema of the formats, outermost first.
fn schema(formats: &[String], name: &'static CStr) -> ArrowSchema {
    let (format, inner) = formats.split_first().expect("one for the numbers");
    // The name that Arrow's own lists have for their values.
    let child = (!inner.is_empty()).then(|| schema(inner, c"item"));
    let format = CString::new(&**format).expect("a format has no NUL");
    let (parts, n_children) = parts(child, format);
    // SAFETY: made just now (R7).
    let format = unsafe { &*parts }.kept.as_ptr();
    ArrowSchema {
        format,
        name: name.as_ptr(),
        metadata: ptr::null(),
        flags: NULLABLE,
        n_children,
        // SAFETY: the same.
        children: unsafe { &raw mut (*parts).child }.cast(),
        dictionary: ptr::null_mut(),
        release: Some(release::<ArrowSchema, CString>),
        private_data: parts.cast(),
    }
}

/// The arrays of these lengths, outermost first. The innermost takes the tensor.
fn array(lengths: &[i64], tensor: &mut Option<Tensor>) -> ArrowArray {
    /// The address of values that do not exist: some consumers reject null.
    static NOWHERE: u64 = 0;
    let (&length, inner) = lengths.split_first().expect("one for the numbers");
    let child = (!inner.is_empty()).then(|| array(inner, tensor));
    let tensor = if child.is_none() { tensor.take() } else { None };
    let values = match tensor.as_ref().map(|tensor| tensor.data_ptr()) {
        Some(data) if !data.is_null() => data.cast_const(),
        _ => (&raw const NOWHERE).cast(),
    };
    let tensor = tensor.map(|tensor| ObjectTensor::new(give_shared(tensor)));
    let n_buffers = if child.is_some() { 1 } else { 2 };
    let kept = ([ptr::null(), values], tensor);
    let (parts, n_children): (*mut ArrayParts, _) = parts(child, kept);
    ArrowArray {
        length,
        null_count: 0,
        offset: 0,
        n_buffers,
        n_children,
        // SAFETY: made just now (R7).
        buffers: unsafe { &raw mut (*parts).kept.0 }.cast(),
        // SAFETY: the same.
        children: unsafe { &raw mut (*parts).child }.cast(),
        dictionary: ptr::null_mut(),
        release: Some(release::<ArrowArray, ([*const c_void; 2], Option<ObjectTensor>)>),
        private_data: parts.cast(),
    }
}

/// The callback of a struct: frees its parts. A child that was moved away has no callback any more.
///
/// # Safety
///
/// `place` points to a struct that was made here with parts `K`, and is released once, on any thread.
unsafe extern "C" fn release<T: Releasable, K>(place: *mut T) {
    // SAFETY: the caller's duty.
    let released = unsafe { &mut *place };
    *released.callback() = None;
    // SAFETY: made by `parts`, and freed once (R7).
    let parts = unsafe { Box::from_raw(released.private_data().cast::<Parts<T, K>>()) };
    let Parts { child: [child], kept } = *parts;
    if !child.is_null() {
        // SAFETY: the same; a child that is still live is released.
        drop(unsafe { Box::from_raw(child.cast::<Owned<T>>()) });
    }
    // It may own what a user's `Drop` panics in.
    let _ = catch(|| drop(kept));
}

/// A capsule that owns a struct. A consumer moves the struct, and leaves it marked as released.
fn capsule<T: Releasable>(py: Python<'_>, made: T) -> Result<Bound<'_, PyAny>> {
    let place = Box::into_raw(Box::new(Owned(made)));
    // SAFETY: not null, and `destroy` is made for the struct and its name (F4).
    unsafe { capsule::make(py, place.cast(), T::CAPSULE, Some(destroy::<T>)) }.map_err(|error| {
        // SAFETY: no capsule took it (R7).
        drop(unsafe { Box::from_raw(place) });
        error.into()
    })
}

/// Frees the struct of a capsule.
///
/// # Safety
///
/// Python's: attached, with a capsule that `capsule` made.
unsafe extern "C" fn destroy<T: Releasable>(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls the destructor with its capsule (F1).
    if let Some(place) = unsafe { capsule::named(capsule, T::CAPSULE) } {
        // SAFETY: made by `capsule`, and freed once (R7).
        drop(unsafe { Box::from_raw(place.cast::<Owned<T>>().as_ptr()) });
    }
}
