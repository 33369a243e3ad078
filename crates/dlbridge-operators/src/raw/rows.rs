//! The rows of a call: what the function sees at each index of the leading axes. A call is checked once; then a row
//! is a pointer for each parameter.
//! Invariant: from each index within `leading`, the steps of a place lead to the first of the elements that its layout
//! reaches, alive for the lifetime; no other code accesses those of a place that is written.

use std::array;
use std::ffi::c_void;

use dlbridge::ffi::{Dims, RowLayout};
use dlbridge::{DType, Element, View, ViewMut};

use super::operand::Slot;
use crate::Failure;
use crate::kind::Scalar;

/// The rows of a call.
#[derive(Debug)]
pub struct Rows<'a> {
    leading: &'a [i64],
    places: Vec<Place<'a>>,
    /// Whether a row has elements to write.
    writes: bool,
}

/// Where the arguments for one parameter are.
#[derive(Debug)]
struct Place<'a> {
    /// The address in the first row of the current index of the outer axes.
    data: *mut c_void,
    /// To the next row, in bytes.
    step: isize,
    /// The same along each leading axis but the last one.
    outer: Vec<isize>,
    part: Part<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Part<'a> {
    Read(RowLayout<'a>),
    Write(RowLayout<'a>),
    Absent,
    Scalar(Scalar),
    /// A scalar for each row.
    Scalars(Reader),
}

/// Reads a scalar at an address that need not be aligned.
pub(crate) type Reader = unsafe fn(*const c_void) -> Scalar;

/// The value of one argument in a row.
#[derive(Debug)]
pub struct Value<'v>(Part<'v>, *mut c_void);

impl<'a> Rows<'a> {
    /// The rows along leading axes, of a function of so many parameters, which are added in their order.
    pub(crate) fn new(leading: &'a [i64], parameters: usize) -> Self {
        Self { leading, places: Vec::with_capacity(parameters), writes: false }
    }

    /// Adds the next parameter, whose tensor has the leading axes in front of its own.
    ///
    /// # Errors
    ///
    /// If the tensor is not valid.
    pub(crate) fn add(&mut self, slot: &'a Slot<'_>) -> Result<(), Failure> {
        let (operand, is_written) = match slot {
            Slot::Read(operand) => (operand, false),
            Slot::Write(written) => (written.operand(), true),
            Slot::Absent => return self.push(Part::Absent),
            Slot::Scalar(scalar) => return self.push(Part::Scalar(*scalar)),
        };
        operand.check()?;
        let front = self.leading.len();
        if operand.shape().get(..front) != Some(self.leading) {
            return Err(Failure::new("expected the leading axes of the call"));
        }
        let itemsize = operand.dtype.itemsize().unwrap_or(0) as isize;
        let bytes = |stride: &i64| (*stride as isize).wrapping_mul(itemsize);
        let (steps, strides) = operand.strides().split_at(front);
        let (step, outer) = match steps.split_last() {
            Some((step, outer)) => (bytes(step), outer.iter().map(bytes).collect()),
            None => (0, Vec::new()),
        };
        let part = self.part(operand.dtype, (&operand.shape()[front..], strides), is_written)?;
        // The operand's elements, by its invariant.
        self.places.push(Place { data: operand.data, step, outer, part });
        Ok(())
    }

    fn part(
        &mut self,
        dtype: DType,
        (shape, strides): (&'a [i64], &'a [i64]),
        is_written: bool,
    ) -> Result<Part<'a>, Failure> {
        let layout = RowLayout::measure(shape, strides, dtype)?;
        self.writes |= is_written && !shape.contains(&0);
        Ok(if is_written { Part::Write(layout) } else { Part::Read(layout) })
    }

    fn push(&mut self, part: Part<'a>) -> Result<(), Failure> {
        let outer = vec![0; self.leading.len().saturating_sub(1)];
        self.places.push(Place { data: std::ptr::null_mut(), step: 0, outer, part });
        Ok(())
    }

    /// Adds a tensor in host memory, whose strides count elements, and whose step to the next row counts bytes.
    ///
    /// # Safety
    ///
    /// The invariant of this file, along one leading axis at most.
    ///
    /// # Errors
    ///
    /// If the numbers are too large.
    pub(crate) unsafe fn add_raw(
        &mut self,
        data: *mut c_void,
        dtype: DType,
        lists: (&'a [i64], &'a [i64]),
        step: isize,
        is_written: bool,
    ) -> Result<(), Failure> {
        let part = self.part(dtype, lists, is_written)?;
        self.places.push(Place { data, step, outer: Vec::new(), part });
        Ok(())
    }

    /// Adds a scalar for each row.
    ///
    /// # Safety
    ///
    /// Along one leading axis at most, `step` leads from `data` to a value that `read` may read.
    pub(crate) unsafe fn add_scalars(&mut self, data: *mut c_void, step: isize, read: Reader) {
        let part = match step {
            // SAFETY: there is a row, whose value this is (the caller's duty).
            0 if !self.leading.contains(&0) => Part::Scalar(unsafe { read(data) }),
            _ => Part::Scalars(read),
        };
        self.places.push(Place { data, step, outer: Vec::new(), part });
    }

    /// Calls a function with the values of each row, in order, once: the addresses are those of the last row then.
    /// Rows without elements to write are not walked, because there may be 2^63 of them.
    ///
    /// # Errors
    ///
    /// The first error of the function, or if there are not `N` parameters.
    #[inline(always)]
    pub fn each<const N: usize>(
        mut self,
        mut call: impl for<'v> FnMut([Value<'v>; N]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let leading = self.leading;
        let places: &mut [Place<'_>; N] =
            self.places.as_mut_slice().try_into().map_err(|_| Failure::of_count())?;
        if leading.contains(&0) || !self.writes {
            return Ok(());
        }
        let rows = leading.last().copied().unwrap_or(1);
        let mut index = Dims::zeros(leading.len().saturating_sub(1));
        // Copies on the stack: a write of the function cannot change them, so that no row loads them anew.
        let parts: [_; N] = array::from_fn(|one| places[one].part);
        let steps: [_; N] = array::from_fn(|one| places[one].step);
        loop {
            let mut at: [_; N] = array::from_fn(|one| places[one].data);
            for _ in 0..rows {
                call(array::from_fn(|one| Value(parts[one], at[one])))?;
                for (at, step) in at.iter_mut().zip(steps) {
                    *at = at.wrapping_byte_offset(step);
                }
            }
            if !next(leading, &mut index, places) {
                return Ok(());
            }
        }
    }
}

/// Goes to the next index of all leading axes but the last one, if there is one.
fn next(leading: &[i64], index: &mut [i64], places: &mut [Place<'_>]) -> bool {
    let Some(axis) = (0..index.len()).rev().find(|&at| index[at] + 1 < leading[at]) else {
        return false;
    };
    for place in places {
        let back = place.outer[axis + 1..].iter().zip(&index[axis + 1..]);
        let back = back.map(|(step, &passed)| step.wrapping_mul(passed as isize));
        let bytes = back.fold(place.outer[axis], isize::wrapping_sub);
        place.data = place.data.wrapping_byte_offset(bytes);
    }
    index[axis] += 1;
    index[axis + 1..].fill(0);
    true
}

impl<'v> Value<'v> {
    #[inline(always)]
    pub(crate) fn view<T: Element>(self) -> Option<View<'v, T>> {
        match self.0 {
            // SAFETY: the elements of this row (the invariant of this file), which are borrowed for `'v` (R1, R2).
            Part::Read(layout) => unsafe { layout.view(self.1) },
            _ => None,
        }
    }

    #[inline(always)]
    pub(crate) fn view_mut<T: Element>(self) -> Option<ViewMut<'v, T>> {
        match self.0 {
            // SAFETY: as above; written, and each value of a row is used once, so that no other code accesses the
            // elements (T10, T13).
            Part::Write(layout) => unsafe { layout.view_mut(self.1) },
            _ => None,
        }
    }

    #[inline(always)]
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self.0, Part::Absent)
    }

    #[inline(always)]
    pub(crate) fn scalar(&self) -> Option<Scalar> {
        match self.0 {
            Part::Scalar(scalar) => Some(scalar),
            // SAFETY: the address of a value (the duty of who added the scalars).
            Part::Scalars(read) => Some(unsafe { read(self.1) }),
            _ => None,
        }
    }
}
