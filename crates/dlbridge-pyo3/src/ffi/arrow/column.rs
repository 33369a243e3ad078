//! The type of an Arrow column, and where the numbers of its chunks are.
//! Calling the producer belongs to `import`.
//! Invariant: an index is within the length that the array reports, on every level.

use dlbridge::{DType, Device, MAX_NDIM, layout};
use pyo3::prelude::*;

use super::{Array, ArrowArray, Schema, released};
use crate::dtypes::arrow;
use crate::ffi::memory::ForeignMemory;
use crate::{Error, Result};

/// The type of a column: numbers, or lists of one size, in the only field of a struct or not.
pub(super) struct ColumnType {
    pub(super) dtype: DType,
    levels: Vec<Level>,
    /// The extents of a row, in the order of its memory.
    extents: Vec<i64>,
    /// The axis of a row's memory for each axis of the row, if they are not in this order.
    permutation: Option<Vec<usize>>,
}

/// The type of a column as its schema says it, which is not needed any more. Parsing the parameters of
/// a tensor type runs Python code, which could release the schema.
pub(super) struct Unparsed {
    dtype: DType,
    levels: Vec<Level>,
    /// The number of columns of a table, and the sizes of the lists.
    extents: Vec<i64>,
    /// The axis of a row that is a tensor of several axes, and the parameters of its tensor type.
    tensor: Option<(usize, Vec<u8>)>,
}

/// A type that has a child.
enum Level {
    /// A struct of one field: a table of one column.
    Struct,
    /// Lists of this size.
    List(i64),
}

impl Unparsed {
    /// Reads a schema, without running Python code. `name` is the method that returned it.
    pub(super) fn read(name: &str, mut schema: Schema<'_>) -> Result<Self> {
        let (mut levels, mut extents, mut tensor) = (Vec::new(), Vec::new(), None);
        loop {
            let format = schema.format(name)?;
            let refuse = |what: &str, help: &str| {
                let message = format!("{name}: expected numbers, found {what} ({format:?}){help}");
                Err(Error::dtype(message))
            };
            if !schema.0.dictionary.is_null() {
                let help = "; take the values or the codes: x.cast(pl.String) or x.to_physical() in \
                    Polars, x.dictionary_decode() in pyarrow, x.cat.codes in pandas";
                return refuse("values encoded by a dictionary", help);
            }
            let metadata = schema.metadata()?;
            match (arrow::extension_of(&metadata), arrow::list_size_of(&format)) {
                (None, _) => {}
                (Some((arrow::TENSOR, parameters)), Some(_)) if tensor.is_none() => {
                    tensor = Some((extents.len(), parameters.to_vec()));
                }
                (Some((found, _)), _) => {
                    return refuse(&format!("the extension type {found}"), "; cast to its storage");
                }
            }
            if let Some(dtype) = arrow::dtype_of(&format) {
                // A table is a matrix: of one column of numbers, or with a row of each list.
                if matches!(*levels, [Level::Struct]) {
                    extents.push(1);
                }
                return Ok(Self { dtype, levels, extents, tensor });
            }
            match arrow::list_size_of(&format) {
                Some(size) if extents.len() < MAX_NDIM => {
                    levels.push(Level::List(size));
                    extents.push(size);
                }
                None if format == "+s" && levels.is_empty() => {
                    let columns = schema.0.n_children;
                    if columns != 1 {
                        return Err(Error::dtype(format!(
                            "{name}: expected one column, found {columns}; select one: x[\"name\"], or \
                             copy all to a matrix: numpy.asarray(x), in DuckDB numpy.asarray(x.df())"
                        )));
                    }
                    levels.push(Level::Struct);
                }
                _ => {
                    let (what, help) = arrow::refused(&format);
                    return refuse(what, help);
                }
            }
            schema = schema.child(name)?;
        }
    }

    /// Parses the parameters of a tensor type.
    pub(super) fn parse(self, py: Python<'_>) -> Result<ColumnType> {
        let Self { dtype, levels, mut extents, tensor } = self;
        let mut permutation = None;
        if let Some((first, parameters)) = tensor {
            let shape = arrow::RowShape::read(py, &parameters, extents[first])?;
            let inner = extents.len() - first - 1;
            if let Some(order) = shape.permutation {
                let within = |axis: usize| axis.checked_sub(first).and_then(|at| order.get(at));
                let axes = 0..first + order.len() + inner;
                let axis = |axis| within(axis).map_or(axis, |&within| first + within as usize);
                permutation = Some(axes.map(axis).collect());
            }
            extents.splice(first..=first, shape.extents);
        }
        Ok(ColumnType { dtype, levels, extents, permutation })
    }
}

impl ColumnType {
    pub(super) fn is_of_table(&self) -> bool {
        matches!(self.levels.first(), Some(Level::Struct))
    }

    /// The memory of one chunk.
    pub(super) fn memory(&self, name: &str, mut array: Array<'_>) -> Result<ForeignMemory> {
        let rows = array.0.length;
        let mut range = Range { start: 0, len: rows };
        for level in &self.levels {
            let within = checked(name, array, range, Expected::CHILD)?;
            range = match level {
                Level::Struct => within,
                Level::List(size) => within.times(*size)?,
            };
            array = array.child(name)?;
        }
        let Range { start, len } = checked(name, array, range, Expected::NUMBERS)?;
        let values = array.values();
        let itemsize = self.dtype.itemsize().unwrap_or(1) as i64;
        let end = Range { start, len }.end().and_then(|end| end.checked_mul(itemsize));
        if end.is_none() {
            return Err(uncountable(start, len));
        }
        // The address stays null where there are no values.
        let skipped = if values.is_null() { 0 } else { (start * itemsize) as usize };
        let data = values.wrapping_byte_add(skipped).cast_mut();
        let (shape, strides) = self.shape(rows, itemsize);
        Ok(ForeignMemory {
            data,
            device: Device::CPU,
            dtype: self.dtype,
            shape,
            strides,
            read_only: true,
        })
    }

    /// The shape of a tensor of that many rows, and its strides if it is permuted.
    fn shape(&self, rows: i64, itemsize: i64) -> (Vec<i64>, Option<Vec<i64>>) {
        let shape: Vec<_> = std::iter::once(rows).chain(self.extents.iter().copied()).collect();
        let Some(permutation) = &self.permutation else { return (shape, None) };
        let mut strides = vec![0; shape.len()];
        layout::contiguous_strides(&shape, &mut strides);
        let permuted = |values: &[i64]| {
            let inner = permutation.iter().map(|&axis| values[1 + axis]);
            std::iter::once(values[0]).chain(inner).collect::<Vec<_>>()
        };
        // Without elements, strides may be any.
        let bytes = permuted(&strides).iter().map(|step| step.saturating_mul(itemsize)).collect();
        (permuted(&shape), Some(bytes))
    }

    /// The shape of a tensor of that many rows.
    pub(super) fn shape_of(&self, rows: i64) -> Vec<i64> {
        self.shape(rows, 1).0
    }
}

/// What an array of a level has.
struct Expected {
    buffers: i64,
    children: i64,
}

impl Expected {
    const CHILD: Self = Self { buffers: 1, children: 1 };
    const NUMBERS: Self = Self { buffers: 2, children: 0 };
}

/// Consecutive values of an array.
#[derive(Clone, Copy)]
struct Range {
    start: i64,
    len: i64,
}

impl Range {
    fn end(self) -> Option<i64> {
        self.start.checked_add(self.len)
    }

    fn times(self, size: i64) -> Result<Self> {
        match (self.start.checked_mul(size), self.len.checked_mul(size)) {
            (Some(start), Some(len)) => Ok(Self { start, len }),
            _ => Err(uncountable(self.start, self.len)),
        }
    }
}

/// Checks an array's fields. Returns the range of its memory for a range of its values.
fn checked(name: &str, array: Array<'_>, range: Range, expected: Expected) -> Result<Range> {
    let ArrowArray { length, null_count, offset, n_buffers, n_children, buffers, .. } = *array.0;
    if array.0.release.is_none() {
        return Err(released(name));
    }
    let expected_buffers = expected.buffers;
    if n_buffers != expected_buffers {
        return Err(Error::buffer(format!(
            "n_buffers: expected {expected_buffers}, found {n_buffers}"
        )));
    }
    if buffers.is_null() {
        return Err(Error::buffer(format!(
            "buffers: expected {expected_buffers} addresses, found null"
        )));
    }
    let children = expected.children;
    if n_children != children || !array.0.dictionary.is_null() {
        return Err(Error::buffer(format!(
            "n_children: expected {children} and no dictionary, found {n_children}"
        )));
    }
    if length < 0 || offset < 0 {
        let message = format!("length, offset: expected 0 or more, found {length} and {offset}");
        return Err(Error::buffer(message));
    }
    if range.end().is_none_or(|end| end > length) {
        let Range { start, len } = range;
        return Err(Error::buffer(format!(
            "length: expected {len} values from {start} on, found {length}"
        )));
    }
    let Some(start) = offset.checked_add(range.start) else {
        return Err(uncountable(offset, length));
    };
    let within = Range { start, len: range.len };
    let (Some(end), Ok(_)) = (within.end(), usize::try_from(length)) else {
        return Err(uncountable(offset, length));
    };
    let nulls = match null_count {
        0 => 0,
        _ => array
            .validity()
            .map_or(null_count.max(0), |bits| count_nulls(bits, start as usize, end as usize)),
    };
    if nulls > 0 {
        return Err(Error::buffer(format!(
            "null_count: expected an array without nulls, found {nulls}; fill them first \
             (x.fill_null(0), x.fillna(0)), or copy: numpy.asarray(x) has NaN in their places"
        )));
    }
    Ok(within)
}

/// Counts the nulls from `start` to `end`: least significant bit first, 1 for a value.
fn count_nulls(bits: &[u8], start: usize, end: usize) -> i64 {
    let first = start / 8;
    let values: usize = bits[first..end.div_ceil(8)]
        .iter()
        .zip((first * 8..).step_by(8))
        .map(|(byte, at)| {
            let before = if at < start { 0xff << (start - at) } else { 0xff };
            let after = if at + 8 > end { 0xff >> (at + 8 - end) } else { 0xff };
            (byte & before & after).count_ones() as usize
        })
        .sum();
    (end - start - values) as i64
}

fn uncountable(start: i64, len: i64) -> Error {
    Error::buffer(format!(
        "length, offset: expected bytes that can be counted, found {len} and {start}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nulls_are_counted_bit_by_bit() {
        let bits = [0b1010_0110_u8, 0xff, 0b0000_0001, 0];
        for start in 0..=32 {
            for end in start..=32 {
                let plain = (start..end).filter(|&i| bits[i / 8] >> (i % 8) & 1 == 0).count();
                let counted = count_nulls(&bits, start, end);
                assert_eq!(counted, plain as i64, "{start}..{end}");
            }
        }
    }
}
