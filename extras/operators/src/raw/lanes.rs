//! The arguments of NumPy's loop over single elements. NumPy lets the arguments of an element share memory, where an
//! argument is also `out=`, and in a reduction; a function may see many elements at once, so they are copied here.

use std::ffi::c_void;

use crate::Failure;

/// One argument of a loop: `count` elements, `step` bytes apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub(crate) data: *mut c_void,
    pub(crate) step: isize,
    pub(crate) itemsize: usize,
    pub(crate) is_written: bool,
}

impl Lane {
    fn at(self, index: isize) -> Self {
        Self { data: self.data.wrapping_byte_offset(self.step.wrapping_mul(index)), ..self }
    }

    /// The addresses of the first byte, and of that behind the last one.
    fn bytes(&self, count: isize) -> (usize, usize) {
        let (first, last) = (self.data.addr(), self.at(count - 1).data.addr());
        (first.min(last), first.max(last) + self.itemsize)
    }

    fn shares_memory(&self, other: &Self, count: isize) -> bool {
        let ((low, high), (other_low, other_high)) = (self.bytes(count), other.bytes(count));
        low < other_high && other_low < high
    }
}

/// Calls a function with the offset in bytes of each element, in row-major order.
fn offsets(shape: &[i64], strides: &[i64], mut each: impl FnMut(isize)) {
    for number in 0..shape.iter().product() {
        let (mut rest, mut offset) = (number, 0);
        for (&extent, &stride) in shape.iter().zip(strides).rev() {
            offset += (rest % extent) * stride;
            rest /= extent;
        }
        each(offset as isize);
    }
}

/// Copies the elements of an array, in row-major order. The result is aligned for every dtype.
///
/// # Safety
///
/// Extents and strides, in bytes, reach elements of this size from `data` on.
pub(crate) unsafe fn copied(
    data: *mut c_void,
    itemsize: usize,
    shape: &[i64],
    strides: &[i64],
) -> Vec<u128> {
    let count: i64 = shape.iter().product();
    let mut copy = vec![0_u128; (count as usize * itemsize).div_ceil(size_of::<u128>())];
    let mut to = copy.as_mut_ptr().cast::<u8>();
    offsets(shape, strides, |offset| {
        let from = data.cast::<u8>().wrapping_offset(offset);
        // SAFETY: an element of the array, and its place in the copy (R1; the caller's duty).
        unsafe { std::ptr::copy_nonoverlapping(from, to, itemsize) };
        to = to.wrapping_add(itemsize);
    });
    copy
}

/// Sets the elements of a result to zero, so that no function sees or returns what was in the memory.
///
/// # Safety
///
/// Extents and strides, in bytes, reach elements of this size from `data` on, which no other code accesses.
pub(crate) unsafe fn zero(data: *mut c_void, itemsize: usize, shape: &[i64], strides: &[i64]) {
    // The axes that are contiguous, from the last one on.
    let (mut bytes, mut front) = (itemsize, shape.len());
    while let Some(at) = front.checked_sub(1).filter(|&at| strides[at] == bytes as i64) {
        (bytes, front) = (bytes * shape[at] as usize, at);
    }
    if bytes == 0 {
        return;
    }
    if front == 0 {
        // SAFETY: contiguous elements of the array (R1; the caller's duty).
        return unsafe { data.cast::<u8>().write_bytes(0, bytes) };
    }
    offsets(&shape[..front], &strides[..front], |offset| {
        let place = data.cast::<u8>().wrapping_offset(offset);
        // SAFETY: contiguous elements of the array (R1; the caller's duty).
        unsafe { place.write_bytes(0, bytes) };
    });
}

/// Calls a function with lanes that share no memory with one that is written: for all elements, or for one at a time
/// where an element depends on an earlier one.
///
/// # Safety
///
/// Each lane has `count` elements.
pub(crate) unsafe fn apart(
    lanes: &[Lane],
    count: isize,
    call: &impl Fn(&[Lane], isize) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if count < 1 {
        return Ok(());
    }
    let written = || lanes.iter().filter(|lane| lane.is_written);
    let shares =
        |lane: &Lane| written().any(|other| !lane.is_written && lane.shares_memory(other, count));
    let is_same = |lane: &Lane| {
        written().all(|other| {
            !lane.shares_memory(other, count) || (lane.data, lane.step) == (other.data, other.step)
        })
    };
    let is_repeated = |lane: &Lane| lane.step.unsigned_abs() < lane.itemsize;
    let in_turn =
        written().any(is_repeated) || !lanes.iter().all(|lane| lane.is_written || is_same(lane));
    if count > 1 && in_turn {
        return (0..count).try_for_each(|index| {
            let lanes: Vec<_> = lanes.iter().map(|lane| lane.at(index)).collect();
            // SAFETY: one element of each lane (the caller's duty).
            unsafe { apart(&lanes, 1, call) }
        });
    }
    if !lanes.iter().any(shares) {
        return call(lanes, count);
    }
    let mut apart = lanes.to_vec();
    let mut copies = Vec::new();
    for lane in apart.iter_mut().filter(|lane| shares(lane)) {
        // SAFETY: the caller's duty.
        let copy =
            unsafe { copied(lane.data, lane.itemsize, &[count as i64], &[lane.step as i64]) };
        (lane.data, lane.step) = (copy.as_ptr().cast_mut().cast(), lane.itemsize as isize);
        copies.push(copy);
    }
    call(&apart, count)
}
