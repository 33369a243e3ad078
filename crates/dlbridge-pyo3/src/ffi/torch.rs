//! PyTorch's tensors, read by the functions of libtorch: the descriptor by its stable C shim, and the marks of tensors
//! whose memory does not hold their values (conjugated or negated lazily, zeros without memory), some of which the
//! exchange table and `__dlpack__` leave out. What an import does about a mark belongs to `import`.
//! Invariant: a function of libtorch is called only after it gave the right answers for known tensors, at the place in
//! the object where PyTorch's `_cdata` says that the tensor is.

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use dlbridge::protocol::table::{CONJUGATED, NEGATED, ZEROS, may_be_conjugated};
use dlbridge::sys::{
    DLDataType, DLDataTypeCode as Code, DLDevice, DLDeviceType, DLPackExchangeAPI, DLTensor,
};
use dlbridge::{Flags, TypeCode};
use libloading::Library;
use pyo3::Borrowed;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use super::borrow;
use super::class::{is_immutable, is_named, mro_of};
use super::published::Published;
use crate::error::unless_refused;
use crate::interpreter::head::Head;
use crate::interpreter::imported_module;
use crate::{Error, Result};

/// `bool at::native::is_neg(const at::Tensor&)`, for example, or a method of `c10::TensorImpl`.
type Ask = unsafe extern "C" fn(*const c_void) -> bool;

/// A function of the stable C shim, which writes its answer and returns 0; other numbers are failures.
type Get<T> = unsafe extern "C" fn(*mut c_void, *mut T) -> i32;

/// `is_conj`, `is_neg` and `_is_zerotensor` of `at::native`.
const NAMES: [&str; 3] = [
    "_ZN2at6native7is_conjERKNS_6TensorE",
    "_ZN2at6native6is_negERKNS_6TensorE",
    "_ZN2at6native14_is_zerotensorERKNS_6TensorE",
];

/// `c10::TensorImpl::requires_grad() const`.
const REQUIRES_GRAD: &str = "_ZNK3c1010TensorImpl13requires_gradEv";

/// What is known of the PyTorch that is loaded.
struct Functions {
    /// Where an object has its `at::Tensor`.
    offset: usize,
    asks: [Ask; 3],
    shim: Shim,
    requires_grad: Option<Ask>,
}

/// PyTorch's table, once [`FUNCTIONS`] was looked for.
static TABLE: AtomicPtr<DLPackExchangeAPI> = AtomicPtr::new(ptr::null_mut());
static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// A tensor of PyTorch: of its own class or one derived from it, and of a PyTorch whose functions are known.
#[derive(Clone, Copy)]
pub(crate) struct TorchTensor<'a, 'py>(Borrowed<'a, 'py, PyAny>);

impl<'a, 'py> TorchTensor<'a, 'py> {
    /// # Safety
    ///
    /// The object's type goes by the table of `torch.Tensor`, and derives from that class, for which [`prepare`] returned
    /// [`Class::Known`].
    #[inline(always)]
    pub(crate) unsafe fn new(object: Borrowed<'a, 'py, PyAny>) -> Self {
        Self(object)
    }

    /// The tensor with the exchange table of its class.
    #[inline(always)]
    pub(crate) fn published(self) -> Published<'a, 'py> {
        // SAFETY: not null, because it was found with the functions, and never freed (F6).
        let table = unsafe { &*TABLE.load(Ordering::Acquire) };
        // SAFETY: the duty of the caller of `new`.
        unsafe { Published::new(self.0, table) }
    }

    #[inline(always)]
    fn functions(self) -> Option<(&'static Functions, *mut c_void)> {
        let functions = FUNCTIONS.get()?;
        Some((functions, self.0.as_ptr().wrapping_byte_add(functions.offset).cast()))
    }

    /// Imports the tensor, as an argument of a call if it is `in_frame`; `None` if `__dlpack__` must be called. Reads by the
    /// stable C shim what the table would export, in less than half of the time. The table itself is not called, because it
    /// writes all C++ frames into the exception of a tensor that it refuses.
    #[inline]
    pub(crate) fn memory(self, in_frame: bool) -> Result<Option<borrow::Borrowed>> {
        let Some((functions, handle)) = self.functions() else { return Ok(None) };
        // From here on no Python code runs that could change the tensor.
        // SAFETY: the handle of a tensor of PyTorch (the duty of the caller of `new`; F5).
        let Some(descriptor) = (unsafe { functions.shim.read(handle) }) else { return Ok(None) };
        // SAFETY: the same.
        if let Some(why) = unsafe { functions.mark(handle, TypeCode(descriptor.dtype.code.0)) } {
            return Err(Error::buffer(why));
        }
        // SAFETY: the object keeps the memory that it describes (T3), as long as no code moves it (T12). PyTorch's own
        // export keeps no more: the tensor, not its storage.
        unsafe { borrow::Borrowed::of_object(self.0, &descriptor, Flags::NONE, in_frame) }.map(Some)
    }

    /// Whether the tensor requires grad; `None` if it must be asked. Runs no Python code.
    #[inline]
    pub(crate) fn requires_grad(self) -> Option<bool> {
        let (functions, handle) = self.functions()?;
        let ask = functions.requires_grad?;
        // SAFETY: an `at::Tensor` is a pointer to its `c10::TensorImpl` (the duty of the caller of `new`; F5).
        let tensor = unsafe { handle.cast::<*const c_void>().read() };
        // SAFETY: the same.
        Some(unsafe { ask(tensor) })
    }
}

impl Functions {
    /// Why the memory of a tensor does not hold its values, if it does not.
    ///
    /// # Safety
    ///
    /// The handle is that of a tensor of PyTorch.
    #[inline(always)]
    unsafe fn mark(&self, handle: *const c_void, code: TypeCode) -> Option<&'static str> {
        // SAFETY: the caller's duty.
        let [is_conj, is_neg, is_zero] = self.asks.map(|ask| move || unsafe { ask(handle) });
        if is_neg() {
            Some(NEGATED)
        } else if may_be_conjugated(code) && is_conj() {
            Some(CONJUGATED)
        } else if is_zero() {
            Some(ZEROS)
        } else {
            None
        }
    }
}

/// Whether the values of an object may not be in the memory that its table described, so that the object must be asked. A
/// table says nothing of the object: another class may publish that of PyTorch, and PyTorch's class that of another one.
#[inline(always)]
pub(crate) fn may_have_values_elsewhere(published: Published<'_, '_>, code: TypeCode) -> bool {
    may_be_conjugated(code) || ptr::eq(TABLE.load(Ordering::Acquire), published.table())
}

/// What is known of a class that publishes an exchange table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Other,
    /// `torch.Tensor`.
    Torch,
    /// `torch.Tensor`, of a PyTorch whose functions are known.
    Known,
    /// `torch.Tensor`, with another table than it had at the first sight.
    Replaced,
}

/// `torch.Tensor`, if a type derives from it: the class that derives from PyTorch's class in C. No class in Python is
/// immutable, so none has this layout but by deriving from it.
pub(crate) fn tensor_class<'py>(kind: &Bound<'py, PyType>) -> PyResult<Option<Bound<'py, PyType>>> {
    let mut derived = None;
    for class in mro_of(kind)? {
        if is_immutable(&class) && is_named(&class, |module| module == "torch._C", "TensorBase")? {
            return Ok(derived);
        }
        derived = Some(class);
    }
    Ok(None)
}

/// Whether a class is PyTorch's tensor class, not one that stands in its place in the module. Its table is then `table`,
/// whose objects are not imported before this returns.
#[cold]
pub(crate) fn prepare(
    class: &Bound<'_, PyType>,
    table: &'static DLPackExchangeAPI,
) -> Result<Class> {
    let py = class.py();
    let name = intern!(py, "torch");
    let Some(torch) = unless_refused(py, imported_module(name))?.flatten() else {
        return Ok(Class::Other);
    };
    if !is_tensor_class(class)? {
        return Ok(Class::Other);
    }
    if TABLE.load(Ordering::Acquire).is_null() {
        if let Some(functions) = unless_refused(py, Functions::find(&torch))?.flatten() {
            // Another thread may have found them as well.
            drop(FUNCTIONS.set(functions));
        }
        TABLE.store(ptr::from_ref(table).cast_mut(), Ordering::Release);
    }
    if !ptr::eq(TABLE.load(Ordering::Acquire), table) {
        return Ok(Class::Replaced);
    }
    Ok(if FUNCTIONS.get().is_some() { Class::Known } else { Class::Torch })
}

fn is_tensor_class(kind: &Bound<'_, PyType>) -> PyResult<bool> {
    Ok(tensor_class(kind)?.is_some_and(|tensor| tensor.is(kind)))
}

impl Functions {
    /// The functions of this PyTorch; `None` if they are not the known ones.
    fn find(torch: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let py = torch.py();
        let Some(head) = Head::measure(py) else { return Ok(None) };
        let Some(libraries) = Libraries::loaded() else { return Ok(None) };
        let Some(asks) = libraries.marks() else { return Ok(None) };
        let plain = zeros(torch)?;
        let complex = torch.call_method1("complex", (&plain, &plain))?;
        let samples = [
            (torch.call_method1("conj", (complex,))?, [true, false, false]),
            (torch.call_method1("_neg_view", (&plain,))?, [false, true, false]),
            (torch.call_method1("_efficientzerotensor", ((1,),))?, [false, false, true]),
            (plain, [false; 3]),
        ];
        for (sample, _) in &samples {
            // A mode of the program may have answered with something else, such as a fake tensor.
            if !is_tensor_class(&sample.get_type())? {
                return Ok(None);
            }
            let place = head.fields::<usize>(sample.as_ptr());
            let tensor: usize = sample.getattr("_cdata")?.extract()?;
            // SAFETY: within the object, which is a tensor of PyTorch (F5).
            if unsafe { place.read() } != tensor {
                return Ok(None);
            }
        }
        let are_right = samples.iter().all(|(sample, expected)| {
            // SAFETY: the place of an `at::Tensor`, a pointer to what `_cdata` says, and functions of
            // these names, which name their arguments (F5).
            asks.map(|ask| unsafe { ask(head.fields(sample.as_ptr())) }) == *expected
        });
        if !are_right {
            return Ok(None);
        }
        let [.., (plain, _)] = &samples;
        let Some(shim) = libraries.shim(torch)? else { return Ok(None) };
        // SAFETY: the place of an `at::Tensor` (above; F5).
        if !unsafe { shim.is_right(head.fields(plain.as_ptr())) } {
            return Ok(None);
        }
        let requires_grad = unless_refused(py, libraries.requires_grad(torch, head))?.flatten();
        Ok(Some(Self { offset: head.size(), asks, shim, requires_grad }))
    }
}

/// PyTorch's stable C shim: what it says of a tensor.
struct Shim {
    has_storage: Get<bool>,
    dtype: Get<i32>,
    device_type: Get<i32>,
    device_index: Get<i32>,
    ndim: Get<i64>,
    sizes: Get<*mut i64>,
    strides: Get<*mut i64>,
    data: Get<*mut c_void>,
    /// What PyTorch's devices "cuda" are: those of ROCm have this name as well.
    cuda: DLDeviceType,
}

/// The DLPack dtypes of PyTorch's numbers (`c10::ScalarType`), which never change. Zero bits mean that there is none.
static DTYPES: [DLDataType; 45] = {
    const fn of(code: Code, bits: u8) -> DLDataType {
        DLDataType { code, bits, lanes: 1 }
    }
    let mut types = [of(Code::INT, 0); 45];
    types[0] = of(Code::UINT, 8);
    types[1] = of(Code::INT, 8);
    types[2] = of(Code::INT, 16);
    types[3] = of(Code::INT, 32);
    types[4] = of(Code::INT, 64);
    types[5] = of(Code::FLOAT, 16);
    types[6] = of(Code::FLOAT, 32);
    types[7] = of(Code::FLOAT, 64);
    types[8] = of(Code::COMPLEX, 32);
    types[9] = of(Code::COMPLEX, 64);
    types[10] = of(Code::COMPLEX, 128);
    types[11] = of(Code::BOOL, 8);
    types[15] = of(Code::BFLOAT, 16);
    types[23] = of(Code::FLOAT8_E5M2, 8);
    types[24] = of(Code::FLOAT8_E4M3FN, 8);
    types[25] = of(Code::FLOAT8_E5M2FNUZ, 8);
    types[26] = of(Code::FLOAT8_E4M3FNUZ, 8);
    types[27] = of(Code::UINT, 16);
    types[28] = of(Code::UINT, 32);
    types[29] = of(Code::UINT, 64);
    types[44] = of(Code::FLOAT8_E8M0FNU, 8);
    types
};

/// PyTorch's numbers of devices (`c10::DeviceType`), which never change.
const CPU: i32 = 0;
const CUDA: i32 = 1;

impl Shim {
    /// The descriptor of a tensor with memory on the CPU or a CUDA device, of a dtype in [`DTYPES`]. A tensor that is
    /// sparse, of MKL-DNN or of a transform has no storage, a nested one no sizes.
    ///
    /// # Safety
    ///
    /// The handle is that of a tensor of PyTorch.
    #[inline(always)]
    unsafe fn read(&self, handle: *mut c_void) -> Option<DLTensor> {
        // SAFETY: the caller's duty; each function writes an answer of its type (F5).
        let has_storage = unsafe { answer(self.has_storage, handle, false) }?;
        // SAFETY: the same.
        let dtype = unsafe { answer(self.dtype, handle, -1) }?;
        // SAFETY: the same.
        let kind = unsafe { answer(self.device_type, handle, -1) }?;
        let dtype = *DTYPES.get(usize::try_from(dtype).ok()?)?;
        if !has_storage || dtype.bits == 0 {
            return None;
        }
        let device = match kind {
            CPU => DLDevice { device_type: DLDeviceType::CPU, device_id: 0 },
            CUDA => {
                // SAFETY: the same.
                let device_id = unsafe { answer(self.device_index, handle, -1) }?;
                DLDevice { device_type: self.cuda, device_id }
            }
            _ => return None,
        };
        // SAFETY: the same.
        let ndim = unsafe { answer(self.ndim, handle, -1) }?.try_into().ok()?;
        // SAFETY: the same.
        let shape = unsafe { answer(self.sizes, handle, ptr::null_mut()) }?;
        // SAFETY: the same.
        let strides = unsafe { answer(self.strides, handle, ptr::null_mut()) }?;
        // SAFETY: the same. It makes the copy of a tensor that is copied on the first write.
        let data = unsafe { answer(self.data, handle, ptr::null_mut()) }?;
        Some(DLTensor { data, device, ndim, dtype, shape, strides, byte_offset: 0 })
    }

    /// Whether the functions describe a tensor of [`zeros`].
    ///
    /// # Safety
    ///
    /// The handle is that of such a tensor.
    unsafe fn is_right(&self, handle: *mut c_void) -> bool {
        // SAFETY: the caller's duty.
        let Some(found) = (unsafe { self.read(handle) }) else { return false };
        // SAFETY: a list of as many numbers as axes (F5).
        let first = |list: *mut i64| !list.is_null() && unsafe { list.read() } == 1;
        found.ndim == 1
            && (found.dtype, found.device.device_type)
                == (DLDataType { code: Code::FLOAT, bits: 32, lanes: 1 }, DLDeviceType::CPU)
            && first(found.shape)
            && first(found.strides)
    }
}

/// The answer of a function of the shim; `None` if it failed.
///
/// # Safety
///
/// The handle is that of a tensor of PyTorch.
#[inline(always)]
unsafe fn answer<T>(get: Get<T>, handle: *mut c_void, mut space: T) -> Option<T> {
    // SAFETY: the caller's duty; a place for the answer (F5).
    let status = unsafe { get(handle, &raw mut space) };
    (status == 0).then_some(space)
}

/// A float32 tensor of one element, whatever the program's default dtype and device.
fn zeros<'py>(torch: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let keywords = PyDict::new(torch.py());
    keywords.set_item("dtype", torch.getattr("float32")?)?;
    keywords.set_item("device", "cpu")?;
    torch.call_method("zeros", (1,), Some(&keywords))
}

/// The libraries of PyTorch that are loaded.
struct Libraries {
    torch: Library,
    c10: Option<Library>,
}

impl Libraries {
    fn loaded() -> Option<Self> {
        Some(Self { torch: loaded("libtorch_cpu.so")?, c10: loaded("libc10.so") })
    }

    fn marks(&self) -> Option<[Ask; 3]> {
        // SAFETY: the name names the type of the argument; the answer is compared (F5).
        let find = |name: &str| unsafe { self.torch.get::<Ask>(name.as_bytes()) }.ok();
        let mut asks = NAMES.iter().filter_map(|name| find(name).map(|ask| *ask));
        Some([asks.next()?, asks.next()?, asks.next()?])
    }

    fn shim(&self, torch: &Bound<'_, PyAny>) -> PyResult<Option<Shim>> {
        let hip = torch.getattr("version")?.getattr("hip")?;
        let cuda = if hip.is_none() { DLDeviceType::CUDA } else { DLDeviceType::ROCM };
        let find = || {
            Some(Shim {
                has_storage: self.get("torch_has_storage")?,
                dtype: self.get("aoti_torch_get_dtype")?,
                device_type: self.get("aoti_torch_get_device_type")?,
                device_index: self.get("aoti_torch_get_device_index")?,
                ndim: self.get("aoti_torch_get_dim")?,
                sizes: self.get("aoti_torch_get_sizes")?,
                strides: self.get("aoti_torch_get_strides")?,
                data: self.get("aoti_torch_get_data_ptr")?,
                cuda,
            })
        };
        Ok(find())
    }

    /// A function of the shim, whose published header declares it with the type of the field that it is stored in.
    fn get<T>(&self, name: &str) -> Option<Get<T>> {
        // SAFETY: the type of the published header (F5).
        unsafe { self.torch.get::<Get<T>>(name.as_bytes()) }.ok().map(|get| *get)
    }

    /// [`REQUIRES_GRAD`], if it tells tensors that require grad from others.
    fn requires_grad(&self, torch: &Bound<'_, PyAny>, head: Head) -> PyResult<Option<Ask>> {
        let Some(c10) = &self.c10 else { return Ok(None) };
        // SAFETY: the name names the type of the argument; the answer is compared (F5).
        let Ok(ask) = (unsafe { c10.get::<Ask>(REQUIRES_GRAD.as_bytes()) }) else {
            return Ok(None);
        };
        let leaf = zeros(torch)?.call_method1("requires_grad_", (true,))?;
        for (sample, expected) in [(&zeros(torch)?, false), (&leaf, true)] {
            if !is_tensor_class(&sample.get_type())? {
                return Ok(None);
            }
            let place = head.fields::<*const c_void>(sample.as_ptr());
            // SAFETY: the place of an `at::Tensor`, as in the samples of `Functions::find` (F5).
            let tensor = unsafe { place.read() };
            // SAFETY: a `c10::TensorImpl`, and its method of this name (F5).
            if unsafe { ask(tensor) } != expected {
                return Ok(None);
            }
        }
        Ok(Some(*ask))
    }
}

/// A library that is loaded, by its name.
#[cfg(target_os = "linux")]
fn loaded(name: &str) -> Option<Library> {
    use libloading::os::unix;
    /// `RTLD_NOLOAD`: no library is loaded.
    const LOADED: std::ffi::c_int = 4;
    // SAFETY: loads nothing, so no code runs (F5).
    unsafe { unix::Library::open(Some(name), unix::RTLD_NOW | LOADED) }.ok().map(Library::from)
}

#[cfg(not(target_os = "linux"))]
fn loaded(_: &str) -> Option<Library> {
    None
}
