//! The libraries of the running process, in which Python's functions are looked up.
//! Which functions those are does not belong here (see `api`).

#[cfg(unix)]
pub(super) use libloading::os::unix::Library;
#[cfg(windows)]
pub(super) use libloading::os::windows::Library;

use super::absent::Absent;

/// Calls `read` with the library that stands for the global names of the process.
#[cfg(unix)]
pub(super) fn search<T>(read: impl Fn(&Library) -> Result<T, Absent>) -> Result<T, Absent> {
    use std::sync::OnceLock;

    // Opened once: its handle also finds libraries that are loaded later.
    static PROCESS: OnceLock<Library> = OnceLock::new();
    read(PROCESS.get_or_init(Library::this))
}

/// Calls `read` with each DLL of the process until it succeeds; that DLL stays loaded. Windows has no
/// global names. DLLs are told apart by their functions, because the file is named `python312.dll`,
/// `python314t.dll` or `libpython3.12.dll`. `python3.dll` forwards only the stable ABI.
#[cfg(windows)]
pub(super) fn search<T>(read: impl Fn(&Library) -> Result<T, Absent>) -> Result<T, Absent> {
    let mut absent = Absent::Nowhere;
    for library in windows::modules().into_iter().filter_map(windows::retain) {
        match read(&library) {
            Ok(found) => {
                std::mem::forget(library);
                return Ok(found);
            }
            Err(reason) if absent == Absent::Nowhere => absent = reason,
            Err(_) => {}
        }
    }
    Err(absent)
}

#[cfg(windows)]
mod windows {
    use std::ffi::c_void;
    use std::ptr;

    use super::Library;

    /// A DLL's address, as `HMODULE` in `windef.h`.
    type Module = *mut c_void;

    // As `libloaderapi.h`, `processthreadsapi.h` and `psapi.h` declare them.
    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GetCurrentProcess() -> *mut c_void;
        fn GetModuleHandleExW(flags: u32, address: *const u16, module: *mut Module) -> i32;
        fn K32EnumProcessModules(
            process: *mut c_void,
            modules: *mut Module,
            size: u32,
            needed: *mut u32,
        ) -> i32;
    }

    /// `GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS`.
    const FROM_ADDRESS: u32 = 4;

    /// The DLLs that are loaded now; none on failure.
    pub(super) fn modules() -> Vec<Module> {
        let mut modules = vec![ptr::null_mut(); 256];
        loop {
            let Ok(size) = u32::try_from(size_of_val(modules.as_slice())) else {
                return Vec::new();
            };
            let mut needed = 0;
            // SAFETY: the function takes no arguments (F5).
            let process = unsafe { GetCurrentProcess() };
            // SAFETY: `modules` has `size` bytes, and both outlive the call (F2, F5).
            let done =
                unsafe { K32EnumProcessModules(process, modules.as_mut_ptr(), size, &mut needed) };
            if done == 0 {
                return Vec::new();
            }
            let count = needed as usize / size_of::<Module>();
            if count <= modules.len() {
                modules.truncate(count);
                return modules;
            }
            // DLLs may be loaded between two calls.
            modules.resize(count + 64, ptr::null_mut());
        }
    }

    /// A reference to the DLL at this address; `None` if it was unloaded in the meantime.
    pub(super) fn retain(address: Module) -> Option<Library> {
        let mut module = ptr::null_mut();
        // SAFETY: with this flag any address may be asked for, and it is not read (F5).
        let found = unsafe { GetModuleHandleExW(FROM_ADDRESS, address.cast(), &mut module) };
        // SAFETY: the call above acquired the reference that the library releases (R7).
        (found != 0).then(|| unsafe { Library::from_raw(module as isize) })
    }
}
