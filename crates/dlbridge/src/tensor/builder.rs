//! Tensors with a chosen shape: over an owner's memory, zeroed, or copied from bytes.
//! Invariant: an owner is moved in, `Send` and `'static`, and not used again before it is dropped.

use crate::layout::{Dims, contiguous_strides};
use crate::layout::{Layout, Placement};
use crate::memory::buffer::{Buffer, export_buffer};
use crate::memory::owner::{export_slice, export_slice_mut};
use crate::memory::{Handle, Plain};
use crate::{DType, Element, Error, Flags, Shape, ShapeField, Tensor};

impl Tensor {
    /// Starts an export of `owner`'s memory with a chosen shape, strides, offset or dtype.
    ///
    /// ```
    /// use dlbridge::{DType, Tensor};
    ///
    /// // the second column of a 3 x 2 matrix
    /// let column = Tensor::builder(vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0])
    ///     .shape([3])
    ///     .strides([2])
    ///     .offset(1)
    ///     .build()?;
    /// assert_eq!(column.view::<f32>()?.to_vec(), [2.0, 4.0, 6.0]);
    ///
    /// // bytes of a file format that are numbers
    /// let bytes: Vec<u8> = 258_u32.to_ne_bytes().to_vec();
    /// let number = Tensor::builder(bytes).dtype(DType::U32).shape(()).build()?;
    /// assert_eq!(number.view::<u32>()?.item()?, 258);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// The owner is dropped with the last tensor over its memory, on any thread. It may own tensors, whose owners own
    /// tensors: a chain of any length is released with a small stack. Below 16 of such releases the next ones
    /// wait until one of them has returned, so an owner whose `drop` waits for the end of a tensor that it
    /// drops must not stand in a longer chain.
    pub fn builder<O: Send + 'static>(owner: O) -> Builder<O> {
        Builder { owner, dtype: None, shape: None, strides: None, offset: 0 }
    }

    /// Zeroed host memory, 64-byte aligned.
    ///
    /// ```
    /// use dlbridge::{DType, Tensor};
    ///
    /// let tensor = Tensor::zeros(DType::F32, [2, 3])?;
    /// assert_eq!(tensor.as_slice::<f32>()?, [0.0; 6]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A negative extent, a size that overflows, an impossible dtype, or
    /// [`OutOfMemory`](Error::OutOfMemory).
    pub fn zeros(dtype: DType, shape: impl Shape) -> Result<Self, Error> {
        shape.with_extents(|shape| Self::zeroed(dtype, shape))
    }

    fn zeroed(dtype: DType, shape: &[i64]) -> Result<Self, Error> {
        Self::in_buffer(dtype, shape, Flags::NONE, Buffer::zeroed)
    }

    /// Host memory, 64-byte aligned, with `value` in each place.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let tensor = Tensor::full([2, 3], 1.5)?;
    /// assert_eq!(tensor.as_slice::<f64>()?, [1.5; 6]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`zeros`](Self::zeros).
    pub fn full<T: Element>(shape: impl Shape, value: T) -> Result<Self, Error> {
        let mut tensor = Self::zeros(T::DTYPE, shape)?;
        tensor.view_mut()?.fill(value);
        Ok(tensor)
    }

    /// A copy of some bytes, read as elements of `dtype`, in host memory that is 64-byte aligned.
    ///
    /// ```
    /// use dlbridge::{DType, Tensor};
    ///
    /// let tensor = Tensor::from_bytes(DType::U16, [2], &[1, 0, 2, 0])?;
    /// assert_eq!(tensor.as_slice::<u16>()?, [1_u16.to_le(), 2_u16.to_le()]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](Error::ShapeMismatch), and those of [`zeros`](Self::zeros).
    pub fn from_bytes(dtype: DType, shape: impl Shape, bytes: &[u8]) -> Result<Self, Error> {
        shape.with_extents(|shape| Self::copied(dtype, shape, bytes))
    }

    fn copied(dtype: DType, shape: &[i64], bytes: &[u8]) -> Result<Self, Error> {
        let (expected, found) = (dtype.contiguous_nbytes(shape)?, bytes.len());
        if expected != found {
            return Err(Error::ShapeMismatch { field: ShapeField::Size, expected, found });
        }
        Self::in_buffer(dtype, shape, Flags::NONE, |_| Buffer::copy_of(bytes))
    }

    /// A contiguous tensor in a buffer that `allocate` returns for its size in bytes.
    pub(crate) fn in_buffer(
        dtype: DType,
        shape: &[i64],
        flags: Flags,
        allocate: impl FnOnce(usize) -> Result<Buffer, Error>,
    ) -> Result<Self, Error> {
        let strides = contiguous(shape);
        let size = Layout::measure(shape, &strides, dtype, flags)?.nbytes();
        export_buffer(allocate(size)?, dtype, shape, flags).map(Self)
    }

    /// A contiguous tensor that fills a buffer.
    pub(crate) fn filling(buffer: Buffer, dtype: DType, shape: &[i64]) -> Result<Self, Error> {
        export_buffer(buffer, dtype, shape, Flags::NONE).map(Self)
    }
}

/// Exports an owner's memory with a chosen shape; see [`Tensor::builder`].
///
/// The defaults come from the owner: one axis with all elements, contiguous strides, no offset, the
/// dtype of its elements.
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct Builder<O> {
    owner: O,
    dtype: Option<DType>,
    shape: Option<Dims>,
    strides: Option<Dims>,
    offset: usize,
}

impl<O: Send + 'static> Builder<O> {
    /// The extents, outermost axis first.
    pub fn shape(self, shape: impl Shape) -> Self {
        Self { shape: Some(shape.with_extents(|list| Dims::from(list))), ..self }
    }

    /// The steps along each axis, in elements; negative and zero steps are valid.
    pub fn strides(self, strides: impl Shape) -> Self {
        Self { strides: Some(strides.with_extents(|list| Dims::from(list))), ..self }
    }

    /// The offset of element `[0, 0, ...]` from the start of the owner's memory, in elements.
    pub fn offset(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    /// Reads the owner's memory as another type.
    pub fn dtype(self, dtype: DType) -> Self {
        Self { dtype: Some(dtype), ..self }
    }

    /// Exports the mutable slice of the owner: writable, of class
    /// [`Exclusive`](crate::Access::Exclusive).
    ///
    /// `bool` is not [`Plain`], because the owner could read a byte that a consumer wrote and that is no `bool`. A
    /// `Vec<bool>` reads none: it is exported by `From`, and gets its shape by [`reshape`](crate::Parts::reshape).
    ///
    /// ```
    /// use dlbridge::{Parts, Tensor};
    ///
    /// let mask = Tensor::from(vec![true, false, true, true]).reshape([2, 2])?;
    /// assert_eq!(mask.view::<bool>()?.get([0, 1]), Some(false));
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](Error::OutOfBounds) if the shape, strides or offset reach past the
    /// owner's memory; a negative extent, sizes that overflow, an impossible dtype, or shape and
    /// strides of different length.
    pub fn build<T: Plain>(mut self) -> Result<Tensor, Error>
    where
        O: AsMut<[T]>,
    {
        let size = if self.shape.is_some() { 0 } else { size_of_val(self.owner.as_mut()) };
        self.export(T::DTYPE, size, |owner, place| export_slice_mut(owner, place, O::as_mut))
    }

    /// Exports the slice of the owner: read-only, of class
    /// [`Frozen`](crate::Access::Frozen).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use dlbridge::Tensor;
    ///
    /// let shared: Arc<[u8]> = Arc::from([1, 2, 3, 4]);
    /// let tensor = Tensor::builder(Arc::clone(&shared)).shape([2, 2]).build_read_only()?;
    /// assert!(tensor.is_read_only());
    /// assert_eq!(tensor.as_slice::<u8>()?.as_ptr(), shared.as_ptr());
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build).
    pub fn build_read_only<T: Element>(self) -> Result<Tensor, Error>
    where
        O: AsRef<[T]>,
    {
        let size = if self.shape.is_some() { 0 } else { size_of_val(self.owner.as_ref()) };
        self.export(T::DTYPE, size, |owner, place| export_slice(owner, place, O::as_ref))
    }

    /// `size` is that of the owner's memory in bytes, used if no shape was chosen.
    pub(crate) fn export(
        mut self,
        element: DType,
        size: usize,
        export: impl FnOnce(O, &Placement<'_>) -> Result<Handle, Error>,
    ) -> Result<Tensor, Error> {
        let dtype = *self.dtype.get_or_insert(element);
        if self.shape.is_none() {
            let Some(itemsize) = dtype.itemsize() else {
                return Err(Error::SubByte { padded: false, dtype });
            };
            let len = (size / itemsize.max(1)).saturating_sub(self.offset);
            self.shape = Some(Dims::from(&[len as i64][..]));
        }
        self.place(export)
    }

    #[cfg(feature = "cudarc-0_19")]
    pub(crate) fn owner(&self) -> &O {
        &self.owner
    }

    /// Measures the chosen shape, and exports it.
    pub(crate) fn place(
        self,
        export: impl FnOnce(O, &Placement<'_>) -> Result<Handle, Error>,
    ) -> Result<Tensor, Error> {
        self.place_flagged(Flags::NONE, export)
    }

    pub(crate) fn place_flagged(
        self,
        flags: Flags,
        export: impl FnOnce(O, &Placement<'_>) -> Result<Handle, Error>,
    ) -> Result<Tensor, Error> {
        let Some(dtype) = self.dtype else { return Err(Error::NotChosen { what: "dtype" }) };
        let Some(shape) = self.shape else { return Err(Error::NotChosen { what: "shape" }) };
        let strides = self.strides.unwrap_or_else(|| contiguous(&shape));
        let placement = Placement::new(dtype, &shape, &strides, self.offset, flags)?;
        export(self.owner, &placement).map(Tensor)
    }
}

#[inline]
fn contiguous(shape: &[i64]) -> Dims {
    let mut strides = Dims::zeros(shape.len());
    contiguous_strides(shape, &mut strides);
    strides
}
