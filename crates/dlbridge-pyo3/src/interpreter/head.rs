//! The head of every Python object, and the fields behind it.
//! Invariant: a `Head` has the size that this interpreter reports, and that this build knows.
//!
//! PyO3's `PyObject` does not tell the head's size: in a build for `abi3t` (PEP 803), which runs with and
//! without the GIL, it is opaque and has size 0. So no struct of this crate begins with one; the fields behind
//! a head are a struct of their own, found by [`Head::fields`].

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;

/// The head with the GIL.
#[repr(C)]
struct Counted {
    count: isize,
    kind: *mut ffi::PyTypeObject,
}

/// The head without the GIL, the same from CPython 3.13 to 3.15.
#[repr(C)]
pub(crate) struct FreeThreaded {
    pub(crate) thread: usize,
    flags: u16,
    mutex: u8,
    gc_bits: u8,
    pub(crate) local_count: AtomicU32,
    shared_count: isize,
    kind: *mut ffi::PyTypeObject,
}

/// The size for which this build is compiled; 0 for `abi3t`.
const COMPILED: usize = size_of::<ffi::PyObject>();
const COUNTED: usize = size_of::<Counted>();
const FREE_THREADED: usize = size_of::<FreeThreaded>();

const _: () = assert!(size_of::<usize>() != 8 || (COUNTED == 16 && FREE_THREADED == 32));

/// The size that the interpreter reported; 0 before.
static MEASURED: AtomicUsize = AtomicUsize::new(0);

/// Proof that the size of the head is known.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    size: usize,
}

impl Head {
    /// Whether this build is compiled for one size.
    pub(crate) const IS_COMPILED: bool = COMPILED != 0;

    /// Whether this build runs with the GIL only.
    pub(crate) const HAS_GIL: bool = COMPILED == COUNTED;

    /// The head of this interpreter's objects; `None` for one that this build does not know.
    #[cold]
    pub(crate) fn measure(py: Python<'_>) -> Option<Self> {
        let object = py.get_type::<PyAny>();
        let size = object.getattr(intern!(py, "__basicsize__")).ok()?.extract().ok()?;
        let is_compiled = !Self::IS_COMPILED || size == COMPILED;
        let is_known = is_compiled && matches!(size, COUNTED | FREE_THREADED);
        is_known.then(|| {
            MEASURED.store(size, Ordering::Relaxed);
            Self { size }
        })
    }

    /// The same, without asking the interpreter.
    ///
    /// # Safety
    ///
    /// [`measure`](Self::measure) returned a head before.
    #[inline(always)]
    pub(crate) unsafe fn measured() -> Self {
        Self { size: if Self::IS_COMPILED { COMPILED } else { MEASURED.load(Ordering::Relaxed) } }
    }

    pub(crate) fn size(self) -> usize {
        self.size
    }

    /// The fields behind the head of an object.
    #[inline(always)]
    pub(crate) fn fields<T>(self, object: *mut ffi::PyObject) -> *mut T {
        const { assert!(align_of::<T>() <= align_of::<Counted>(), "heads end at such an address") };
        object.wrapping_byte_add(self.size).cast()
    }

    /// The head itself, where it is that of an interpreter without the GIL.
    pub(crate) fn free_threaded(self, object: *mut ffi::PyObject) -> Option<*mut FreeThreaded> {
        (self.size == FREE_THREADED).then_some(object.cast())
    }
}

/// Whether another reference to an object certainly exists, so that giving one up frees nothing. Without the GIL, this is
/// always false, because another thread may drop the other reference in the meantime.
#[inline(always)]
pub(crate) fn has_other_references(object: &Bound<'_, PyAny>) -> bool {
    if !Head::HAS_GIL {
        return false;
    }
    let head = object.as_ptr().cast::<Counted>();
    // SAFETY: an object with a head of this build, attached, so that no other thread changes the count (F1, F5).
    let count = unsafe { (*head).count };
    // Since 3.14 the upper half has flags.
    count as u32 > 1
}
