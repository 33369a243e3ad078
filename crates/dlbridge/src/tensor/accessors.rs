//! The accessors that every kind of tensor has, written once.
//! Anything that depends on who owns the memory does not belong here.
//! Invariant: `$parts` gives checked parts, so nothing here can fail for lack of a check.

/// What a tensor says of itself.
macro_rules! metadata {
    () => {
        /// The extents, outermost axis first; empty for rank 0.
        #[must_use]
        #[inline]
        pub fn shape(&self) -> &[i64] {
            self.parts().shape()
        }

        /// The steps from one element to the next along each axis, in elements. Always explicit:
        /// where an old producer gave none, those of a compact row-major tensor.
        #[must_use]
        #[inline]
        pub fn strides(&self) -> &[i64] {
            self.parts().strides()
        }

        /// The number of axes.
        #[must_use]
        #[inline]
        pub fn rank(&self) -> usize {
            self.parts().shape().len()
        }

        /// The type of the elements.
        #[must_use]
        #[inline]
        pub fn dtype(&self) -> $crate::DType {
            self.parts().dtype()
        }

        /// Where the memory lies.
        #[must_use]
        #[inline]
        pub fn device(&self) -> $crate::Device {
            self.parts().device()
        }

        /// The number of elements.
        #[must_use]
        #[inline]
        pub fn len(&self) -> usize {
            self.parts().len()
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
            self.parts().nbytes()
        }

        /// What the producer says about the memory.
        #[must_use]
        #[inline]
        pub fn flags(&self) -> $crate::Flags {
            self.parts().flags()
        }

        /// Whether the memory must not be written.
        #[must_use]
        #[inline]
        pub fn is_read_only(&self) -> bool {
            self.parts().flags().contains($crate::Flags::READ_ONLY)
        }

        /// Whether the producer made a copy for this tensor.
        #[must_use]
        #[inline]
        pub fn is_copied(&self) -> bool {
            self.parts().flags().contains($crate::Flags::IS_COPIED)
        }

        /// Who else may touch the memory.
        #[must_use]
        #[inline]
        pub fn access(&self) -> $crate::Access {
            self.parts().access()
        }

        /// Whether the elements lie side by side in row-major order.
        #[must_use]
        #[inline]
        pub fn is_contiguous(&self) -> bool {
            self.parts().is_contiguous()
        }

        /// The address of element `[0, 0, ...]`, byte offset applied; may be null if there are no
        /// elements. On a device without addresses it is the handle, and
        /// [`byte_offset`](Self::byte_offset) counts from its start.
        #[must_use]
        #[inline]
        pub fn data_ptr(&self) -> *mut std::ffi::c_void {
            self.parts().data().cast()
        }

        /// What is left to add to a handle; 0 on every device that has addresses.
        #[must_use]
        #[inline]
        pub fn byte_offset(&self) -> u64 {
            self.parts().byte_offset()
        }
    };
}

/// Reading a tensor's elements.
macro_rules! reading {
    () => {
        /// A typed view of host memory, for every [class](crate::Access) and all strides. It
        /// copies elements out and never lends a `&T`.
        ///
        /// # Errors
        ///
        /// [`DTypeMismatch`](crate::Error::DTypeMismatch) or
        /// [`NotHostAccessible`](crate::Error::NotHostAccessible).
        #[inline(always)]
        pub fn view<T: $crate::Element>(&self) -> Result<$crate::View<'_, T>, $crate::Error> {
            $crate::View::new(self.parts())
        }

        /// The elements as a slice, if they are contiguous and nobody can write them meanwhile
        /// (class [`Exclusive`](crate::Access::Exclusive) or [`Frozen`](crate::Access::Frozen)).
        ///
        /// # Errors
        ///
        /// [`SharedMemory`](crate::Error::SharedMemory), whose message names the ways out;
        /// [`DTypeMismatch`](crate::Error::DTypeMismatch),
        /// [`NotHostAccessible`](crate::Error::NotHostAccessible),
        /// [`NotContiguous`](crate::Error::NotContiguous) or
        /// [`Misaligned`](crate::Error::Misaligned).
        #[inline]
        pub fn as_slice<T: $crate::Plain>(&self) -> Result<&[T], $crate::Error> {
            self.parts().slice()
        }

        /// The bytes of all elements, as they lie in memory, of whatever type and at whatever
        /// address, if they are contiguous and nobody can write them meanwhile (class
        /// [`Exclusive`](crate::Access::Exclusive) or [`Frozen`](crate::Access::Frozen)).
        ///
        /// # Errors
        ///
        /// [`SharedMemory`](crate::Error::SharedMemory), whose message names the ways out;
        /// [`NotHostAccessible`](crate::Error::NotHostAccessible) or
        /// [`NotContiguous`](crate::Error::NotContiguous).
        pub fn as_bytes(&self) -> Result<&[u8], $crate::Error> {
            self.parts().bytes()
        }

        /// A compact row-major copy in memory of our own, 64-byte aligned. It is flagged
        /// [`IS_COPIED`](crate::Flags::IS_COPIED), and its class is
        /// [`Exclusive`](crate::Access::Exclusive).
        ///
        /// # Errors
        ///
        /// [`NotHostAccessible`](crate::Error::NotHostAccessible),
        /// [`PackedElements`](crate::Error::PackedElements) for strided elements narrower than a
        /// byte, or [`OutOfMemory`](crate::Error::OutOfMemory).
        pub fn to_compact(&self) -> Result<$crate::Tensor, $crate::Error> {
            $crate::Tensor::compact_copy(self.parts())
        }
    };
}

pub(crate) use {metadata, reading};
