//! `Borrowed`: a tensor and the borrow of its memory, which together prove what safe code may do; `Reading`, the
//! same of a reference. Tensors of class `Shared` that Rust keeps, and that it gives to Python. What an extension
//! promises of its callers, so that it has references to their memory.
//! Invariant: the borrow is of this tensor's memory, and lives as long.

use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::ops::Deref;
use std::{ptr, slice};

use dlbridge::ffi::{self, Bytes, Kept};
use dlbridge::sys::DLTensor;
use dlbridge::{Access, ArcTensor, Element, Flags, Plain, Tensor, TensorMut, TensorRef, ViewMut};
use pyo3::prelude::*;

use super::shared;
use super::space;
use crate::release::{self, Owner};
use crate::{Error, Result};

/// A tensor whose memory is borrowed, until this is dropped.
#[derive(Debug)]
pub(crate) struct Borrowed {
    /// The number of the borrow, with `WRITES` if it is one to write; or `NONE`.
    borrow: usize,
    /// Its descriptor may be in a space.
    tensor: Tensor,
}

/// No borrow is necessary, or none is wanted.
const NONE: usize = 0;
const WRITES: usize = 1;

impl Drop for Borrowed {
    /// Ends the borrow before the tensor is dropped: a deleter may run Python code that borrows the memory.
    #[inline]
    fn drop(&mut self) {
        self.end_borrow();
        if ffi::is_borrowed(&self.tensor) {
            // SAFETY: made by `space::tensor`, and dropped once (F9).
            unsafe { space::end(&self.tensor) };
        }
    }
}

impl Borrowed {
    /// A tensor whose memory is not borrowed.
    #[inline]
    pub(crate) fn unborrowed(tensor: Tensor) -> Self {
        Self { borrow: NONE, tensor }
    }

    /// The memory of an object, which is not borrowed. In the frame of a call it needs no header (`in_frame`).
    ///
    /// # Safety
    ///
    /// As for [`from_owner_raw`](ffi::from_owner_raw) with the object as the owner.
    #[inline(always)]
    pub(crate) unsafe fn of_object(
        object: pyo3::Borrowed<'_, '_, PyAny>,
        tensor: &DLTensor,
        flags: Flags,
        in_frame: bool,
    ) -> Result<Self> {
        if in_frame {
            // SAFETY: the caller's duty; this value ends it, and gives out references alone.
            if let Some(tensor) = unsafe { space::tensor(object, tensor, flags) } {
                return Ok(Self::unborrowed(tensor));
            }
        }
        let owner = Owner::new(object.to_owned().unbind());
        // SAFETY: the caller's duty.
        unsafe { ffi::from_owner_raw(owner, tensor, flags) }
            .map(Self::unborrowed)
            .map_err(Error::from)
    }

    /// Borrows the memory to read. Only memory of class `Shared` may have writers.
    #[inline]
    pub(crate) fn read(&mut self) -> Result<()> {
        if self.tensor.access() == Access::Shared {
            if let Some(bytes) = ffi::bytes(&self.tensor) {
                self.borrow = shared::read(&bytes, &self.tensor)?;
            }
        }
        Ok(())
    }

    /// Borrows the memory to write. Only an attached thread does, so that [`read_at_once`] may rely on the GIL.
    #[inline]
    pub(crate) fn write(&mut self, _: Python<'_>) -> Result<()> {
        if self.tensor.access() == Access::Shared {
            if let Some(bytes) = ffi::bytes(&self.tensor) {
                self.borrow = shared::write(&bytes, &self.tensor)? | WRITES;
            }
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The tensor, which keeps the borrow with it, since it may be moved out.
    pub(crate) fn tensor_mut(&mut self) -> &mut Tensor {
        if self.borrow != NONE || ffi::is_borrowed(&self.tensor) {
            let none = Self::unborrowed(Tensor::from(Vec::<u8>::new()));
            self.tensor = mem::replace(self, none).into_kept();
        }
        &mut self.tensor
    }

    /// The tensor for Python: ends the borrow.
    #[inline(always)]
    pub(crate) fn into_given(self) -> Tensor {
        let has_neither = self.borrow == NONE && !ffi::is_borrowed(&self.tensor);
        if has_neither { self.into_parts().1 } else { self.into_ended() }
    }

    #[inline(never)]
    fn into_ended(mut self) -> Tensor {
        self.end_borrow();
        self.into_parts().1
    }

    /// The tensor, which borrows the memory to read for as long as Rust has it, with its parts and clones.
    pub(crate) fn into_kept(self) -> Tensor {
        let Some(bytes) = ffi::bytes(&self.tensor).filter(|_| self.borrow != NONE) else {
            return self.into_given();
        };
        let (borrow, tensor) = self.into_parts();
        let number = shared::keep(&bytes, borrow & !WRITES);
        let borrow = Kept { number, start: bytes.start, end: shared::end };
        // SAFETY: a borrow to read of these bytes, in the table of borrows (F9).
        unsafe { ffi::keep_borrowed(tensor, borrow) }
    }

    #[inline(always)]
    fn into_parts(self) -> (usize, Tensor) {
        let this = ManuallyDrop::new(self);
        // SAFETY: taken once, from a value that is forgotten (R7).
        let tensor = unsafe { ptr::read(&raw const this.tensor) };
        if ffi::is_borrowed(&tensor) {
            // SAFETY: made by `space::tensor`, and ended once (F9).
            return (this.borrow, unsafe { space::into_kept(tensor) });
        }
        (this.borrow, tensor)
    }

    #[inline]
    fn end_borrow(&mut self) {
        let borrow = mem::replace(&mut self.borrow, NONE);
        if borrow != NONE {
            // Only what Rust keeps is found by its address.
            shared::end(borrow & !WRITES, 0);
        }
    }

    /// Whether no other borrow of the memory exists.
    fn writes(&self) -> bool {
        self.borrow == NONE || self.borrow & WRITES != 0
    }

    /// A view to write, for any thread.
    ///
    /// # Panics
    ///
    /// If the memory is borrowed to read.
    pub(crate) fn view_mut<T: Element>(&mut self) -> Result<ViewMut<'_, T>> {
        assert!(self.writes(), "borrowed to write, or no borrow is necessary");
        // SAFETY: no other argument, slice or view has the memory while the borrow lives, and this one
        // is borrowed mutably (F9); other code does not access it meanwhile (T6, T8).
        Ok(unsafe { ffi::view_mut_unchecked(&self.tensor) }?)
    }

    /// The memory as if no code could write it.
    pub(crate) fn frozen<P: Promised>(&self, _: PhantomData<P>) -> TensorRef<'_> {
        // SAFETY: no Rust code writes, because of the borrow (F9); no other code, by the duty of
        // `StableArguments`.
        unsafe { self.tensor.assume_frozen() }
    }

    /// The elements as a slice, as if no code could write them.
    #[inline]
    pub(crate) fn slice<T: Plain, P: Promised>(&self, _: PhantomData<P>) -> Result<&[T]> {
        // SAFETY: no Rust code writes, because of the borrow (F9); no other code, by the duty of
        // `StableArguments`.
        Ok(unsafe { ffi::slice_unchecked(&self.tensor) }?)
    }

    /// The elements as a mutable slice, as if no other code could access them.
    ///
    /// # Panics
    ///
    /// If the memory is borrowed to read.
    #[inline]
    pub(crate) fn slice_mut<T: Plain, P: Promised>(
        &mut self,
        _: PhantomData<P>,
    ) -> Result<&mut [T]> {
        assert!(self.writes(), "borrowed to write, or no borrow is necessary");
        // SAFETY: no Rust code accesses the memory, because of the borrow (F9); no other code, by the duty
        // of `StableArguments`.
        unsafe { ffi::slice_mut_unchecked(&mut self.tensor) }.map_err(Error::of_writing)
    }

    /// The memory as if no other code could access it.
    ///
    /// # Panics
    ///
    /// If the memory is borrowed to read.
    pub(crate) fn exclusive<P: Promised>(&mut self, _: PhantomData<P>) -> Result<TensorMut<'_>> {
        assert!(self.writes(), "borrowed to write, or no borrow is necessary");
        // SAFETY: no Rust code accesses the memory, because of the borrow (F9); no other code, by the duty
        // of `StableArguments`.
        Ok(unsafe { self.tensor.assume_exclusive() }?)
    }

    /// The elements as booleans, each of which was checked.
    pub(crate) fn bools<P: Promised>(&self, _: PhantomData<P>) -> Result<&[bool]> {
        // SAFETY: no Rust code writes, because of the borrow (F9); no other code, by the duty of
        // `StableArguments`.
        let bytes = unsafe { ffi::bytes_unchecked(&self.tensor) }?;
        match bytes.iter().find(|&&byte| byte > 1) {
            // SAFETY: as long and as aligned as bytes; 0 or 1, which no code changes, as long as `self` is
            // borrowed (R5, and the duty of `StableArguments`).
            None => Ok(unsafe { slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }),
            Some(byte) => Err(Error::buffer(format!(
                "expected booleans of 0 or 1, found {byte}; pass x.astype(\"uint8\") != 0"
            ))),
        }
    }

    /// The elements as booleans to write, each of which was checked.
    ///
    /// # Panics
    ///
    /// If the memory is borrowed to read.
    pub(crate) fn bools_mut<P: Promised>(
        &mut self,
        promise: PhantomData<P>,
    ) -> Result<&mut [bool]> {
        assert!(self.writes(), "borrowed to write, or no borrow is necessary");
        // A marker of a user may accept read-only memory.
        if self.tensor.is_read_only() {
            return Err(Error::of_writing(dlbridge::Error::ReadOnly));
        }
        let length = self.bools(promise)?.len();
        if length == 0 {
            return Ok(&mut []);
        }
        // SAFETY: as in `bools`; no Rust code accesses the memory, because of the borrow (F9), no other code, by the
        // duty of `StableArguments`.
        Ok(unsafe { slice::from_raw_parts_mut(self.tensor.data_ptr().cast(), length) })
    }
}

/// A tensor whose memory is borrowed to read.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    tensor: &'a Tensor,
    /// The number of the borrow, or `NONE`.
    borrow: usize,
}

impl<'a> Reading<'a> {
    /// Borrows memory to read. Only memory of class `Shared` may have writers.
    #[inline(always)]
    pub(crate) fn new(tensor: &'a Tensor) -> Result<Self> {
        if tensor.access() != Access::Shared {
            return Ok(Self { tensor, borrow: NONE });
        }
        let Some(bytes) = ffi::bytes(tensor) else { return Ok(Self { tensor, borrow: NONE }) };
        Ok(Self { tensor, borrow: shared::read(&bytes, tensor)? })
    }
}

impl Deref for Reading<'_> {
    type Target = Tensor;

    #[inline]
    fn deref(&self) -> &Tensor {
        self.tensor
    }
}

impl Drop for Reading<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.borrow != NONE {
            shared::end(self.borrow, 0);
        }
    }
}

/// Reads memory once. With the GIL, no thread borrows memory to write meanwhile, since `read` runs no Python code: so it
/// is enough to see that there are no writers, where a borrow takes 125 of the 580 instructions of `float(x)`.
#[cfg(feature = "tensor-methods")]
#[inline(always)]
pub(crate) fn read_at_once<R>(_: Python<'_>, tensor: &Tensor, read: fn(&Tensor) -> R) -> Result<R> {
    use crate::interpreter::head::Head;

    if Head::HAS_GIL && shared::table().is_some_and(|table| !(table.has_writers)()) {
        return Ok(read(tensor));
    }
    read_borrowed(tensor, read)
}

#[cfg(feature = "tensor-methods")]
#[inline(never)]
fn read_borrowed<R>(tensor: &Tensor, read: fn(&Tensor) -> R) -> Result<R> {
    Ok(read(&*Reading::new(tensor)?))
}

/// A tensor that was just imported, which borrows its memory to read for as long as Rust has it.
pub(crate) fn kept(tensor: Tensor) -> Result<Tensor> {
    let mut memory = Borrowed::unborrowed(tensor);
    memory.read()?;
    Ok(memory.into_kept())
}

/// A copy in contiguous memory of Rust.
pub(crate) fn copied(tensor: &Tensor) -> Result<Tensor> {
    Ok(Reading::new(tensor)?.to_contiguous()?)
}

/// The tensor for Python. Handles that Rust keeps of the memory borrow it to read.
#[inline]
pub(crate) fn give(py: Python<'_>, tensor: Tensor) -> Result<Tensor> {
    ready(py)?;
    // SAFETY: the callers export it; `enter` borrows in the table of borrows (F9).
    Ok(unsafe { ffi::give(tensor, enter) })
}

/// As [`give`], for an object of Python, whose class is prepared before the object is made.
#[inline]
pub(crate) fn give_shared(tensor: Tensor) -> ArcTensor {
    // SAFETY: the callers put it into an object, whose elements are read by `Reading`; `enter` borrows in the table
    // of borrows (F9).
    unsafe { ffi::give_shared(tensor, enter) }
}

/// Gets ready for memory that comes from Python, or goes there: called before a descriptor is read, because Python code may
/// run, which could free it.
///
/// # Errors
///
/// A `MemoryError`, or that of a signal handler.
#[inline]
pub(crate) fn ready(py: Python<'_>) -> PyResult<()> {
    if release::is_ready() && shared::table().is_some() { Ok(()) } else { get_ready(py) }
}

#[cold]
#[inline(never)]
fn get_ready(py: Python<'_>) -> PyResult<()> {
    release::get_ready(py)?;
    find_table(py)
}

/// Finds the table of the process, which runs no Python code.
///
/// # Errors
///
/// A `MemoryError`.
#[inline]
pub(crate) fn find_table(py: Python<'_>) -> PyResult<()> {
    shared::find(py)
}

fn enter(bytes: &Bytes) -> Kept {
    Kept { number: shared::keep(bytes, NONE), start: bytes.start, end: shared::end }
}

/// A marker by which an extension promises, once for all its functions, that its callers leave the
/// arguments alone during a call. An argument with such a marker gives slices and arrays of the
/// caller's memory: [`as_slice`](crate::PyTensorOf::as_slice), [`as_array`](crate::PyTensorOf::as_array) and their
/// `_mut` forms.
///
/// Dlbridge itself ensures that no Rust code writes the memory, by borrows that are counted at run time:
/// the same memory as two arguments, one of them to write, is a `TypeError`. It cannot see a thread of
/// Python that writes a NumPy array meanwhile. A `&[T]` requires that no code does, so the author of the
/// extension says so, in the one `unsafe` line of the project, and in its documentation:
///
/// ```
/// use dlbridge_pyo3::{PyTensorOf, Result, StableArguments, Writable};
/// use pyo3::prelude::*;
///
/// struct Stable;
///
/// // SAFETY: the README tells callers not to write an argument on another thread during a call.
/// unsafe impl StableArguments for Stable {}
///
/// type Array<T, const N: usize> = PyTensorOf<T, N, Stable>;
/// type ArrayMut<T, const N: usize> = PyTensorOf<T, N, (Stable, Writable)>;
///
/// #[pyfunction]
/// fn median(x: Array<f64, 1>) -> Result<f64> {
///     let mut sorted = x.as_slice()?.to_vec();
///     sorted.sort_by(f64::total_cmp);
///     Ok(sorted[sorted.len() / 2])
/// }
///
/// #[pyfunction]
/// fn sort(mut x: ArrayMut<f64, 1>) -> Result<()> {
///     x.as_slice_mut()?.sort_by(f64::total_cmp);
///     Ok(())
/// }
/// # Python::initialize();
/// # Python::attach(|py| -> PyResult<()> {
/// let x = py.import("numpy")?.call_method1("array", ([3.0, 1.0, 2.0],))?;
/// assert_eq!(wrap_pyfunction!(median, py)?.call1((&x,))?.extract::<f64>()?, 2.0);
/// wrap_pyfunction!(sort, py)?.call1((&x,))?;
/// assert_eq!(x.repr()?.to_string(), "array([1., 2., 3.])");
/// # Ok(()) }).unwrap();
/// ```
///
/// Without the marker, those methods do not compile:
///
/// ```compile_fail,E0277
/// # use dlbridge_pyo3::{PyTensorOf, Result};
/// fn median(x: PyTensorOf<f64, 1>) -> Result<usize> {
///     Ok(x.as_slice()?.len())
/// }
/// ```
///
/// # Safety
///
/// From the moment an argument with the marker is extracted until it is dropped, no code outside
/// Rust writes its elements; nor reads them, if the argument is [`Writable`](crate::Writable). That
/// includes threads of Python while the function is [detached](pyo3::Python::detach), or on a
/// free-threaded build; operations that a framework still runs; Python code that the function
/// itself calls; and consumers of the same memory that write in spite of a flag.
pub unsafe trait StableArguments: 'static {}

/// Constraints with a [`StableArguments`] marker: the marker itself, or a tuple that begins with it.
///
/// # Safety
///
/// That of [`StableArguments`].
#[diagnostic::on_unimplemented(
    message = "`&[T]` over the caller's memory needs a promise that it does not change during a call",
    label = "the argument has no `StableArguments` marker, or another constraint before it",
    note = "say it once in the crate: `struct Stable; unsafe impl dlbridge_pyo3::StableArguments for Stable {{}}`, \
            and take `PyTensorOf<T, N, Stable>`, or `PyTensorOf<T, N, (Stable, Writable)>` to write",
    note = "the marker is the first in a tuple: `(Stable, Contiguous)`",
    note = "without a promise, `view()` reads and writes by value, at the speed of a slice"
)]
pub unsafe trait Promised {}

// SAFETY: the duty of `StableArguments`, which is the same.
unsafe impl<P: StableArguments> Promised for P {}
// SAFETY: the same duty, of the first marker.
unsafe impl<P: StableArguments, A> Promised for (P, A) {}
// SAFETY: the same duty.
unsafe impl<P: StableArguments, A, B> Promised for (P, A, B) {}
