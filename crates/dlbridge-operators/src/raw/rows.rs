//! The rows of a call: what the function sees at each index of the leading axes. A call is checked once, and each
//! parameter has its type once for each line of rows along the last of these axes; then a row is a pointer for each.
//! Invariant: from each index within `leading`, the steps of a place lead to the first of the elements that its layout
//! reaches, or to its scalar, alive for the lifetime; no other code accesses the elements of a place that is written.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;

use dlbridge::ffi::{Dims, RowLayout, TypedRow};
use dlbridge::{DType, Element, View, ViewMut};

use super::operand::Slot;
use crate::Failure;
use crate::argument::{Argument, Parameter};
use crate::kind::{Kind, Scalar};

/// The rows of a call.
#[derive(Debug)]
pub struct Rows<'a> {
    leading: &'a [i64],
    /// Those of the places that are added.
    parameters: &'static [Parameter],
    places: Vec<Place<'a>>,
    /// Whether a row has elements to write.
    writes: bool,
}

/// Where the arguments for one parameter are.
#[derive(Debug)]
pub struct Place<'a> {
    /// The address in the first row of the current index of the outer axes.
    data: *mut c_void,
    /// To the next row, in bytes.
    step: isize,
    /// The same along each leading axis but the last one.
    outer: Vec<isize>,
    part: Part<'a>,
}

/// What is at the address.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a>(Kept<'a>);

#[derive(Debug, Clone, Copy)]
enum Kept<'a> {
    Read(RowLayout<'a>),
    Write(RowLayout<'a>),
    Absent,
    Scalar(Kind),
}

/// Rows to read.
#[derive(Debug, Clone, Copy)]
pub struct Read<'a, T>(TypedRow<'a, T>);

/// Rows to write.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a, T>(TypedRow<'a, T>);

/// Scalars of a type.
#[derive(Debug, Clone, Copy)]
pub struct Number<S>(PhantomData<S>);

/// The value of one argument in a row.
#[derive(Debug)]
pub struct Value<'v, R>(R, *mut c_void, PhantomData<&'v mut c_void>);

impl<'a> Rows<'a> {
    /// The rows along leading axes, of a function of these parameters, which are added in their order.
    pub(crate) fn new(leading: &'a [i64], parameters: &'static [Parameter]) -> Self {
        Self { leading, parameters, places: Vec::with_capacity(parameters.len()), writes: false }
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
            Slot::Absent => return self.push(Kept::Absent, ptr::null_mut()),
            Slot::Scalar(Scalar::Float(value)) => return self.scalar(Kind::Float, value),
            Slot::Scalar(Scalar::Int(value)) => return self.scalar(Kind::Int, value),
            Slot::Scalar(Scalar::Bool(value)) => return self.scalar(Kind::Bool, value),
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
        Ok(Part(if is_written { Kept::Write(layout) } else { Kept::Read(layout) }))
    }

    fn scalar<S>(&mut self, kind: Kind, value: &'a S) -> Result<(), Failure> {
        self.push(Kept::Scalar(kind), ptr::from_ref(value).cast_mut().cast())
    }

    fn push(&mut self, part: Kept<'a>, data: *mut c_void) -> Result<(), Failure> {
        let outer = vec![0; self.leading.len().saturating_sub(1)];
        self.places.push(Place { data, step: 0, outer, part: Part(part) });
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

    /// Adds a scalar for each row, at any address.
    ///
    /// # Safety
    ///
    /// The invariant of this file, along one leading axis at most, for values of this kind.
    pub(crate) unsafe fn add_scalars(&mut self, data: *mut c_void, step: isize, kind: Kind) {
        self.places.push(Place { data, step, outer: Vec::new(), part: Part(Kept::Scalar(kind)) });
    }

    /// Calls a function with the values of each row, in order, once.
    /// Rows without elements to write are not walked, because there may be 2^63 of them.
    ///
    /// # Errors
    ///
    /// The first error of the function, or if the parameters are others than `A`.
    #[inline(always)]
    pub fn each<A: Arguments>(
        mut self,
        mut call: impl for<'v> FnMut(A::Items<'v>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let leading = self.leading;
        if leading.contains(&0) || !self.writes {
            return Ok(());
        }
        let rows = leading.last().copied().unwrap_or(1);
        let mut index = Dims::zeros(leading.len().saturating_sub(1));
        loop {
            let mut lines = A::lines(self.parameters, &self.places)?;
            for _ in 0..rows {
                // SAFETY: as many rows as the places have along this axis (the invariant; R1, R2).
                call(unsafe { lines.next() })?;
            }
            if !next(leading, &mut index, &mut self.places) {
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

impl<'v> Part<'v> {
    #[inline(always)]
    pub(crate) fn read<T: Element>(self) -> Option<Read<'v, T>> {
        if let Kept::Read(layout) = self.0 { layout.of().map(Read) } else { None }
    }

    #[inline(always)]
    pub(crate) fn write<T: Element>(self) -> Option<Write<'v, T>> {
        if let Kept::Write(layout) = self.0 { layout.of().map(Write) } else { None }
    }

    #[inline(always)]
    pub(crate) fn is_absent(self) -> bool {
        matches!(self.0, Kept::Absent)
    }
}

impl<'v, T: Element> Value<'v, Read<'v, T>> {
    #[inline(always)]
    pub(crate) fn view(self) -> View<'v, T> {
        // SAFETY: the elements of this row (the invariant of this file), which are borrowed for `'v` (R1, R2).
        unsafe { self.0.0.view(self.1) }
    }
}

impl<'v, T: Element> Value<'v, Option<Read<'v, T>>> {
    #[inline(always)]
    pub(crate) fn optional(self) -> Option<View<'v, T>> {
        self.0.map(|row| Value(row, self.1, self.2).view())
    }
}

impl<'v, T: Element> Value<'v, Write<'v, T>> {
    #[inline(always)]
    pub(crate) fn view_mut(self) -> ViewMut<'v, T> {
        // SAFETY: as above; written, and each value of a row is used once, so that no other code accesses the
        // elements (T10, T13).
        unsafe { self.0.0.view_mut(self.1) }
    }
}

macro_rules! numbers {
    ($($ty:ty: $kind:ident, $bytes:ty, $read:expr;)*) => {$(
        impl Number<$ty> {
            #[inline(always)]
            pub(crate) fn of(part: Part<'_>) -> Option<Self> {
                matches!(part.0, Kept::Scalar(Kind::$kind)).then_some(Self(PhantomData))
            }
        }

        impl Value<'_, Number<$ty>> {
            #[inline(always)]
            pub(crate) fn number(self) -> $ty {
                // SAFETY: a value of this kind (the invariant of this file; R2).
                $read(unsafe { self.1.cast::<$bytes>().read_unaligned() })
            }
        }
    )*};
}

numbers! {
    f64: Float, f64, |value| value;
    i64: Int, i64, |value| value;
    // NumPy's bytes may be other than 0 and 1.
    bool: Bool, u8, |byte| byte != 0;
}
