//! The rows of a call: what the function sees at each index of the leading axes. A call is checked once.
//! Invariant: from each index within `leading`, the steps of a place lead to the first of the elements that its layout
//! reaches, or to its scalar, alive for the lifetime; no other code accesses the elements of a place that is written.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;

use dlbridge::{DType, Element, Layout, View, ViewMut};

use super::operand::Slot;
use crate::Failure;
use crate::few::Few;
use crate::kind::{Kind, Scalar};

/// The rows of a call.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    pub(super) leading: &'a [i64],
    pub(super) places: Few<Place<'a>, 8>,
    /// Whether a row has elements to write.
    pub(super) writes: bool,
}

/// Where the arguments for one parameter are.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The address in the first row of the current index of the outer axes.
    pub(super) data: *mut c_void,
    /// To the next row, in bytes.
    pub(super) step: isize,
    /// The same along each leading axis but the last one, in steps of so many bytes; none for a scalar.
    outer: &'a [i64],
    unit: isize,
    pub(super) part: Part<'a>,
}

/// What is at the address.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a>(Kept<'a>);

/// The tag is a word, so that moves are of words: those of a byte and of the bytes behind it stall the loads that follow.
#[derive(Debug, Clone, Copy)]
#[repr(u64)]
enum Kept<'a> {
    Read(Layout<'a>),
    Write(Layout<'a>),
    Absent,
    Scalar(Kind),
}

/// Rows to read.
#[derive(Debug, Clone, Copy)]
pub struct Read<'a, T>(Layout<'a>, PhantomData<T>);

/// Rows to write.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a, T>(Layout<'a>, PhantomData<T>);

/// Scalars of a type.
#[derive(Debug, Clone, Copy)]
pub struct Number<S>(PhantomData<S>);

/// The value of one argument in a row.
#[derive(Debug)]
pub struct Value<'v, R>(
    pub(super) R,
    pub(super) *mut c_void,
    pub(super) PhantomData<&'v mut c_void>,
);

impl<'a> Rows<'a> {
    /// The rows along leading axes, of a function whose parameters are added in their order.
    pub(crate) fn new(leading: &'a [i64]) -> Self {
        Self { leading, places: Few::new(), writes: false }
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
            other => {
                let (part, data) = match other {
                    Slot::Scalar(Scalar::Float(value)) => {
                        (Kept::Scalar(Kind::Float), address(value))
                    }
                    Slot::Scalar(Scalar::Int(value)) => (Kept::Scalar(Kind::Int), address(value)),
                    Slot::Scalar(Scalar::Bool(value)) => (Kept::Scalar(Kind::Bool), address(value)),
                    _ => (Kept::Absent, ptr::null_mut()),
                };
                self.push(data, 0, Part(part));
                return Ok(());
            }
        };
        operand.tensor()?;
        let front = self.leading.len();
        if operand.shape().get(..front) != Some(self.leading) {
            return Err(Failure::new("expected the leading axes of the call"));
        }
        let unit = operand.dtype.itemsize().unwrap_or(0) as isize;
        let (steps, strides) = operand.strides().split_at(front);
        let (step, outer) = steps.split_last().unwrap_or((&0, &[]));
        let part = self.part(operand.dtype, (&operand.shape()[front..], strides), is_written)?;
        let step = (*step as isize).wrapping_mul(unit);
        // The operand's elements, by its invariant.
        self.places.push(Place { data: operand.data, step, outer, unit, part });
        Ok(())
    }

    #[inline(always)]
    fn part(
        &mut self,
        dtype: DType,
        (shape, strides): (&'a [i64], &'a [i64]),
        is_written: bool,
    ) -> Result<Part<'a>, Failure> {
        let layout = Layout::new(shape, strides, dtype)?;
        self.writes |= is_written && !shape.contains(&0);
        Ok(Part(if is_written { Kept::Write(layout) } else { Kept::Read(layout) }))
    }

    #[inline(always)]
    fn push(&mut self, data: *mut c_void, step: isize, part: Part<'a>) {
        self.places.push(Place { data, step, outer: &[], unit: 0, part });
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
    #[inline(always)]
    pub(crate) unsafe fn add_raw(
        &mut self,
        data: *mut c_void,
        dtype: DType,
        lists: (&'a [i64], &'a [i64]),
        step: isize,
        is_written: bool,
    ) -> Result<(), Failure> {
        let part = self.part(dtype, lists, is_written)?;
        self.push(data, step, part);
        Ok(())
    }

    /// Adds a scalar for each row, at any address.
    ///
    /// # Safety
    ///
    /// The invariant of this file, along one leading axis at most, for values of this kind.
    pub(crate) unsafe fn add_scalars(&mut self, data: *mut c_void, step: isize, kind: Kind) {
        self.push(data, step, Part(Kept::Scalar(kind)));
    }
}

impl Place<'_> {
    /// Goes to the next index of an outer axis, and back to the first one of those behind it, of which `passed` is the
    /// current index.
    pub(super) fn advance(&mut self, axis: usize, passed: &[i64]) {
        let Some((step, behind)) = self.outer.get(axis..).and_then(<[i64]>::split_first) else {
            return;
        };
        let back = behind.iter().zip(passed).map(|(step, &passed)| step.wrapping_mul(passed));
        let steps = back.fold(*step, i64::wrapping_sub) as isize;
        self.data = self.data.wrapping_byte_offset(steps.wrapping_mul(self.unit));
    }
}

/// A view of the dtype that `Part::read` or `Part::write` compared.
#[inline(always)]
fn typed<V>(view: Result<V, dlbridge::Error>) -> V {
    view.unwrap_or_else(|error| unreachable!("{error}"))
}

fn address<S>(value: &S) -> *mut c_void {
    ptr::from_ref(value).cast_mut().cast()
}

impl<'v> Part<'v> {
    #[inline(always)]
    pub(crate) fn read<T: Element>(self) -> Option<Read<'v, T>> {
        match self.0 {
            Kept::Read(layout) if layout.dtype() == T::DTYPE => Some(Read(layout, PhantomData)),
            _ => None,
        }
    }

    #[inline(always)]
    pub(crate) fn write<T: Element>(self) -> Option<Write<'v, T>> {
        match self.0 {
            Kept::Write(layout) if layout.dtype() == T::DTYPE => Some(Write(layout, PhantomData)),
            _ => None,
        }
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
        typed(unsafe { View::from_raw(self.1.cast_const().cast(), self.0.0) })
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
        typed(unsafe { ViewMut::from_raw(self.1.cast(), self.0.0) })
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
