//! A producer of raw descriptors in either ABI, every field of which can be set.
//! Invariant: a descriptor stands at the start of the block that owns all it points to.
#![allow(unsafe_code, reason = "it does by hand what a producer in C does")]

use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;

use dlbridge::{Access, DType, Device, Element, Error, Flags, ManagedTensor, Tensor, layout};
use dlbridge_sys::{DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor};

use crate::Releases;

/// A fake producer: raw descriptors with any fields that a test needs.
///
/// It owns its elements, 64-byte aligned, until its deleter is called, which is counted. One that
/// is never released leaks; one [without a deleter](Self::without_deleter) lives as long as the
/// program.
///
/// ```
/// use dlbridge_testing::Foreign;
///
/// let foreign = Foreign::new(&[2, 2], &[1.0_f32, 2.0, 3.0, 4.0]).null_strides();
/// let releases = foreign.releases();
/// // SAFETY: the elements are there.
/// let tensor = unsafe { foreign.import() }?;
/// assert_eq!(tensor.strides(), [2, 1]);
/// drop(tensor);
/// assert_eq!(releases.count(), 1);
/// # Ok::<(), dlbridge::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "it is a description until it is turned into a descriptor"]
pub struct Foreign {
    memory: Memory,
    data: Data,
    dtype: DType,
    device: Device,
    ndim: Option<i32>,
    shape: Vec<i64>,
    has_shape: bool,
    strides: Option<Vec<i64>>,
    byte_offset: u64,
    flags: Flags,
    class: Access,
    version: DLPackVersion,
    manager_ctx: *mut c_void,
    has_deleter: bool,
    releases: Releases,
}

#[derive(Debug)]
enum Data {
    /// So many bytes from the start of the own memory.
    Own(usize),
    At(*mut c_void),
}

/// Bytes of 64-byte aligned memory.
struct Memory(Tensor);

impl Memory {
    fn copy_of(bytes: &[u8]) -> Self {
        Self(Tensor::from_bytes(u8::DTYPE, [bytes.len()], bytes).expect("one axis of bytes"))
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Foreign {
    /// A producer that has a copy of `values`, and describes them as a contiguous row-major tensor of
    /// `shape` on the CPU, version 1.3, with explicit strides and a deleter. Whether the shape has
    /// as many elements is for the test to say.
    pub fn new<T: Element>(shape: &[i64], values: &[T]) -> Self {
        // SAFETY: elements have no padding (`Element`'s duty), so all their bytes are initialised.
        let bytes = unsafe {
            std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values))
        };
        Self::of_bytes(T::DTYPE, shape, bytes)
    }

    /// The same, for elements that Rust has no type for.
    pub fn of_bytes(dtype: DType, shape: &[i64], bytes: &[u8]) -> Self {
        let mut strides = vec![0; shape.len()];
        layout::contiguous_strides(shape, &mut strides);
        Self {
            memory: Memory::copy_of(bytes),
            data: Data::Own(0),
            dtype,
            device: Device::CPU,
            ndim: None,
            shape: shape.into(),
            has_shape: true,
            strides: Some(strides),
            byte_offset: 0,
            flags: Flags::NONE,
            class: Access::Shared,
            version: DLPackVersion::CURRENT,
            manager_ctx: ptr::null_mut(),
            has_deleter: true,
            releases: Releases::default(),
        }
    }

    /// Says the elements are of another type.
    pub fn dtype(self, dtype: DType) -> Self {
        Self { dtype, ..self }
    }

    /// Says the memory lies elsewhere.
    pub fn device(self, device: Device) -> Self {
        Self { device, ..self }
    }

    /// Says another number of axes than the shape has.
    pub fn ndim(self, ndim: i32) -> Self {
        Self { ndim: Some(ndim), ..self }
    }

    /// Gives a null pointer for the shape.
    pub fn null_shape(self) -> Self {
        Self { has_shape: false, ..self }
    }

    /// Gives these strides.
    pub fn strides(self, strides: &[i64]) -> Self {
        Self { strides: Some(strides.into()), ..self }
    }

    /// Gives a null pointer for the strides, as producers older than DLPack 1.2 may.
    pub fn null_strides(self) -> Self {
        Self { strides: None, ..self }
    }

    /// Says the first element lies so many bytes after `data`.
    pub fn byte_offset(self, byte_offset: u64) -> Self {
        Self { byte_offset, ..self }
    }

    /// Points `data` so many bytes into the own memory, at an odd address if need be.
    pub fn data_at(self, bytes: usize) -> Self {
        Self { data: Data::Own(bytes), ..self }
    }

    /// Gives any pointer for `data`.
    pub fn data(self, data: *mut c_void) -> Self {
        Self { data: Data::At(data), ..self }
    }

    /// Sets the flags. The ABI before 1.0 has none.
    pub fn flags(self, flags: Flags) -> Self {
        Self { flags, ..self }
    }

    /// Sets the class that [`import`](Self::import) gives the tensor: the test promises that no other
    /// code reaches or writes the memory. Frozen memory is flagged read-only.
    pub fn class(mut self, class: Access) -> Self {
        if class == Access::Frozen {
            self.flags |= Flags::READ_ONLY;
        }
        Self { class, ..self }
    }

    /// Sets the version. The ABI before 1.0 has none.
    pub fn version(self, major: u32, minor: u32) -> Self {
        Self { version: DLPackVersion { major, minor }, ..self }
    }

    /// Sets the producer's own pointer, which is null otherwise.
    pub fn manager_ctx(self, manager_ctx: *mut c_void) -> Self {
        Self { manager_ctx, ..self }
    }

    /// Gives a null pointer for the deleter.
    pub fn without_deleter(self) -> Self {
        Self { has_deleter: false, ..self }
    }

    /// The count of calls of the deleter.
    #[must_use]
    pub fn releases(&self) -> Releases {
        self.releases.clone()
    }

    /// Where the own memory starts.
    #[must_use]
    pub fn memory(&mut self) -> *mut u8 {
        self.memory.0.data_ptr().cast()
    }

    /// Makes a descriptor of DLPack 1.x.
    #[must_use = "it leaks unless its deleter is called"]
    pub fn into_versioned(self) -> *mut DLManagedTensorVersioned {
        let (version, flags, manager_ctx) = (self.version, self.flags.0, self.manager_ctx);
        let deleter = self.has_deleter.then_some(delete as _);
        self.into_block(|dl_tensor| DLManagedTensorVersioned {
            version,
            manager_ctx,
            deleter,
            flags,
            dl_tensor,
        })
    }

    /// Makes a descriptor of DLPack before 1.0.
    #[must_use = "it leaks unless its deleter is called"]
    pub fn into_legacy(self) -> *mut DLManagedTensor {
        let manager_ctx = self.manager_ctx;
        let deleter = self.has_deleter.then_some(delete as _);
        self.into_block(|dl_tensor| DLManagedTensor { dl_tensor, manager_ctx, deleter })
    }

    /// Passes a plain descriptor, as the callee of a C function gets it.
    pub fn with_raw<R>(&mut self, function: impl FnOnce(*mut DLTensor) -> R) -> R {
        let mut descriptor = self.describe();
        function(&raw mut descriptor)
    }

    /// [`Tensor::from_raw`] of a descriptor of DLPack 1.x. The deleter of a rejected one is called.
    ///
    /// # Safety
    ///
    /// What was set is true, as far as `SAFETY.md` trusts a producer for it.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::from_raw`].
    pub unsafe fn import(self) -> Result<Tensor, Error> {
        let class = self.class;
        // SAFETY: the caller's duty.
        let tensor = unsafe { imported(self.into_versioned()) }?;
        // SAFETY: the caller's duty.
        Ok(unsafe { dlbridge::ffi::assume_class(tensor, class) })
    }

    /// [`Tensor::from_raw`] of a descriptor of DLPack before 1.0. The deleter of a rejected one is called.
    ///
    /// # Safety
    ///
    /// As for [`import`](Self::import).
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::from_raw`].
    pub unsafe fn import_legacy(self) -> Result<Tensor, Error> {
        // SAFETY: the caller's duty.
        unsafe { imported(self.into_legacy()) }
    }

    /// The descriptor, pointing into this value's lists and memory.
    fn describe(&mut self) -> DLTensor {
        let data = match self.data {
            Data::Own(bytes) => self.memory().wrapping_add(bytes).cast(),
            Data::At(data) => data,
        };
        let ndim = self.ndim.unwrap_or_else(|| self.shape.len().try_into().expect("a small ndim"));
        let strides = self.strides.as_mut().map_or(ptr::null_mut(), Vec::as_mut_ptr);
        DLTensor {
            data,
            device: self.device.into(),
            ndim,
            dtype: self.dtype.into(),
            shape: if self.has_shape { self.shape.as_mut_ptr() } else { ptr::null_mut() },
            strides,
            byte_offset: self.byte_offset,
        }
    }

    fn into_block<M>(mut self, managed: impl FnOnce(DLTensor) -> M) -> *mut M {
        let managed = managed(self.describe());
        let has_deleter = self.has_deleter;
        let block = Box::into_raw(Box::new(Block { managed, producer: self }));
        if !has_deleter {
            let mut kept = KEPT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            kept.push(Kept(block.cast()));
        }
        block.cast()
    }
}

/// A descriptor with all that it points to.
#[repr(C)]
struct Block<M> {
    managed: M,
    producer: Foreign,
}

/// The deleter of either ABI.
///
/// # Safety
///
/// `managed` came from [`Foreign::into_block`], and is deleted once.
unsafe extern "C" fn delete<M>(managed: *mut M) {
    // SAFETY: the descriptor is the block's first field, and its pointer the block's own (R7).
    let block = unsafe { Box::from_raw(managed.cast::<Block<M>>()) };
    block.producer.releases.record();
}

/// Imports a tensor, or calls its deleter.
///
/// # Safety
///
/// As for [`Tensor::from_raw`].
unsafe fn imported<A: ManagedTensor>(managed: *mut A) -> Result<Tensor, Error> {
    // SAFETY: the caller's duty.
    unsafe { Tensor::from_raw(managed) }.inspect_err(|_| {
        // SAFETY: rejected, and so still the caller's, who passes it on (R3).
        unsafe { dlbridge::ffi::release_raw(managed) };
    })
}

/// Memory without a deleter, kept reachable for leak checkers.
static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

struct Kept(#[expect(dead_code, reason = "it is only kept")] *mut c_void);

// SAFETY: never looked at (R9).
unsafe impl Send for Kept {}
