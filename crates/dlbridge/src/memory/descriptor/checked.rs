//! `Checked`: a checked description of tensor memory. Validation makes it, everything else reads it (R1, R2).

use std::ptr::NonNull;
use std::slice;

use dlbridge_sys::DLTensor;

use super::Borrowed;
use crate::layout::{Bytes, Cut, Layout, Lists, OwnedLayout};
use crate::{Access, DType, DescriptorError, Device, Error, Flags, layout};

/// A checked description of tensor memory, borrowed from its owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked<'a> {
    /// Element `[0, 0, ...]`, byte offset applied; a handle on devices without addresses.
    pub(crate) data: *mut u8,
    /// What is left of the byte offset: 0 unless `data` is a handle.
    pub(crate) byte_offset: u64,
    pub(crate) device: Device,
    pub(crate) flags: Flags,
    pub(crate) access: Access,
    /// Measured.
    layout: Layout<'a>,
}

/// The location and the class of elements: a description without its layout.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) data: *mut u8,
    pub(crate) byte_offset: u64,
    pub(crate) device: Device,
    pub(crate) flags: Flags,
    pub(crate) access: Access,
}

// SAFETY: it borrows plain elements, as long as their owner is borrowed; R5 covers references to
// them (R9).
unsafe impl Send for Checked<'_> {}
// SAFETY: the same.
unsafe impl Sync for Checked<'_> {}

impl<'a> Checked<'a> {
    /// Elements of a layout that was measured.
    ///
    /// # Safety
    ///
    /// For `'a`, every element that the layout reaches from `data` on is alive, inside the address
    /// space, and of this class (R1, R2, R4).
    #[inline(always)]
    pub(crate) unsafe fn new(layout: Layout<'a>, memory: Memory) -> Self {
        let Memory { data, byte_offset, device, flags, access } = memory;
        Self { data, byte_offset, device, flags: layout.pad(flags), access, layout }
    }

    /// A checked descriptor with strides.
    ///
    /// # Safety
    ///
    /// This same descriptor was validated as of this class (or it was written by this crate
    /// to satisfy R1), and its lists and elements are alive and unchanged for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn described(tensor: &DLTensor, access: Access, flags: Flags) -> Self {
        // SAFETY: `ndim` numbers (checked), alive for `'a` (the caller's duty).
        let shape = unsafe { list(tensor.shape, ndim(tensor)) };
        // SAFETY: the same.
        let strides = unsafe { list(tensor.strides, ndim(tensor)) };
        // SAFETY: measured by validation, or before the descriptor was written (the caller's duty; R1).
        let layout = unsafe { Layout::again(shape, strides, dtype(tensor), flags) };
        // SAFETY: the caller's duty.
        unsafe { Self::new(layout, memory(tensor, access, flags)) }
    }

    #[inline]
    pub(crate) fn layout(&self) -> Layout<'a> {
        self.layout
    }

    /// The description without its layout.
    #[inline(always)]
    pub(crate) fn memory(&self) -> Memory {
        let Self { data, byte_offset, device, flags, access, .. } = *self;
        Memory { data, byte_offset, device, flags, access }
    }

    pub(crate) fn data(&self) -> *mut u8 {
        self.data
    }

    pub(crate) fn byte_offset(&self) -> u64 {
        self.byte_offset
    }

    pub(crate) fn dtype(&self) -> DType {
        self.layout.dtype()
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }

    pub(crate) fn flags(&self) -> Flags {
        self.flags
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    pub(crate) fn shape(&self) -> &'a [i64] {
        self.layout.shape()
    }

    pub(crate) fn strides(&self) -> &'a [i64] {
        self.layout.strides()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.layout.len()
    }

    pub(crate) fn nbytes(&self) -> usize {
        self.layout.nbytes()
    }

    pub(crate) fn is_contiguous(&self) -> bool {
        layout::is_contiguous(self.shape(), self.strides())
    }

    /// The bytes of the elements; `None` without elements.
    #[inline(always)]
    pub(crate) fn bytes_of_elements(&self) -> Option<Bytes> {
        let (address, unit) = (self.data.addr(), self.layout.unit());
        let bytes = Bytes::of(address, self.shape(), self.strides(), unit.bytes())?;
        // Packed elements count as whole bytes, so the range is too wide; the gaps between them are elsewhere.
        Some(if unit.is_packed() { bytes.without_gaps() } else { bytes })
    }

    /// The number of elements, if they are contiguous.
    #[inline(always)]
    pub(crate) fn contiguous_len(&self) -> Option<usize> {
        match (self.shape(), self.strides()) {
            // One axis, as most rows have, needs no loop.
            (&[extent], &[1]) => Some(extent as usize),
            (shape, strides) => layout::is_contiguous(shape, strides).then(|| self.len()),
        }
    }

    /// Whether the elements have a dtype in the form of Rust types, where numbers narrower than a byte
    /// are packed.
    #[inline]
    pub(crate) fn check_dtype(&self, expected: DType) -> Result<(), Error> {
        let found = self.dtype();
        if found != expected {
            return Err(Error::DTypeMismatch { found, expected });
        }
        if expected.bits < 8 && self.flags.contains(Flags::SUBBYTE_PADDED) {
            return Err(Error::SubByte { padded: true, dtype: found });
        }
        Ok(())
    }

    pub(crate) fn check_host(&self) -> Result<(), Error> {
        if self.device.is_host_accessible() {
            Ok(())
        } else {
            Err(Error::NotHostAccessible { device: self.device })
        }
    }

    #[inline]
    pub(crate) fn check_contiguous(&self) -> Result<(), Error> {
        if self.contiguous_len().is_some() { Ok(()) } else { self.refuse_gap() }
    }

    #[cold]
    fn refuse_gap(&self) -> Result<(), Error> {
        match layout::first_gap(self.shape(), self.strides()) {
            None => Ok(()),
            Some((axis, expected)) => {
                Err(Error::NotContiguous { axis, stride: self.strides()[axis], expected })
            }
        }
    }

    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if self.flags.contains(Flags::READ_ONLY) { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Whether no two indices reach the same element, so that each can be borrowed mutably.
    pub(crate) fn check_distinct(&self) -> Result<(), Error> {
        if layout::may_overlap(self.shape(), self.strides()) {
            return Err(Error::Overlapping);
        }
        Ok(())
    }
}

/// The descriptor of `checked`, which borrows their shape and strides.
pub(crate) fn describe(checked: &Checked<'_>) -> DLTensor {
    DLTensor {
        data: checked.data.cast(),
        device: checked.device.into(),
        ndim: checked.shape().len() as i32,
        dtype: checked.dtype().into(),
        shape: checked.shape().as_ptr().cast_mut(),
        strides: checked.strides().as_ptr().cast_mut(),
        byte_offset: checked.byte_offset,
    }
}

/// The ndim of a descriptor. A negative ndim becomes a large one.
#[inline(always)]
pub(crate) fn ndim(tensor: &DLTensor) -> usize {
    tensor.ndim as u32 as usize
}

/// A descriptor's shape or strides.
///
/// # Safety
///
/// There are `ndim` numbers, alive and unchanged for `'a`. Without axes, they may be anywhere.
#[inline(always)]
pub(crate) unsafe fn list<'a>(numbers: *const i64, ndim: usize) -> &'a [i64] {
    let numbers = if ndim == 0 { NonNull::dangling().as_ptr() } else { numbers };
    // SAFETY: the caller's duty.
    unsafe { slice::from_raw_parts(numbers, ndim) }
}

/// Where the elements of a descriptor are.
#[inline(always)]
pub(crate) fn memory(tensor: &DLTensor, access: Access, flags: Flags) -> Memory {
    let device = device(tensor);
    let (data, byte_offset) = match tensor.byte_offset {
        0 => (tensor.data.cast(), 0),
        _ => first_element(tensor, device),
    };
    Memory { data, byte_offset, device, flags, access }
}

/// The address of element `[0, 0, ...]`, and the rest of the byte offset. Without a loop, so that the compiler leaves out
/// a call whose result is not used.
#[cold]
#[inline(never)]
fn first_element(tensor: &DLTensor, device: Device) -> (*mut u8, u64) {
    let data = tensor.data.cast::<u8>();
    if device.kind.has_addresses() {
        // Validated to stay in the address space, unless there is no element: then the pointer is only carried.
        (data.wrapping_add(tensor.byte_offset as usize), 0)
    } else {
        (data, tensor.byte_offset)
    }
}

/// The descriptor's dtype.
#[inline]
pub(crate) fn dtype(tensor: &DLTensor) -> DType {
    tensor.dtype.into()
}

/// The descriptor's device.
#[inline]
pub(crate) fn device(tensor: &DLTensor) -> Device {
    tensor.device.into()
}

// Parts of described memory: moves the data pointer by what `layout::Cut` measured (R1, R2, R4).

impl Checked<'_> {
    /// A part of these elements: its layout, and its location in this memory.
    ///
    /// Broadcast elements are read-only, as NumPy has them: several indices reach one element.
    ///
    /// # Errors
    ///
    /// Those of [`Lists::part`]; [`Error::SubByte`] where the part begins inside
    /// a byte.
    pub(crate) fn part(&self, cut: Cut<'_>) -> Result<(OwnedLayout, Memory), Error> {
        let (layout, offset) = OwnedLayout::part(self.layout(), cut)?;
        let memory = self.memory_of(cut, layout.borrow(), offset)?;
        Ok((layout, memory))
    }

    /// The same, with the numbers in these lists.
    ///
    /// # Errors
    ///
    /// As for [`part`](Self::part).
    ///
    /// # Panics
    ///
    /// If there is no space for as many axes as [`Cut::ndim`] says.
    #[inline]
    pub(crate) fn part_in<'l>(
        &self,
        lists: Lists<'l>,
        cut: Cut<'_>,
    ) -> Result<(Layout<'l>, Memory), Error> {
        let (layout, offset) = lists.part(self.layout(), cut)?;
        Ok((layout, self.memory_of(cut, layout, offset)?))
    }

    /// The part at one index of the first axis, with the numbers in these lists.
    ///
    /// # Errors
    ///
    /// As for [`part`](Self::part).
    ///
    /// # Panics
    ///
    /// If there is no space for one axis less.
    #[inline(always)]
    pub(crate) fn row_in<'l>(
        &self,
        lists: Lists<'l>,
        index: usize,
    ) -> Result<(Layout<'l>, Memory), Error> {
        let (row, offset) = self.layout().row(index)?;
        Ok((lists.copy(row), self.memory_of(Cut::Select { axis: 0, index }, row, offset)?))
    }

    /// The location of a part, `offset` elements away.
    #[inline]
    fn memory_of(&self, cut: Cut<'_>, part: Layout<'_>, offset: isize) -> Result<Memory, Error> {
        let Checked { data, byte_offset, device, mut flags, mut access, .. } = *self;
        if let Cut::Broadcast(_) = cut {
            flags |= Flags::READ_ONLY;
            access = access.to_read();
        }
        let bytes = part.unit().offset(offset);
        let bytes = bytes.ok_or(Error::SubByte { padded: false, dtype: self.dtype() })?;
        let (data, byte_offset) = if device.kind.has_addresses() {
            (data.wrapping_offset(bytes), byte_offset)
        } else {
            let moved = byte_offset.checked_add_signed(bytes as i64);
            (data, moved.ok_or(DescriptorError::AddressOverflow { byte_offset })?)
        };
        Ok(Memory { data, byte_offset, device, flags, access })
    }

    /// Whether elements under different indices have no byte in common.
    pub(crate) fn check_disjoint(&self) -> Result<(), Error> {
        if self.layout().unit().is_packed() {
            return Err(Error::SubByte { padded: false, dtype: self.dtype() });
        }
        match layout::may_overlap(self.shape(), self.strides()) {
            true => Err(Error::Overlapping),
            false => Ok(()),
        }
    }
}

impl<'a> Borrowed<'a> {
    /// A part of `checked`, for the same lifetime.
    ///
    /// # Errors
    ///
    /// As for [`Checked::part`].
    #[inline]
    pub(crate) fn part_of(checked: &Checked<'a>, cut: Cut<'_>) -> Result<Self, Error> {
        let (layout, memory) = checked.part(cut)?;
        // SAFETY: elements of `checked`, borrowed for `'a` (R1, R2), and of their class or a weaker one
        // (R4).
        Ok(unsafe { Self::new(layout, memory) })
    }

    /// A part of memory that is only read through this description.
    ///
    /// # Errors
    ///
    /// As for [`Checked::part`].
    pub(crate) fn part(&self, cut: Cut<'_>) -> Result<Self, Error> {
        let (layout, memory) = self.checked().part(cut)?;
        // SAFETY: as above, of what is borrowed for `'a`.
        Ok(unsafe { Self::new(layout, memory) })
    }

    /// The parts of an axis before and from an index, which share no byte.
    ///
    /// # Errors
    ///
    /// As for [`Checked::part`]; [`Error::Overlapping`] where two indices may reach one element, and
    /// [`Error::SubByte`] for elements that share bytes.
    pub(crate) fn split(self, axis: usize, index: usize) -> Result<(Self, Self), Error> {
        self.checked().check_disjoint()?;
        let front = self.part(Cut::Slice { axis, start: 0, end: Some(index) })?;
        let back = self.part(Cut::Slice { axis, start: index, end: None })?;
        Ok((front, back))
    }
}
