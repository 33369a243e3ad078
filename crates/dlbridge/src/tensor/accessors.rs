//! Methods that `Tensor`, `TensorRef` and `TensorMut` have in common, written once as macros.

/// Metadata of a tensor.
macro_rules! metadata {
    () => {
        #[inline]
        pub(crate) fn checked(&self) -> $crate::memory::Checked<'_> {
            self.0.checked()
        }

        /// The extents, outermost axis first; empty for ndim 0.
        #[must_use]
        #[inline]
        pub fn shape(&self) -> &[i64] {
            self.checked().shape()
        }

        /// The steps from one element to the next along each axis, in elements. Always explicit, even
        /// for a producer that exports null strides (contiguous, row-major).
        #[must_use]
        #[inline]
        pub fn strides(&self) -> &[i64] {
            self.checked().strides()
        }

        /// The number of axes.
        #[must_use]
        #[inline]
        pub fn ndim(&self) -> usize {
            self.checked().shape().len()
        }

        /// The type of the elements.
        #[must_use]
        #[inline]
        pub fn dtype(&self) -> $crate::DType {
            self.checked().dtype()
        }

        /// The device of the memory.
        #[must_use]
        #[inline]
        pub fn device(&self) -> $crate::Device {
            self.checked().device()
        }

        /// The number of elements.
        #[must_use]
        #[inline]
        pub fn len(&self) -> usize {
            self.checked().len()
        }

        /// Whether there are no elements.
        #[must_use]
        #[inline]
        pub fn is_empty(&self) -> bool {
            self.len() == 0
        }

        /// The size of all elements in bytes, as if they were contiguous.
        #[must_use]
        #[inline]
        pub fn nbytes(&self) -> usize {
            self.checked().nbytes()
        }

        /// The flags of the descriptor.
        #[must_use]
        #[inline]
        pub fn flags(&self) -> $crate::Flags {
            self.checked().flags()
        }

        /// Whether the memory must not be written.
        #[must_use]
        #[inline]
        pub fn is_read_only(&self) -> bool {
            self.checked().flags().contains($crate::Flags::READ_ONLY)
        }

        /// Whether the producer, or this library, made a copy for this tensor. A producer may have kept its
        /// copy, so that it is of class [`Shared`](crate::Access::Shared).
        #[must_use]
        #[inline]
        pub fn is_copied(&self) -> bool {
            self.checked().flags().contains($crate::Flags::IS_COPIED)
        }

        /// The access class: which other code may access the memory.
        #[must_use]
        #[inline]
        pub fn access(&self) -> $crate::Access {
            self.checked().access()
        }

        /// Whether the elements are contiguous in row-major order.
        #[must_use]
        #[inline]
        pub fn is_contiguous(&self) -> bool {
            self.checked().is_contiguous()
        }

        /// The address of element `[0, 0, ...]`, with the byte offset applied; may be null if there are
        /// no elements. On a device without addresses it is a handle, to which
        /// [`byte_offset`](Self::byte_offset) is relative.
        #[must_use]
        #[inline]
        pub fn data_ptr(&self) -> *mut std::ffi::c_void {
            self.checked().data().cast()
        }

        /// The offset from the start of a handle, in bytes; 0 on every device that has addresses.
        #[must_use]
        #[inline]
        pub fn byte_offset(&self) -> u64 {
            self.checked().byte_offset()
        }
    };
}

/// Reading a tensor's elements.
macro_rules! reading {
    () => {
        /// A typed view of host memory, for every [class](crate::Access) and all strides. It
        /// copies elements out and never hands out a `&T`.
        ///
        /// # Errors
        ///
        /// [`DTypeMismatch`](crate::Error::DTypeMismatch) or
        /// [`NotHostAccessible`](crate::Error::NotHostAccessible).
        #[inline(always)]
        pub fn view<T: $crate::Element>(&self) -> Result<$crate::View<'_, T>, $crate::Error> {
            $crate::View::new(self.checked())
        }

        /// The elements as a slice, if they are contiguous and no other code can write them (class [`Exclusive`](crate::Access::Exclusive) or [`Frozen`](crate::Access::Frozen)).
        ///
        /// # Errors
        ///
        /// [`SharedMemory`](crate::Error::SharedMemory), whose message names the alternatives;
        /// [`DTypeMismatch`](crate::Error::DTypeMismatch),
        /// [`NotHostAccessible`](crate::Error::NotHostAccessible),
        /// [`NotContiguous`](crate::Error::NotContiguous) or
        /// [`Misaligned`](crate::Error::Misaligned).
        #[inline]
        pub fn as_slice<T: $crate::Plain>(&self) -> Result<&[T], $crate::Error> {
            self.checked().slice()
        }

        /// The bytes of all elements, of any type and at any address, if they are contiguous and no other
        /// code can write them (class
        /// [`Exclusive`](crate::Access::Exclusive) or [`Frozen`](crate::Access::Frozen)).
        ///
        /// # Errors
        ///
        /// [`SharedMemory`](crate::Error::SharedMemory), whose message names the alternatives;
        /// [`NotHostAccessible`](crate::Error::NotHostAccessible) or
        /// [`NotContiguous`](crate::Error::NotContiguous).
        pub fn as_bytes(&self) -> Result<&[u8], $crate::Error> {
            self.checked().bytes()
        }

        /// The elements as a view type of another crate, without a copy, if no other code can
        /// write them (class [`Exclusive`](crate::Access::Exclusive) or
        /// [`Frozen`](crate::Access::Frozen)): `&[T]`, `ndarray::ArrayView`,
        /// `nalgebra::MatrixView`, `faer::MatRef`, `image::ImageBuffer` over a slice, and
        /// `ndarray::ArrayView` of [`ReadCell`](crate::ReadCell) for every class. The page of each
        /// adapter's module lists its types.
        ///
        /// ```
        /// # #[cfg(feature = "ndarray-0_17")]
        /// # {
        /// use dlbridge::Tensor;
        /// use ndarray::{ArrayView2, array};
        ///
        /// let tensor = Tensor::from(array![[1.0_f32, 2.0], [3.0, 4.0]]);
        /// let view = tensor.view_as::<ArrayView2<f32>>()?;
        /// assert_eq!(view.row(1).sum(), 7.0);
        /// # }
        /// # Ok::<(), dlbridge::Error>(())
        /// ```
        ///
        /// # Errors
        ///
        /// [`SharedMemory`](crate::Error::SharedMemory), whose message names the alternatives;
        /// [`DTypeMismatch`](crate::Error::DTypeMismatch),
        /// [`NotHostAccessible`](crate::Error::NotHostAccessible),
        /// [`Misaligned`](crate::Error::Misaligned), and an error that names the shape or the
        /// stride if the type cannot have it.
        #[inline]
        pub fn view_as<'t, V>(&'t self) -> Result<V, $crate::Error>
        where
            V: TryFrom<&'t Self, Error = $crate::Error>,
        {
            V::try_from(self)
        }

        /// A copy of the elements as an owned type of another crate, for every class and layout:
        /// `Vec<T>`, `ndarray::Array`, `nalgebra::OMatrix`, `faer::Mat`, `image::ImageBuffer`,
        /// `candle_core::Tensor`.
        ///
        /// ```
        /// # #[cfg(feature = "ndarray-0_17")]
        /// # {
        /// use dlbridge::Tensor;
        /// use ndarray::{Array2, array};
        ///
        /// let tensor = Tensor::from(array![[1.0_f32, 2.0], [3.0, 4.0]]).into_shared();
        /// let mut copy = tensor.copy_as::<Array2<f32>>()?;
        /// copy *= 2.0;
        /// # }
        /// # Ok::<(), dlbridge::Error>(())
        /// ```
        ///
        /// # Errors
        ///
        /// [`DTypeMismatch`](crate::Error::DTypeMismatch),
        /// [`NotHostAccessible`](crate::Error::NotHostAccessible),
        /// [`OutOfMemory`](crate::Error::OutOfMemory), and an error that names the shape if the type
        /// cannot have it.
        #[inline]
        pub fn copy_as<A>(&self) -> Result<A, $crate::Error>
        where
            A: for<'t> TryFrom<&'t Self, Error = $crate::Error>,
        {
            A::try_from(self)
        }

        /// A contiguous row-major copy in new memory, 64-byte aligned. It is flagged
        /// [`IS_COPIED`](crate::Flags::IS_COPIED), and its class is
        /// [`Exclusive`](crate::Access::Exclusive).
        ///
        /// # Errors
        ///
        /// [`NotHostAccessible`](crate::Error::NotHostAccessible),
        /// [`SubByte`](crate::Error::SubByte) for strided elements narrower than a byte, or
        /// [`OutOfMemory`](crate::Error::OutOfMemory).
        pub fn to_contiguous(&self) -> Result<$crate::Tensor, $crate::Error> {
            $crate::Tensor::contiguous_copy(self.checked())
        }
    };
}

/// Writing a tensor's elements.
macro_rules! writing {
    () => {
        /// The elements as a mutable slice, if they are contiguous and no other code can reach them
        /// (class [`Exclusive`](crate::Access::Exclusive)).
        ///
        /// # Errors
        ///
        /// [`ReadOnly`](crate::Error::ReadOnly), and those of [`as_slice`](Self::as_slice).
        #[inline]
        pub fn as_slice_mut<T: $crate::Plain>(&mut self) -> Result<&mut [T], $crate::Error> {
            $crate::memory::slice::slice_mut(&mut self.0)
        }

        /// The bytes of all elements, of any type but `bool` and at any address, to be written: for
        /// values that arrive as bytes, in the machine's byte order.
        ///
        /// ```
        /// use std::io::Read;
        ///
        /// use dlbridge::{DType, Tensor};
        ///
        /// let mut socket = &1.5_f32.to_ne_bytes()[..];
        /// let mut tensor = Tensor::zeros(DType::F32, [1])?;
        /// socket.read_exact(tensor.as_bytes_mut()?)?;
        /// assert_eq!(tensor.as_slice::<f32>()?, [1.5]);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        ///
        /// # Errors
        ///
        /// [`ReadOnly`](crate::Error::ReadOnly),
        /// [`DTypeMismatch`](crate::Error::DTypeMismatch) for `bool`, which Rust may own and of which
        /// not every byte is a value, and those of [`as_bytes`](Self::as_bytes).
        pub fn as_bytes_mut(&mut self) -> Result<&mut [u8], $crate::Error> {
            $crate::memory::slice::bytes_mut(&mut self.0)
        }

        /// A typed view to write through, if no other code can reach the memory (class
        /// [`Exclusive`](crate::Access::Exclusive)). Any strides.
        ///
        /// # Errors
        ///
        /// [`SharedMemory`](crate::Error::SharedMemory), [`ReadOnly`](crate::Error::ReadOnly),
        /// [`DTypeMismatch`](crate::Error::DTypeMismatch) or
        /// [`NotHostAccessible`](crate::Error::NotHostAccessible).
        pub fn view_mut<T: $crate::Element>(
            &mut self,
        ) -> Result<$crate::ViewMut<'_, T>, $crate::Error> {
            $crate::memory::slice::elements_mut(&mut self.0).map($crate::ViewMut::from_elements)
        }

        /// The elements as a mutable view type of another crate, without a copy, if no other code
        /// can reach them (class [`Exclusive`](crate::Access::Exclusive)) and no two of them overlap:
        /// `&mut [T]`, `ndarray::ArrayViewMut`, `nalgebra::MatrixViewMut`, `faer::MatMut`,
        /// `image::ImageBuffer` over a mutable slice.
        ///
        /// ```
        /// # #[cfg(feature = "ndarray-0_17")]
        /// # {
        /// use dlbridge::Tensor;
        /// use ndarray::{ArrayViewMut2, array};
        ///
        /// let mut tensor = Tensor::from(array![[1.0_f32, 2.0], [3.0, 4.0]]);
        /// tensor.view_mut_as::<ArrayViewMut2<f32>>()?.column_mut(0).fill(0.0);
        /// assert_eq!(tensor.as_slice::<f32>()?, [0.0, 2.0, 0.0, 4.0]);
        /// # }
        /// # Ok::<(), dlbridge::Error>(())
        /// ```
        ///
        /// # Errors
        ///
        /// [`ReadOnly`](crate::Error::ReadOnly), [`Overlapping`](crate::Error::Overlapping), and
        /// those of [`view_as`](Self::view_as).
        #[inline]
        pub fn view_mut_as<'t, V>(&'t mut self) -> Result<V, $crate::Error>
        where
            V: TryFrom<&'t mut Self, Error = $crate::Error>,
        {
            V::try_from(self)
        }
    };
}

pub(crate) use {metadata, reading, writing};
