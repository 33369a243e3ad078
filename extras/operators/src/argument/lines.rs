//! The walk over the rows of a call: each parameter has its type once for each line of rows along the last leading axis,
//! then a row is a pointer for each.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::marker::PhantomData;

use super::rows::{Place, Rows, Value};
use super::{Argument, Parameter};
use crate::Failure;
use crate::few::Numbers;

/// A walk over the rows of a call. It is used once, because the rows move.
///
/// ```compile_fail,E0382
/// fn twice(walk: dlbridge_operators::Walk<'_, '_>) {
///     let _ = walk.each::<()>(&[], |()| Ok(()));
///     let _ = walk.each::<()>(&[], |()| Ok(()));
/// }
/// ```
///
/// ```
/// fn once(walk: dlbridge_operators::Walk<'_, '_>) {
///     let _ = walk.each::<()>(&[], |()| Ok(()));
/// }
/// ```
#[derive(Debug)]
pub struct Walk<'r, 'a>(&'r mut Rows<'a>);

impl<'a> Rows<'a> {
    /// The walk over the rows.
    pub(crate) fn walk(&mut self) -> Walk<'_, 'a> {
        Walk(self)
    }
}

impl Walk<'_, '_> {
    /// Calls a function with the values of each row, in order.
    /// Rows without elements to write are not walked, because there may be 2^63 of them.
    ///
    /// # Errors
    ///
    /// The first error of the function, or if the parameters are others than `A`.
    #[inline(always)]
    pub fn each<A: Arguments>(
        self,
        parameters: &[Parameter],
        mut call: impl for<'v> FnMut(A::Items<'v>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Rows { leading, places, writes } = self.0;
        let leading = *leading;
        if leading.contains(&0) || !*writes {
            return Ok(());
        }
        let rows = leading.last().copied().unwrap_or(1);
        let mut index = None;
        loop {
            let mut lines = A::lines(parameters, places)?;
            for _ in 0..rows {
                // SAFETY: as many rows as the places have along this axis (the invariant of `Rows`; R1, R2).
                call(unsafe { lines.next() })?;
            }
            let Some(outer @ 1..) = leading.len().checked_sub(1) else { return Ok(()) };
            let index = index.get_or_insert_with(|| Numbers::zeros(outer));
            if !next(leading, index, places) {
                return Ok(());
            }
        }
    }
}

/// The types of a function's parameters, as a list: `(A, (B, ()))`.
pub trait Arguments {
    /// The rows along the last leading axis.
    type Lines<'v>: Lines<Items = Self::Items<'v>>;
    /// The values of one row.
    type Items<'v>;

    /// The rows of these places.
    ///
    /// # Errors
    ///
    /// If one is of another kind, or there are more or fewer.
    fn lines<'v>(
        parameters: &[Parameter],
        places: &[Place<'v>],
    ) -> Result<Self::Lines<'v>, Failure>;
}

/// The rows of a function's parameters along the last leading axis.
pub trait Lines {
    /// The values of one row.
    type Items;

    /// The values of the next row.
    ///
    /// # Safety
    ///
    /// There is one.
    unsafe fn next(&mut self) -> Self::Items;
}

/// The rows of one parameter along the last leading axis.
#[derive(Debug)]
pub struct Line<'v, A: Argument> {
    row: A::Row<'v>,
    /// The address in the next row.
    at: *mut c_void,
    step: isize,
}

impl Arguments for () {
    type Lines<'v> = ();
    type Items<'v> = ();

    #[inline(always)]
    fn lines<'v>(_: &[Parameter], places: &[Place<'v>]) -> Result<(), Failure> {
        if places.is_empty() { Ok(()) } else { Err(Failure::of_count()) }
    }
}

impl Lines for () {
    type Items = ();

    #[inline(always)]
    unsafe fn next(&mut self) {}
}

impl<A: Argument, B: Arguments> Arguments for (A, B) {
    type Lines<'v> = (Line<'v, A>, B::Lines<'v>);
    type Items<'v> = (A::Item<'v>, B::Items<'v>);

    #[inline(always)]
    fn lines<'v>(
        parameters: &[Parameter],
        places: &[Place<'v>],
    ) -> Result<Self::Lines<'v>, Failure> {
        let ([parameter, parameters @ ..], [place, places @ ..]) = (parameters, places) else {
            return Err(Failure::of_count());
        };
        let row = A::row(place.part).ok_or_else(|| Failure::of_kind(parameter.name))?;
        let line = Line { row, at: place.data, step: place.step };
        Ok((line, B::lines(parameters, places)?))
    }
}

impl<'v, A: Argument, B: Lines> Lines for (Line<'v, A>, B) {
    type Items = (A::Item<'v>, B::Items);

    #[inline(always)]
    unsafe fn next(&mut self) -> Self::Items {
        let (line, others) = self;
        let value = Value(line.row, line.at, PhantomData);
        line.at = line.at.wrapping_byte_offset(line.step);
        // SAFETY: the caller's duty.
        (A::get(value), unsafe { others.next() })
    }
}

/// Goes to the next index of all leading axes but the last one, if there is one.
fn next(leading: &[i64], index: &mut [i64], places: &mut [Place<'_>]) -> bool {
    let Some(axis) = (0..index.len()).rev().find(|&at| index[at] + 1 < leading[at]) else {
        return false;
    };
    places.iter_mut().for_each(|place| place.advance(axis, &index[axis + 1..]));
    index[axis] += 1;
    index[axis + 1..].fill(0);
    true
}
