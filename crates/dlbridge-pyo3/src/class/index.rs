//! Parts of a `dlbridge.Tensor` over the same memory: what `__getitem__` and `reshape` take.
//! The layout of a part belongs to `dlbridge`.
//! Invariant: the same elements as NumPy's basic indexing selects.

use dlbridge::ffi::Place;
use dlbridge::{ArcTensor, Parts};
use pyo3::Borrowed;
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PySlice, PyTuple};

use crate::error::error_of;
use crate::ffi::elements::range_of;
use crate::interpreter::{extents, through_pyo3};
use crate::{Error, Result};

/// More places than this are in a vector.
const FEW: usize = 8;

/// The part of a tensor that an index selects: an int, a slice, `...`, None, or a tuple of them.
pub(super) fn index(tensor: &ArcTensor, index: &Bound<'_, PyAny>) -> Result<ArcTensor> {
    let items = index.cast::<PyTuple>().ok();
    let count = items.map_or(1, PyTupleMethods::len);
    // The tuple keeps its items while Python code runs, and the caller the index.
    let item = |at| match items {
        Some(items) => items.get_borrowed_item(at),
        None => Ok(index.as_borrowed()),
    };
    let is_ellipsis = |item: &Bound<'_, PyAny>| item.is_instance_of::<PyEllipsis>();
    // How many items from one on name an axis, and how many are an ellipsis.
    let count_from = |first| -> Result<(usize, usize)> {
        let (mut named, mut ellipses) = (0, 0);
        for at in first..count {
            let item = item(at)?;
            if is_ellipsis(&item) {
                ellipses += 1;
            } else if !item.is_none() {
                named += 1;
            }
        }
        Ok((named, ellipses))
    };
    let ndim = tensor.ndim();
    if count > ndim {
        let (named, ellipses) = count_from(0)?;
        if ellipses > 1 {
            return Err(several_ellipses());
        }
        if named > ndim {
            let message = format!("expected {ndim} indices at most, found {named}");
            return Err(error_of::<PyIndexError>(message).into());
        }
    }
    let (mut few, mut many) = ([Place::New; FEW], Vec::new());
    let places = match few.get_mut(..count) {
        Some(places) => places,
        None => {
            many.resize(count, Place::New);
            &mut many
        }
    };
    let mut axis = 0;
    for (at, place) in places.iter_mut().enumerate() {
        let item = item(at)?;
        if item.is_none() {
            continue;
        }
        if is_ellipsis(&item) {
            let (behind, ellipses) = count_from(at + 1)?;
            if ellipses > 0 {
                return Err(several_ellipses());
            }
            *place = Place::Whole(ndim - axis - behind);
            axis = ndim - behind;
            continue;
        }
        let extent = tensor.shape()[axis];
        *place = match item.cast::<PySlice>() {
            Ok(slice) => range(slice.as_borrowed(), extent)?,
            Err(_) => Place::At(position(item, axis, extent)?),
        };
        axis += 1;
    }
    Ok(tensor.index(places)?)
}

#[cold]
fn several_ellipses() -> Error {
    error_of::<PyIndexError>("expected one ellipsis at most, found more").into()
}

/// The positions of one element; `None` if the index has other items than one int for each axis.
pub(super) fn positions(shape: &[i64], index: &Bound<'_, PyTuple>) -> Result<Option<Vec<usize>>> {
    let is_int = |item: Bound<'_, PyAny>| item.is_exact_instance_of::<PyInt>();
    if index.len() != shape.len() || !index.iter().all(is_int) {
        return Ok(None);
    }
    let axes = index.iter().zip(shape).enumerate();
    axes.map(|(axis, (item, &extent))| position(item.as_borrowed(), axis, extent))
        .collect::<Result<_>>()
        .map(Some)
}

fn range(slice: Borrowed<'_, '_, PySlice>, extent: i64) -> Result<Place> {
    let [first, step, count] = range_of(slice, extent as isize)?;
    let count = count as usize;
    if step == 1 && count == extent as usize {
        return Ok(Place::Whole(1));
    }
    // Of no elements, the first may be one before the axis.
    Ok(Place::Range { first: first.max(0) as usize, step, count })
}

/// An index of an axis, which counts from the end if it is negative.
fn position(item: Borrowed<'_, '_, PyAny>, axis: usize, extent: i64) -> Result<usize> {
    let py = item.py();
    let index = if item.is_exact_instance_of::<PyInt>() {
        item.extract::<i64>().ok()
    } else {
        unless_mistyped(py, through_pyo3(|| item.extract::<i64>()))?
    };
    let is_number = index.is_some() || item.is_instance_of::<PyInt>();
    if !is_number || item.is_instance_of::<PyBool>() {
        let message = format!(
            "expected an int, a slice, ..., None or a tuple of them, found {}; \
             numpy.from_dlpack(x) takes all of NumPy's indices",
            item.get_type().name()?
        );
        return Err(error_of::<PyTypeError>(message).into());
    }
    let from_start = index.map(|index| if index < 0 { index + extent } else { index });
    match from_start {
        Some(index @ 0..) if index < extent => Ok(index as usize),
        _ => {
            let item = item.str()?;
            let message = if extent == 0 {
                format!("expected no index on axis {axis}, which has no elements, found {item}")
            } else {
                let last = extent - 1;
                format!("expected an index from {} to {last} on axis {axis}, found {item}", -extent)
            };
            Err(error_of::<PyIndexError>(message).into())
        }
    }
}

/// Extents as arguments or in one sequence, at most one of them -1, for a number of elements.
pub(super) fn shape(arguments: &Bound<'_, PyTuple>, len: usize) -> Result<Vec<i64>> {
    let Some(mut extents) = through_pyo3(|| extents_of(arguments))? else {
        let message =
            format!("shape: expected ints, or one sequence of ints, found {}", arguments.repr()?);
        return Err(error_of::<PyTypeError>(message).into());
    };
    if let Some(at) = extents.iter().position(|&extent| extent == -1) {
        let others = extents.iter().enumerate().filter(|&(axis, _)| axis != at);
        let known = others.map(|(_, &extent)| extent).try_fold(1_i64, i64::checked_mul);
        match known {
            Some(known @ 1..) if len as i64 % known == 0 => extents[at] = len as i64 / known,
            _ => {
                let message = format!(
                    "shape: expected extents of {len} elements, at most one of them -1, found \
                     {extents:?}"
                );
                return Err(error_of::<PyValueError>(message).into());
            }
        }
    }
    Ok(extents)
}

fn extents_of(arguments: &Bound<'_, PyTuple>) -> Result<Option<Vec<i64>>> {
    let only = if arguments.len() == 1 { Some(arguments.get_item(0)?) } else { None };
    let extents = only.and_then(|only| extents(only.as_borrowed())).unwrap_or_else(|| {
        arguments.iter().map(|extent| extent.extract()).collect::<PyResult<_>>()
    });
    unless_mistyped(arguments.py(), extents)
}

/// The ints, or `None` for other objects, and for ints that are too large. Any other exception is that of the
/// object's own code.
fn unless_mistyped<T>(py: Python<'_>, ints: PyResult<T>) -> Result<Option<T>> {
    let is_ours = |error: &PyErr| {
        error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyOverflowError>(py)
    };
    match ints {
        Ok(ints) => Ok(Some(ints)),
        Err(error) if is_ours(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
