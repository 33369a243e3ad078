//! Parts of a `dlbridge.Tensor` over the same memory: what `__getitem__` and `reshape` take.
//! The layout of a part belongs to `dlbridge`.
//! Invariant: the same elements as NumPy's basic indexing selects.

use dlbridge::{ArcTensor, Parts};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PySlice, PyTuple};

use crate::Result;
use crate::error::{error_of, unless_refused};
use crate::interpreter::{made, through_pyo3};

/// The part of a tensor that an index selects: an int, a slice, `...`, None, or a tuple of them.
pub(super) fn index(tensor: &ArcTensor, index: &Bound<'_, PyAny>) -> Result<ArcTensor> {
    let single;
    let items = match index.cast::<PyTuple>() {
        Ok(items) => items,
        Err(_) => {
            single = made::tuple(index.py(), [Ok(index.clone())])?;
            &single
        }
    };
    let rank = tensor.rank();
    let is_ellipsis = |item: &Bound<'_, PyAny>| item.is_instance_of::<PyEllipsis>();
    let ellipses = items.iter().filter(is_ellipsis).count();
    let named = items.iter().filter(|item| !item.is_none() && !is_ellipsis(item)).count();
    if ellipses > 1 {
        return Err(error_of::<PyIndexError>("expected one ellipsis at most, found more").into());
    }
    if named > rank {
        let message = format!("expected {rank} indices at most, found {named}");
        return Err(error_of::<PyIndexError>(message).into());
    }
    let (mut part, mut axis) = (tensor.clone(), 0);
    for item in items {
        if is_ellipsis(&item) {
            axis += rank - named;
        } else if item.is_none() {
            part = part.unsqueeze(axis)?;
            axis += 1;
        } else if let Ok(slice) = item.cast::<PySlice>() {
            part = sliced(part, axis, slice)?;
            axis += 1;
        } else {
            part = part.select(axis, position(&item, axis, part.shape()[axis])?)?;
        }
    }
    Ok(part)
}

/// The positions of one element; `None` if the index has other items than one int for each axis.
pub(super) fn positions(shape: &[i64], index: &Bound<'_, PyTuple>) -> Result<Option<Vec<usize>>> {
    let is_int = |item: Bound<'_, PyAny>| item.is_exact_instance_of::<PyInt>();
    if index.len() != shape.len() || !index.iter().all(is_int) {
        return Ok(None);
    }
    let axes = index.iter().zip(shape).enumerate();
    axes.map(|(axis, (item, &extent))| position(&item, axis, extent))
        .collect::<Result<_>>()
        .map(Some)
}

fn sliced(part: ArcTensor, axis: usize, slice: &Bound<'_, PySlice>) -> Result<ArcTensor> {
    let extent = part.shape()[axis] as usize;
    let indices = through_pyo3(|| slice.indices(extent as isize))?;
    let (first, step, count) = (indices.start, indices.step, indices.slicelength);
    if count == 0 {
        return Ok(part.slice(axis, 0..0)?);
    }
    // Within the axis, as Python says.
    let last = first + (count as isize - 1) * step;
    let range = first.min(last) as usize..=first.max(last) as usize;
    let is_whole = range == (0..=extent - 1);
    let part = if is_whole { part } else { part.slice(axis, range)? };
    Ok(if step == 1 { part } else { part.step_by(axis, step)? })
}

/// An index of an axis, which counts from the end if it is negative.
fn position(item: &Bound<'_, PyAny>, axis: usize, extent: i64) -> Result<usize> {
    let py = item.py();
    let index = if item.is_exact_instance_of::<PyInt>() {
        item.extract::<i64>().ok()
    } else {
        unless_refused(py, through_pyo3(|| item.extract::<i64>()))?
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
    let py = arguments.py();
    if arguments.len() == 1 {
        if let Some(extents) = unless_refused(py, arguments.get_item(0)?.extract::<Vec<i64>>())? {
            return Ok(Some(extents));
        }
    }
    unless_refused(py, arguments.iter().map(|extent| extent.extract()).collect::<PyResult<_>>())
}
