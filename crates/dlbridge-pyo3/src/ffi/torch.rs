//! PyTorch's marks of tensors whose memory does not hold their values: conjugated or negated lazily, or
//! zeros without memory. Its exchange table and `__dlpack__` leave some of them out.
//! What an import does about them belongs to `import`.
//! Invariant: a function of libtorch is called only after it gave the right answers for tensors with and
//! without its mark, at the place in the object where PyTorch's `_cdata` says that the tensor is.

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use dlbridge::TypeCode;
use dlbridge::protocol::table::{CONJUGATED, NEGATED, ZEROS, may_be_conjugated};
use dlbridge::sys::DLPackExchangeAPI;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::published::Published;
use crate::Result;
use crate::error::unless_refused;
use crate::interpreter::head::Head;
use crate::interpreter::imported_module;

/// Where the values of an object are.
pub(crate) enum Values {
    InMemory,
    /// Not in its memory, for this reason.
    Elsewhere(&'static str),
    /// The object must be asked.
    Unknown,
}

/// `bool at::native::is_neg(const at::Tensor&)`, for example.
type Ask = unsafe extern "C" fn(*const c_void) -> bool;

/// The functions, in the order of [`NAMES`].
struct Marks {
    /// Where an object has its `at::Tensor`.
    offset: usize,
    asks: [Ask; 3],
}

/// `is_conj`, `is_neg` and `_is_zerotensor` of `at::native`.
const NAMES: [&str; 3] = [
    "_ZN2at6native7is_conjERKNS_6TensorE",
    "_ZN2at6native6is_negERKNS_6TensorE",
    "_ZN2at6native14_is_zerotensorERKNS_6TensorE",
];

/// PyTorch's table, once [`MARKS`] was looked for.
static TABLE: AtomicPtr<DLPackExchangeAPI> = AtomicPtr::new(ptr::null_mut());
static MARKS: OnceLock<Marks> = OnceLock::new();

/// Where the values of an object are that its table described. Whatever the address, it may be an
/// offset to null: a part of zeros without memory.
#[inline(always)]
pub(crate) fn values(published: Published<'_, '_>, code: TypeCode) -> Values {
    if !ptr::eq(TABLE.load(Ordering::Acquire), published.table()) {
        return if may_be_conjugated(code) { Values::Unknown } else { Values::InMemory };
    }
    let Some(marks) = MARKS.get() else { return Values::Unknown };
    let object = published.object().as_ptr();
    // SAFETY: PyTorch's own table described the object, so it is a tensor of PyTorch (F5).
    let [is_conj, is_neg, is_zero] = marks
        .asks
        .map(|ask| move || unsafe { ask(object.cast::<u8>().wrapping_add(marks.offset).cast()) });
    if is_neg() {
        Values::Elsewhere(NEGATED)
    } else if may_be_conjugated(code) && is_conj() {
        Values::Elsewhere(CONJUGATED)
    } else if is_zero() {
        Values::Elsewhere(ZEROS)
    } else {
        Values::InMemory
    }
}

/// Whether a class is PyTorch's tensor class. Its table is then `table`, whose objects are not imported
/// before this returns.
#[cold]
pub(crate) fn prepare(
    class: &Bound<'_, PyType>,
    table: &'static DLPackExchangeAPI,
) -> Result<bool> {
    let py = class.py();
    let name = intern!(py, "torch");
    let Some(torch) = unless_refused(py, imported_module(name))?.flatten() else {
        return Ok(false);
    };
    let tensor = unless_refused(py, torch.getattr(intern!(py, "Tensor")))?;
    if !tensor.is_some_and(|tensor| tensor.is(class)) {
        return Ok(false);
    }
    if TABLE.load(Ordering::Acquire).is_null() {
        if let Some(marks) = unless_refused(py, Marks::find(&torch))?.flatten() {
            // Another thread may have found them as well.
            drop(MARKS.set(marks));
        }
        TABLE.store(ptr::from_ref(table).cast_mut(), Ordering::Release);
    }
    Ok(true)
}

impl Marks {
    /// The functions of this PyTorch; `None` if they are not the known ones.
    fn find(torch: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let py = torch.py();
        let (Some(asks), Some(head)) = (functions(), Head::measure(py)) else { return Ok(None) };
        let plain = torch.call_method1("zeros", (1,))?;
        let complex = torch.call_method1("complex", (&plain, &plain))?;
        let samples = [
            (torch.call_method1("conj", (complex,))?, [true, false, false]),
            (torch.call_method1("_neg_view", (&plain,))?, [false, true, false]),
            (torch.call_method1("_efficientzerotensor", ((1,),))?, [false, false, true]),
            (plain, [false; 3]),
        ];
        for (sample, _) in &samples {
            let size: usize = sample.get_type().getattr("__basicsize__")?.extract()?;
            let place = head.fields::<usize>(sample.as_ptr());
            let tensor: usize = sample.getattr("_cdata")?.extract()?;
            // SAFETY: within the object, whose size was asked for (F5).
            if size < head.size() + size_of::<usize>() || unsafe { place.read() } != tensor {
                return Ok(None);
            }
        }
        let are_right = samples.iter().all(|(sample, expected)| {
            // SAFETY: the place of an `at::Tensor`, a pointer to what `_cdata` says, and functions of
            // these names, which name their arguments (F5).
            asks.map(|ask| unsafe { ask(head.fields(sample.as_ptr())) }) == *expected
        });
        Ok(are_right.then_some(Self { offset: head.size(), asks }))
    }
}

/// The functions of the libtorch that is loaded.
#[cfg(target_os = "linux")]
fn functions() -> Option<[Ask; 3]> {
    use libloading::os::unix::{Library, RTLD_NOW};
    /// `RTLD_NOLOAD`: no library is loaded.
    const LOADED: std::ffi::c_int = 4;
    // SAFETY: loads nothing, so no code runs (F5).
    let library = unsafe { Library::open(Some("libtorch_cpu.so"), RTLD_NOW | LOADED) }.ok()?;
    let mut asks = NAMES.iter().filter_map(|name| {
        // SAFETY: the name names the type of the argument; the answer is compared (F5).
        unsafe { library.get::<Ask>(name.as_bytes()) }.ok().map(|ask| *ask)
    });
    Some([asks.next()?, asks.next()?, asks.next()?])
}

#[cfg(not(target_os = "linux"))]
fn functions() -> Option<[Ask; 3]> {
    let _ = NAMES;
    None
}
