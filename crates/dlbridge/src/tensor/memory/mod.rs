//! The unsafe half of the tensor types: from and to raw descriptors, in both ABIs; over an array that their owner lends,
//! such as the guard of a lock.
//! Invariants: R3: ownership moves with the pointer, once. The owner of an array is borrowed once, at its final
//! address, until it is dropped.
#![allow(unsafe_code)]

pub mod ffi;
mod wrappers;

use std::ffi::c_void;
use std::ops::{Deref, DerefMut};

use dlbridge_sys::{DLManagedTensor, DLManagedTensorVersioned, DLTensor};

use crate::layout::{Layout, Lists, Placement};
use crate::memory::Handle;
use crate::memory::descriptor::Borrowed;
use crate::memory::descriptor::checked::{Checked, Memory, describe};
use crate::memory::handle::ManagedTensor;
use crate::memory::handle::abi::not_null;
use crate::memory::handle::header::Owns;
use crate::memory::read::Elements;
use crate::memory::write::ElementsMut;
use crate::{
    Access, Builder, DescriptorError, Device, DeviceKind, Element, Error, Flags, Tensor, TensorMut,
    TensorRef, TypeCode, View, ViewMut,
};

pub use self::wrappers::{ArcTensor, TensorSlice, TensorSliceMut};

impl Tensor {
    /// Imports a managed tensor, in either ABI. A rejected tensor stays with the caller, unchanged: a Python
    /// capsule keeps it, and any other caller calls its deleter.
    ///
    /// The legacy ABI has no read-only flag, so a tensor imported by it counts as
    /// [`READ_ONLY`](Flags::READ_ONLY), as in NumPy, and is exported as such.
    /// [`assume_writable`](Self::assume_writable) is for callers that know the producer.
    ///
    /// # Safety
    ///
    /// `tensor` is null or a tensor whose ownership the caller passes on, unless there is an error. What validation cannot check is
    /// true (the list of trust in `SAFETY.md`, T1 to T9):
    ///
    /// - It has the layout of its ABI, and no other code changes it or calls its deleter. `shape` and
    ///   `strides`, if not null, point to `ndim` numbers that do not change.
    /// - Every element that they and the offset reach is in one allocation, initialised, of the size of
    ///   `dtype`, and alive until the deleter is called. The device says where: host memory can be read.
    /// - The deleter may be called on any thread, and returns.
    /// - `READ_ONLY` is set unless the elements may be written. While Rust reads an element, no other
    ///   thread writes it without synchronisation.
    /// - Work that is queued on a device is ordered before the consumer's.
    ///
    /// # Errors
    ///
    /// What validation rejects, each naming the field: a null pointer, another major version, a
    /// ndim out of range, a null shape, a negative extent, sizes that overflow, an impossible
    /// dtype, null data where there are elements, an address outside the address space.
    #[inline]
    pub unsafe fn from_raw<A: ManagedTensor>(tensor: *mut A) -> Result<Self, Error> {
        // SAFETY: the caller's duty.
        unsafe { Handle::import(not_null(tensor)?, false) }.map(Self)
    }

    /// The plain descriptor of the memory. Its pointers are valid while this tensor lives; code
    /// that reads or writes through them has the duties of the tensor's [class](crate::Access).
    #[must_use]
    pub fn as_raw(&self) -> DLTensor {
        describe(&self.checked())
    }

    /// Exports the tensor as a versioned managed tensor (DLPack 1.x). Its consumer calls the deleter
    /// once, on any thread.
    ///
    /// Strides are explicit, there is a deleter, and the byte offset is folded into `data`
    /// wherever `data` is an address.
    #[must_use = "the memory leaks unless the deleter is called"]
    pub fn into_raw(self) -> *mut DLManagedTensorVersioned {
        self.leave();
        self.0.into_versioned().as_ptr()
    }

    /// Tells a tensor of device memory that its consumer may queue work on any stream.
    #[inline]
    fn leave(&self) {
        if cfg!(feature = "cudarc-0_19") && self.device().kind == DeviceKind::CUDA {
            let _ = self.stream_handle();
        }
    }

    /// Exports the tensor as a legacy managed tensor (DLPack before 1.0). A tensor that was imported by
    /// that ABI can be exported by it, although it is read-only.
    ///
    /// # Errors
    ///
    /// [`LegacyReadOnly`](Error::LegacyReadOnly) or
    /// [`LegacyPadded`](Error::LegacyPadded): that ABI has no flag for either. The tensor is dropped then.
    pub fn into_raw_legacy(self) -> Result<*mut DLManagedTensor, Error> {
        self.check_legacy()?;
        self.leave();
        Ok(self.0.into_legacy().as_ptr())
    }

    /// Whether [`into_raw_legacy`](Self::into_raw_legacy) would succeed.
    fn check_legacy(&self) -> Result<(), Error> {
        if self.is_read_only() && !self.is_legacy_read_only() {
            return Err(Error::LegacyReadOnly);
        }
        let dtype = self.dtype();
        if dtype.bits < 8 && self.flags().contains(Flags::SUBBYTE_PADDED) {
            return Err(Error::LegacyPadded { dtype });
        }
        Ok(())
    }
}

impl TensorRef<'_> {
    /// Calls `function` with the plain descriptor, for a C function that takes `const DLTensor *`. It is
    /// valid until `function` returns; the callee must neither write the elements nor keep the pointer.
    pub fn with_raw<R>(&self, function: impl FnOnce(*const DLTensor) -> R) -> R {
        let descriptor = describe(&self.checked());
        function(&raw const descriptor)
    }

    /// Borrows the memory of a foreign descriptor.
    ///
    /// # Safety
    ///
    /// `tensor` is null or satisfies the list of [`Tensor::from_raw`] for `'a`, and is not freed before
    /// `'a` ends.
    ///
    /// # Errors
    ///
    /// As for [`Tensor::from_raw`].
    pub unsafe fn from_raw(tensor: *const DLTensor) -> Result<Self, Error> {
        // SAFETY: the caller's duty.
        let tensor = unsafe { tensor.as_ref() }.ok_or(DescriptorError::NullTensor)?;
        // SAFETY: the same.
        let borrowed = unsafe { Borrowed::from_raw(tensor) }?;
        Ok(TensorRef::from_borrowed(borrowed))
    }
}

impl TensorMut<'_> {
    /// Calls `function` with the plain descriptor, for a C function that takes `DLTensor *` to read and
    /// write the elements. It is valid until `function` returns; the callee must not keep the pointer.
    pub fn with_raw<R>(&mut self, function: impl FnOnce(*mut DLTensor) -> R) -> R {
        let mut descriptor = describe(&self.checked());
        function(&raw mut descriptor)
    }
}

// Views of host memory at an address, whose layout is measured once.

impl<'a, T: Element> View<'a, T> {
    /// A view of host memory, whose first element is at an address. It need not be aligned.
    ///
    /// ```
    /// use dlbridge::{DType, Layout, View};
    ///
    /// let numbers = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    /// let column = Layout::new(&[2], &[3], DType::F32)?;
    /// for (at, sum) in [5.0, 7.0, 9.0].into_iter().enumerate() {
    ///     // SAFETY: two elements of the array, three apart.
    ///     let column = unsafe { View::from_raw(&raw const numbers[at], column) }?;
    ///     assert_eq!(column.iter().sum::<f32>(), sum);
    /// }
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// For `'a`, every element that the layout reaches from `data` on is alive, and no other thread writes it during a
    /// call of the view.
    ///
    /// # Errors
    ///
    /// [`DTypeMismatch`](Error::DTypeMismatch).
    #[inline(always)]
    pub unsafe fn from_raw(data: *const T, layout: Layout<'a>) -> Result<Self, Error> {
        // SAFETY: the caller's duty.
        unsafe { elements_at(data.cast_mut(), layout) }.map(Self::from_elements)
    }
}

impl<'a, T: Element> ViewMut<'a, T> {
    /// A view of host memory to write, whose first element is at an address. It need not be aligned.
    ///
    /// ```
    /// use dlbridge::{DType, Layout, ViewMut};
    ///
    /// let mut numbers = [1.0_f32, 2.0, 3.0, 4.0];
    /// let row = Layout::new(&[2], &[1], DType::F32)?;
    /// // SAFETY: the last two elements of the array, which is borrowed.
    /// unsafe { ViewMut::from_raw(&raw mut numbers[2], row) }?.fill(0.0);
    /// assert_eq!(numbers, [1.0, 2.0, 0.0, 0.0]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// For `'a`, every element that the layout reaches from `data` on is alive, no reference to one exists, and no other
    /// code accesses them.
    ///
    /// # Errors
    ///
    /// [`DTypeMismatch`](Error::DTypeMismatch).
    #[inline(always)]
    pub unsafe fn from_raw(data: *mut T, layout: Layout<'a>) -> Result<Self, Error> {
        // SAFETY: the caller's duty.
        let elements = unsafe { elements_at(data, layout) }?;
        // SAFETY: the caller's duty.
        Ok(Self::from_elements(unsafe { ElementsMut::of_elements(elements) }))
    }
}

/// # Safety
///
/// As for [`View::from_raw`].
#[inline(always)]
unsafe fn elements_at<'a, T: Element>(
    data: *mut T,
    layout: Layout<'a>,
) -> Result<Elements<'a, T>, Error> {
    let (shape, strides, found) = (layout.shape(), layout.strides(), layout.dtype());
    if found != T::DTYPE {
        return Err(Error::DTypeMismatch { found, expected: T::DTYPE });
    }
    // SAFETY: measured for this dtype, which is a constant from here on (R1).
    let layout = unsafe { Layout::again(shape, strides, T::DTYPE, Flags::NONE) };
    let memory = Memory {
        data: data.cast(),
        byte_offset: 0,
        device: Device::CPU,
        flags: Flags::NONE,
        access: Access::Shared,
    };
    // SAFETY: measured; the elements are the caller's duty (R1, R2, R4).
    let checked = unsafe { Checked::new(layout, memory) };
    // SAFETY: `T`'s dtype on the host, as it says just above (R1).
    Ok(unsafe { Elements::typed(checked) })
}

impl<O: Send + 'static> Builder<O> {
    /// Exports memory at an address: device memory, or host memory that is no slice. Shape and dtype
    /// must have been chosen. The class is [`Shared`](crate::Access::Shared), since other code may
    /// access the memory.
    ///
    /// # Safety
    ///
    /// While the owner lives, also after it is moved, `data` is an address (or a handle) on
    /// `device` from which the chosen elements can be reached, to be read and, unless `flags` has
    /// [`READ_ONLY`](Flags::READ_ONLY), written. The owner may be dropped on any thread.
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build), less `OutOfBounds`; [`NotChosen`](Error::NotChosen), or
    /// [`NullData`](crate::DescriptorError::NullData) if there are elements.
    pub unsafe fn build_raw(
        self,
        data: *mut c_void,
        device: Device,
        flags: Flags,
    ) -> Result<Tensor, Error> {
        self.place_flagged(flags, |owner, placement| {
            // SAFETY: the caller's duty.
            unsafe { export_at(owner, placement, data, device, flags) }
        })
    }
}

/// # Safety
///
/// As for [`Builder::build_raw`].
#[inline]
unsafe fn export_at<O: Send + 'static>(
    owner: O,
    placement: &Placement<'_>,
    data: *mut c_void,
    device: Device,
    flags: Flags,
) -> Result<Handle, Error> {
    let memory = placement.memory(data, device, flags)?;
    // SAFETY: the caller's duty.
    unsafe {
        Handle::export(owner, Owns::Anything, placement.ndim(), |_, lists| {
            Ok((lists.copy(placement.layout), memory))
        })
    }
}

// Access to memory of any class, on the caller's promise. Type, device, layout and alignment are
// checked as always.

impl Tensor {
    /// Borrows memory of any class as [`Frozen`](Access::Frozen), so that every conversion to a shared
    /// borrow works.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let tensor = Tensor::from(vec![1, 2, 3]).into_shared();
    /// // SAFETY: no other code has the tensor.
    /// let numbers: &[i32] = unsafe { tensor.assume_frozen() }.into_as()?;
    /// assert_eq!(numbers, [1, 2, 3]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// No code, in whatever language, writes the elements while the borrow lives.
    #[must_use]
    #[inline]
    pub unsafe fn assume_frozen(&self) -> TensorRef<'_> {
        let mut borrowed = Borrowed::from_checked(self.checked());
        // SAFETY: the caller's duty (R4).
        unsafe { borrowed.set_access(Access::Frozen) };
        TensorRef::from_borrowed(borrowed)
    }

    /// Borrows memory of any class as [`Exclusive`](Access::Exclusive), so that every conversion to a
    /// mutable borrow works.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let mut tensor = Tensor::from(Tensor::from(vec![1, 2, 3]).into_shared());
    /// // SAFETY: no other code has the tensor.
    /// let numbers: &mut [i32] = unsafe { tensor.assume_exclusive() }?.into_as()?;
    /// numbers[0] = 10;
    /// # assert_eq!(tensor.view::<i32>()?.to_vec(), [10, 2, 3]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// No other code, in whatever language, reads or writes the elements while the borrow lives.
    ///
    /// # Errors
    ///
    /// [`ReadOnly`](Error::ReadOnly).
    #[inline]
    pub unsafe fn assume_exclusive(&mut self) -> Result<TensorMut<'_>, Error> {
        self.checked().check_writable()?;
        let mut borrowed = Borrowed::from_checked(self.checked());
        // SAFETY: the caller's duty (R4).
        unsafe { borrowed.set_access(Access::Exclusive) };
        Ok(TensorMut(borrowed))
    }
}

// Tensors that were imported by the legacy ABI, which has no read-only flag.
// Invariant: such memory is read-only until the caller says otherwise; all handles that share it agree.

impl Tensor {
    /// Whether the memory is read-only only because it was imported by the legacy ABI, which has no
    /// read-only flag. Tensors that share the memory agree. Such a tensor can still be exported by that
    /// ABI ([`into_raw_legacy`](Self::into_raw_legacy)). To write to it, have the producer export DLPack
    /// 1.x, copy ([`to_contiguous`](Self::to_contiguous)), or, if you know the producer, call
    /// [`assume_writable`](Self::assume_writable).
    #[must_use]
    #[inline]
    pub fn is_legacy_read_only(&self) -> bool {
        self.0.is_legacy_read_only()
    }

    /// Makes memory writable that is read-only only because of the
    /// [legacy ABI](Self::is_legacy_read_only). Any other tensor is left unchanged.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let raw = Tensor::from(vec![1.0_f32]).into_raw_legacy()?;
    /// // SAFETY: exported just now, to no other consumer.
    /// let tensor = unsafe { Tensor::from_raw(raw) }?;
    /// assert!(tensor.is_read_only() && tensor.is_legacy_read_only());
    /// // SAFETY: exported from a vector, which may be written.
    /// let tensor = unsafe { tensor.assume_writable() };
    /// assert!(!tensor.is_read_only());
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The producer permits writing (`SAFETY.md`, T8), as MLX and older releases of PyTorch do. JAX and
    /// TensorFlow do not: they export immutable arrays by that ABI.
    #[must_use]
    pub unsafe fn assume_writable(mut self) -> Self {
        // SAFETY: the caller's duty (T8).
        unsafe { self.0.assume_writable() };
        self
    }
}

/// The layout and the memory of a borrowed tensor, for the header that keeps its lender: with the rights
/// of the borrow. A copy was made for the lender, and is no consumer's.
fn lent<'l>(checked: Checked<'_>, lists: Lists<'l>) -> (Layout<'l>, Memory) {
    let flags = checked.flags - Flags::IS_COPIED;
    (lists.copy(checked.layout()), Memory { flags, ..checked.memory() })
}

impl Tensor {
    /// A read-only tensor over an array behind a lock, which stays locked for reading until the last consumer
    /// drops the memory. No call waits: taking the lock, and failing where it is taken, is the caller's.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use dlbridge::Tensor;
    /// use parking_lot::RwLock;
    ///
    /// let lock = Arc::new(RwLock::new(vec![1.0_f32, 2.0]));
    /// let tensor = Tensor::from_guard(lock.try_read_arc().expect("nobody writes"));
    /// assert_eq!(tensor.as_slice::<f32>()?, [1.0, 2.0]);
    /// assert!(lock.try_write_arc().is_none(), "as long as the tensor lives");
    /// drop(tensor);
    /// assert!(lock.try_write_arc().is_some());
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// The guard owns its lock (`Arc`), and may be dropped on any thread: those of `parking_lot` with the features
    /// `arc_lock` and `send_guard`, and the owned guards of `tokio`. One of the standard library does neither, and
    /// does not compile. Any other owner of an array will do, such as an `Arc<Array>`.
    ///
    /// # Panics
    ///
    /// If no tensor can describe the array, as with `TensorRef::from`.
    #[must_use]
    pub fn from_guard<G>(guard: G) -> Self
    where
        G: Deref<Target: 'static> + Send + 'static,
        for<'a> TensorRef<'a>: From<&'a G::Target>,
    {
        let ndim = TensorRef::from(&*guard).ndim();
        // SAFETY: borrowed from the owner at its final address, which is not used again before it is dropped.
        // The conversion holds for a borrow of any lifetime, so also for this one (R2). Others may borrow the
        // same array: a `TensorRef` is frozen at most (R4).
        let handle = unsafe {
            Handle::export(guard, Owns::Anything, ndim, |guard, lists| {
                Ok(lent(TensorRef::from(&**guard).checked(), lists))
            })
        };
        Self(handle.expect("a tensor described it"))
    }

    /// A writable tensor over an array behind a lock, which stays locked for writing until the last consumer
    /// drops the memory. See [`from_guard`](Self::from_guard).
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use dlbridge::Tensor;
    /// use parking_lot::RwLock;
    ///
    /// let lock = Arc::new(RwLock::new(vec![1.0_f32, 2.0]));
    /// let mut tensor = Tensor::from_guard_mut(lock.try_write_arc().expect("nobody reads"))?;
    /// tensor.as_slice_mut::<f32>()?[0] = 7.0;
    /// assert!(lock.try_read_arc().is_none(), "as long as the tensor lives");
    /// drop(tensor);
    /// assert_eq!(*lock.read(), [7.0, 2.0]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotConvertible`] for elements of type `bool`: a consumer could write another byte than 0 and 1,
    /// which the owner of the lock would read as a `bool`.
    ///
    /// # Panics
    ///
    /// If no tensor can describe the array, as with `TensorMut::from`.
    pub fn from_guard_mut<G>(mut guard: G) -> Result<Self, Error>
    where
        G: DerefMut<Target: 'static> + Send + 'static,
        for<'a> TensorMut<'a>: From<&'a mut G::Target>,
    {
        let ndim = TensorMut::from(&mut *guard).ndim();
        // SAFETY: as in `from_guard`, of a unique borrow (R2, R4).
        let handle = unsafe {
            Handle::export(guard, Owns::Anything, ndim, |guard, lists| {
                let borrowed = TensorMut::from(&mut **guard);
                // Of this borrow, since `deref_mut` of a guard may return another array each time.
                if borrowed.dtype().code == TypeCode::BOOL {
                    return Err(Error::NotConvertible {
                        what: "dtype",
                        found: "bool".to_owned(),
                        expected: "elements that may have any bits; lock an array of u8, or share it \
                                   read-only with from_guard()",
                    });
                }
                Ok(lent(borrowed.checked(), lists))
            })
        };
        handle.map(Self)
    }
}
