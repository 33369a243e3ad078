//! PyTorch's stable C shim, found in the library that is loaded.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use dlbridge::DType;
use libloading::Library;

use crate::Failure;
use crate::definition::Checked;

pub(super) type Code = i32;
pub(super) type Handle = *mut c_void;
pub(super) type Kernel = unsafe extern "C-unwind" fn(*mut u64, u64, u64);

macro_rules! shim {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the shim, by name (F5).
        #[derive(Debug)]
        pub(super) struct Shim {
            /// PyTorch's library, which stays open until the process ends.
            pub(super) library: Library,
            $(pub(super) $name: unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?,)*
            /// From PyTorch 2.13 on.
            pub(super) torch_delete_stable_ivalue: Option<unsafe extern "C-unwind" fn(*mut u64) -> Code>,
            /// The same: the text of the newest exception on this thread.
            torch_exception_get_what_without_backtrace:
                Option<unsafe extern "C-unwind" fn() -> *const c_char>,
        }

        impl Shim {
            /// # Safety
            ///
            /// The library is PyTorch's, which exports these functions with these types (F5).
            unsafe fn load(library: Library) -> Result<Self, Failure> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the caller's duty.
                        let found = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) };
                        *found.map_err(|_| Failure::new(concat!(
                            "expected PyTorch 2.10 or newer, found one without ", stringify!($name)
                        )))?
                    },)*
                    // SAFETY: as above.
                    torch_delete_stable_ivalue: unsafe { library.get(b"torch_delete_stable_ivalue\0") }
                        .ok().map(|found| *found),
                    torch_exception_get_what_without_backtrace:
                        // SAFETY: as above.
                        unsafe { library.get(b"torch_exception_get_what_without_backtrace\0") }
                        .ok().map(|found| *found),
                    library,
                })
            }
        }
    };
}

shim! {
    aoti_torch_abi_version() -> u64;
    aoti_torch_library_init_fragment(*const c_char, *const c_char, u32, *mut Handle) -> Code;
    aoti_torch_library_init_impl(*const c_char, *const c_char, *const c_char, u32, *mut Handle) -> Code;
    aoti_torch_library_def(Handle, *const c_char) -> Code;
    torch_library_impl(Handle, *const c_char, Kernel, u64) -> Code;
    aoti_torch_get_dim(Handle, *mut i64) -> Code;
    aoti_torch_get_sizes(Handle, *mut *const i64) -> Code;
    aoti_torch_get_strides(Handle, *mut *const i64) -> Code;
    aoti_torch_get_dtype(Handle, *mut i32) -> Code;
    aoti_torch_get_device_type(Handle, *mut i32) -> Code;
    aoti_torch_get_device_index(Handle, *mut i32) -> Code;
    aoti_torch_create_device_guard(i32, *mut Handle) -> Code;
    aoti_torch_delete_device_guard(Handle) -> Code;
    torch_get_const_data_ptr(Handle, *mut *const c_void) -> Code;
    torch_get_mutable_data_ptr(Handle, *mut *mut c_void) -> Code;
    aoti_torch_empty_strided(i64, *const i64, *const i64, i32, i32, i32, *mut Handle) -> Code;
    aoti_torch_copy_(Handle, Handle, i32) -> Code;
    aoti_torch_delete_tensor_object(Handle) -> Code;
    aoti_torch_check(bool, *const c_char, *const c_char, u32, *const c_char);
}

/// The newest PyTorch that this was tested with, as its C shim writes versions: 2.15. A newer one is promised no more.
const NEWEST: u64 = 0x020F << 48;

/// PyTorch's code of the CPU.
pub(super) const CPU: i32 = 0;
/// PyTorch's code of CUDA devices.
pub(super) const CUDA: i32 = 1;

static SHIM: OnceLock<Shim> = OnceLock::new();

/// PyTorch's codes of dtypes.
pub(super) const DTYPES: [(i32, DType); 20] = [
    (0, DType::U8),
    (1, DType::I8),
    (2, DType::I16),
    (3, DType::I32),
    (4, DType::I64),
    (5, DType::F16),
    (6, DType::F32),
    (7, DType::F64),
    (9, DType::COMPLEX64),
    (10, DType::COMPLEX128),
    (11, DType::BOOL),
    (15, DType::BF16),
    (23, DType::FLOAT8_E5M2),
    (24, DType::FLOAT8_E4M3FN),
    (25, DType::FLOAT8_E5M2FNUZ),
    (26, DType::FLOAT8_E4M3FNUZ),
    (27, DType::U16),
    (28, DType::U32),
    (29, DType::U64),
    (44, DType::FLOAT8_E8M0FNU),
];

/// Finds the functions in PyTorch's library, whose path this is.
///
/// # Errors
///
/// If PyTorch is too old for this operator.
pub(crate) fn load(operator: &Checked, library: &Path) -> Result<(), Failure> {
    let shim = match SHIM.get() {
        Some(shim) => shim,
        None => find(library)?,
    };
    let mut parameters = operator.parameters.iter();
    if shim.torch_delete_stable_ivalue.is_none() && parameters.any(|one| one.kind.is_optional()) {
        return Err(Failure::new("expected PyTorch 2.13 or newer, for an optional tensor"));
    }
    Ok(())
}

/// The functions of the PyTorch that was [loaded](load).
pub(super) fn loaded() -> Option<&'static Shim> {
    SHIM.get()
}

fn find(library: &Path) -> Result<&'static Shim, Failure> {
    // SAFETY: loaded by PyTorch already, so that no initialiser runs (F5).
    let opened = unsafe { Library::new(library) };
    let opened = opened.map_err(|error| Failure::new(format!("PyTorch's library: {error}")))?;
    // SAFETY: PyTorch's library (F5).
    let loaded = unsafe { Shim::load(opened) }?;
    Ok(SHIM.get_or_init(|| loaded))
}

pub(super) fn text(text: &str) -> Result<CString, Failure> {
    CString::new(text).map_err(|_| Failure::new("expected a name without NUL"))
}

pub(super) fn rejected(namespace: &str, name: &str, what: &str) -> Failure {
    Failure::new(format!("{namespace}::{name}: PyTorch rejects {what}"))
}

/// Throws PyTorch's exception, which passes through the frames of a kernel: "C-unwind".
pub(super) fn raise(shim: &Shim, message: &CStr) {
    let (name, file) = (c"dlbridge".as_ptr(), c"operator".as_ptr());
    // SAFETY: live texts (F2).
    unsafe { (shim.aoti_torch_check)(false, name, file, 0, message.as_ptr()) };
}

pub(super) fn handle(word: u64) -> Handle {
    ptr::with_exposed_provenance_mut(word as usize)
}

/// A tensor handle that is owned.
pub(super) struct Owned<'s>(pub(super) &'s Shim, pub(super) Handle);

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: owned, and deleted once (R7).
        let _ = unsafe { (self.0.aoti_torch_delete_tensor_object)(self.1) };
    }
}

impl Shim {
    /// The version for which kernels are written: that of the loaded PyTorch, or an older one that it still has.
    pub(super) fn version(&self) -> u64 {
        // SAFETY: may be called at any time (F5).
        unsafe { (self.aoti_torch_abi_version)() }.min(NEWEST)
    }

    /// What PyTorch says of the function that has just failed.
    pub(super) fn what(&self) -> String {
        let Some(what) = self.torch_exception_get_what_without_backtrace else {
            return "PyTorch before 2.13 does not say why".to_owned();
        };
        // SAFETY: may be called at any time (F5).
        let text = unsafe { what() };
        // SAFETY: a text that lives until the next exception on this thread (F5).
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// The error of a function that returned this code, in PyTorch's words.
    pub(super) fn check(&self, code: Code) -> Result<(), Failure> {
        if code == 0 { Ok(()) } else { Err(Failure::new(self.what())) }
    }

    /// Adds a kernel for a dispatch key.
    pub(super) fn add_kernel(
        &self,
        namespace: &str,
        name: &str,
        key: &CStr,
        kernel: Kernel,
    ) -> Result<(), Failure> {
        let (space, operator) = (text(namespace)?, text(name)?);
        let (mut kernels, file) = (ptr::null_mut(), c"dlbridge".as_ptr());
        // SAFETY: static and live texts, and a place to write to (F2, F5).
        let code = unsafe {
            (self.aoti_torch_library_init_impl)(space.as_ptr(), key.as_ptr(), file, 1, &mut kernels)
        };
        if code != 0 {
            return Err(rejected(namespace, name, "a library of kernels"));
        }
        // SAFETY: as above; the kernel has the type of this version (F5).
        let code = unsafe {
            (self.torch_library_impl)(kernels, operator.as_ptr(), kernel, self.version())
        };
        // The libraries are never deleted: that would remove the operator.
        if code == 0 { Ok(()) } else { Err(rejected(namespace, name, "the kernel")) }
    }
}
