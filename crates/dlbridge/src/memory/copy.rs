//! Copies strided elements to contiguous memory, block by block.

use std::array;

use super::buffer::Buffer;
use crate::layout::{Axis, Blocks};
use crate::memory::Checked;
use crate::{Element, Error, Flags, ShapeField, layout};

/// The number of elements read at a time along a row of the target, from as many rows of the source.
const LANES: usize = 8;
/// The length of a tile along a row of the source, in bytes: whole cache lines, few enough that those
/// of all lanes stay in the cache.
const TILE: usize = 256;
/// Shorter rows are copied element by element: calling `memcpy` costs more.
const SHORT: usize = 32;

/// Copies the elements of a layout to contiguous memory, in row-major order, and counts them.
///
/// # Safety
///
/// The layout, counted from `source` in elements of type `T`, has the elements that `blocks` was
/// made of; `target` is valid for writes of as many, which are other memory. It may be misaligned.
pub(crate) unsafe fn copy_strided<T: Element>(
    source: *const u8,
    target: *mut u8,
    blocks: &Blocks,
) -> usize {
    let Blocks { rows, columns, .. } = blocks;
    let mut copied = 0;
    let (source, target) = (source.cast::<T>(), target.cast::<T>());
    blocks.for_each(&mut |from, to| {
        let (source, target) = (source.wrapping_offset(from), target.wrapping_offset(to));
        if columns.source == 1 {
            // SAFETY: a block's elements (the caller's duty), contiguous along its rows.
            unsafe { copy_rows(source, target, *rows, columns.extent) };
        } else if rows.source.unsigned_abs() < columns.source.unsigned_abs() && rows.extent > 1 {
            // Pixels of bytes and samples of sound take two thirds of the time with constants.
            let copy = match (size_of::<T>(), rows.extent, columns.source) {
                (1 | 2, 3, 3) => transpose::<T, 3, 3>,
                (1, 3, 4) => transpose::<T, 3, 4>,
                (1, 4, 4) => transpose::<T, 4, 4>,
                (2, 2, 2) => transpose::<T, 2, 2>,
                _ => transpose::<T, 0, 0>,
            };
            // SAFETY: a block's elements (the caller's duty).
            unsafe { copy(source, target, *rows, *columns) };
        } else {
            // SAFETY: a block's elements (the caller's duty).
            unsafe { copy_lines(source, target, *rows, *columns) };
        }
        copied += rows.extent * columns.extent;
    });
    copied
}

/// The same for elements of any size, given in bytes.
///
/// # Safety
///
/// As for [`copy_strided`].
pub(crate) unsafe fn copy_strided_bytes(
    source: *const u8,
    target: *mut u8,
    blocks: &Blocks,
    size: usize,
) {
    let Blocks { rows, columns, .. } = blocks;
    let bytes = |offset: isize| offset * size as isize;
    blocks.for_each(&mut |from, to| {
        for row in 0..rows.extent as isize {
            for column in 0..columns.extent as isize {
                let from = bytes(from + row * rows.source + column * columns.source);
                let to = bytes(to + row * rows.target + column);
                let (source, target) = (source.wrapping_offset(from), target.wrapping_offset(to));
                // SAFETY: an element and its place in the target (the caller's duty).
                unsafe { source.copy_to_nonoverlapping(target, size) };
            }
        }
    });
}

/// # Safety
///
/// As for [`copy_strided`], with `len` contiguous elements in each row.
unsafe fn copy_rows<T: Element>(source: *const T, target: *mut T, rows: Axis, len: usize) {
    for row in 0..rows.extent as isize {
        let from = source.wrapping_offset(row * rows.source);
        let to = target.wrapping_offset(row * rows.target);
        if len * size_of::<T>() >= SHORT && to.is_aligned() {
            // SAFETY: a row's elements (the caller's duty).
            unsafe { T::copy_run(from.cast(), to, len) };
            continue;
        }
        for column in 0..len {
            // SAFETY: an element of the row (the caller's duty).
            let value = unsafe { T::read(from.wrapping_add(column).cast()) };
            // SAFETY: its place in the target (the caller's duty).
            unsafe { to.wrapping_add(column).write_unaligned(value) };
        }
    }
}

/// Copies rows whose elements are apart, one row after the other.
///
/// # Safety
///
/// As for [`copy_strided`].
unsafe fn copy_lines<T: Element>(source: *const T, target: *mut T, rows: Axis, columns: Axis) {
    // The compiler vectorises a loop with this constant step: copying backwards takes half of the time for
    // float32 and a third for bytes.
    let copy = if columns.source == -1 { copy_line::<T, -1> } else { copy_line::<T, 0> };
    for row in 0..rows.extent as isize {
        let from = source.wrapping_offset(row * rows.source);
        let to = target.wrapping_offset(row * rows.target);
        // SAFETY: a row's elements (the caller's duty).
        unsafe { copy(from, to, columns) };
    }
}

/// `STEP` is that of the columns, or 0 for any.
///
/// # Safety
///
/// As for [`copy_strided`].
unsafe fn copy_line<T: Element, const STEP: isize>(
    source: *const T,
    target: *mut T,
    columns: Axis,
) {
    let step = if STEP == 0 { columns.source } else { STEP };
    for column in 0..columns.extent as isize {
        // SAFETY: an element of the row (the caller's duty).
        let value = unsafe { T::read(source.wrapping_offset(column * step).cast()) };
        // SAFETY: its place in the target (the caller's duty).
        unsafe { target.wrapping_offset(column).write_unaligned(value) };
    }
}

/// Reads a few columns together, so that each cache line of the source is read once.
///
/// # Safety
///
/// As for [`copy_strided`]. `ROWS` is the number of the rows and `STEP` the columns' step, or both are 0.
unsafe fn transpose<T: Element, const ROWS: usize, const STEP: isize>(
    source: *const T,
    target: *mut T,
    mut rows: Axis,
    mut columns: Axis,
) {
    if ROWS != 0 {
        (rows.extent, columns.source) = (ROWS, STEP);
    }
    let tile = TILE.div_ceil(size_of::<T>());
    for first in (0..rows.extent).step_by(tile) {
        let tile = first..rows.extent.min(first + tile);
        let mut column = 0;
        while column + LANES <= columns.extent {
            for row in tile.clone() {
                // SAFETY: elements of the row (the caller's duty).
                unsafe { copy_lanes::<T, LANES>(source, target, rows, columns, row, column) };
            }
            column += LANES;
        }
        for column in column..columns.extent {
            for row in tile.clone() {
                // SAFETY: an element of the row (the caller's duty).
                unsafe { copy_lanes::<T, 1>(source, target, rows, columns, row, column) };
            }
        }
    }
}

/// # Safety
///
/// As for [`copy_strided`]; there are `N` elements from this row and column on.
#[inline(always)]
unsafe fn copy_lanes<T: Element, const N: usize>(
    source: *const T,
    target: *mut T,
    rows: Axis,
    columns: Axis,
    row: usize,
    column: usize,
) {
    let (row, column) = (row as isize, column as isize);
    let from = source.wrapping_offset(row * rows.source + column * columns.source);
    let to = target.wrapping_offset(row * rows.target + column);
    let values: [T; N] = array::from_fn(|lane| {
        let at = from.wrapping_offset(lane as isize * columns.source);
        // SAFETY: one of the `N` elements (the caller's duty).
        unsafe { T::read(at.cast()) }
    });
    // SAFETY: their places in the target (the caller's duty).
    unsafe { to.cast::<[T; N]>().write_unaligned(values) };
}

// Copies elements of any type, as bytes, to contiguous row-major memory.

impl Checked<'_> {
    /// A contiguous copy of the elements, in row-major order.
    pub(crate) fn to_buffer(self) -> Result<Buffer, Error> {
        self.check_host()?;
        let write = |target| {
            // SAFETY: host memory (checked), and fresh memory for as many bytes (R7).
            unsafe { self.copy_bytes_to(target) }
        };
        // SAFETY: it writes all bytes of the tensor (R1).
        unsafe { Buffer::written(self.nbytes(), write) }
    }

    /// Copies the elements, in row-major order, to a slice of their size.
    pub(crate) fn copy_to_bytes(self, target: &mut [u8]) -> Result<(), Error> {
        self.check_host()?;
        let (expected, found) = (self.nbytes(), target.len());
        if expected != found {
            return Err(Error::ShapeMismatch { field: ShapeField::Size, expected, found });
        }
        // SAFETY: host memory (checked), and a unique borrow of as many bytes (R2).
        unsafe { self.copy_bytes_to(target.as_mut_ptr()) }
    }

    /// Copies contiguous elements to `block`, one part after the other, and passes each to `function`.
    pub(crate) fn copy_by_blocks<E: From<Error>>(
        self,
        block: &mut [u8],
        mut function: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check_host()?;
        self.check_contiguous()?;
        let (size, mut done) = (self.nbytes(), 0);
        while done < size {
            let part = block.len().min(size - done);
            let source = self.data.wrapping_add(done);
            // SAFETY: so many bytes are contiguous from there on (R1, R2), and the block is borrowed
            // mutably and has as many.
            unsafe { source.copy_to_nonoverlapping(block.as_mut_ptr(), part) };
            function(&block[..part])?;
            done += part;
        }
        Ok(())
    }

    /// Writes [`nbytes`](Self::nbytes) bytes to `target`, unless it returns an error.
    ///
    /// # Safety
    ///
    /// The elements are in host memory; `target` is valid for writes of as many bytes.
    unsafe fn copy_bytes_to(&self, target: *mut u8) -> Result<(), Error> {
        if self.is_contiguous() {
            // SAFETY: so many bytes are contiguous from `data` on (R1, R2), and the target is other
            // memory (the caller's duty).
            unsafe { self.data.copy_to_nonoverlapping(target, self.nbytes()) };
            return Ok(());
        }
        if self.dtype().itemsize().is_none() && !self.flags.contains(Flags::SUBBYTE_PADDED) {
            return Err(Error::SubByte { padded: false, dtype: self.dtype() });
        }
        let size = layout::nbytes(1, self.dtype(), self.flags)?;
        let blocks = Blocks::new(self.shape(), self.strides());
        let copy = match size {
            1 => copy_strided::<u8>,
            2 => copy_strided::<u16>,
            4 => copy_strided::<u32>,
            8 => copy_strided::<u64>,
            16 => copy_strided::<u128>,
            _ => {
                // SAFETY: elements of this size (R1, R2), and a target for all of them.
                unsafe { copy_strided_bytes(self.data, target, &blocks, size) };
                return Ok(());
            }
        };
        // SAFETY: elements of this size (R1, R2), read as integers, and a target for all of them.
        unsafe { copy(self.data, target, &blocks) };
        Ok(())
    }
}
