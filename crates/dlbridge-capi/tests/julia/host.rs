//! A Julia in this process, with the package loaded.
//! What is exchanged does not belong here.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

const QUESTIONS: &str = "\
using Libdl
println(first(path for path in Libdl.dllist() if occursin(r\"/libjulia\\.(so|dylib)\", path)))
println(Sys.BINDIR)
println(unsafe_string(Base.JLOptions().image_file))
println(join(DEPOT_PATH, ':'))
";

/// A running Julia, on the main thread.
pub(crate) struct Host {
    library: Library,
}

macro_rules! call {
    ($host:expr, $($name:literal)|+, ($($value:expr),*) as fn($($kind:ty),*) $(-> $result:ty)?) => {{
        let names = [$(concat!($name, "\0")),+];
        let function = names.iter().find_map(|name| {
            // SAFETY: the type is that of Julia's headers.
            unsafe { $host.library.get::<unsafe extern "C" fn($($kind),*) $(-> $result)?>(name.as_bytes()) }.ok()
        });
        let function = function.expect(names[0]);
        // SAFETY: on the thread that started Julia, with texts that end with a zero.
        unsafe { function($($value),*) }
    }};
}

impl Host {
    /// Starts Julia, or tells why there is none.
    pub(crate) fn start() -> Result<Self, String> {
        let julia = std::env::var_os("DLBRIDGE_JULIA").unwrap_or_else(|| "julia".into());
        let mut command = Command::new(julia);
        let output = command.args(["--startup-file=no", "-e", QUESTIONS]).output();
        let output = output.map_err(|error| format!("no Julia: {error}"))?;
        if !output.status.success() {
            return Err(format!("no Julia: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let answers = String::from_utf8(output.stdout).unwrap();
        let mut answers = answers.lines();
        let mut next = || answers.next().unwrap_or_default();
        let (library, binaries, image, depot) = (next(), next(), next(), next());
        // SAFETY: nobody else reads the environment: this program has one thread so far.
        unsafe { std::env::set_var("JULIA_DEPOT_PATH", depot) };
        // SAFETY: libjulia does nothing before it is started.
        let library = unsafe { Library::open(Some(library), RTLD_NOW | RTLD_GLOBAL) };
        let library = library.map_err(|error| format!("no libjulia: {error}"))?;
        let host = Self { library };
        let (binaries, image) = (CString::new(binaries).unwrap(), CString::new(image).unwrap());
        call!(
            host,
            "jl_init_with_image" | "jl_init_with_image__threading",
            (binaries.as_ptr(), image.as_ptr()) as fn(*const c_char, *const c_char)
        );
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../julia/DLBridge");
        host.run(&format!(
            "ENV[\"DLBRIDGE_LIBRARY\"] = {:?}; pushfirst!(LOAD_PATH, {:?}); using DLBridge",
            library_path(),
            package
        ));
        Ok(host)
    }

    /// Runs statements at the top level; a Julia exception is a panic.
    pub(crate) fn run(&self, code: &str) {
        let code = format!("try\n{code}\ntrue\ncatch error\nshowerror(stderr, error)\nfalse\nend");
        // A Julia literal, in which `$` would mean something.
        let literal = format!("{code:?}").replace('$', "\\$");
        let guarded = CString::new(format!("Base.include_string(Main, {literal})::Bool"));
        let text = guarded.unwrap();
        let answer =
            call!(self, "jl_eval_string", (text.as_ptr()) as fn(*const c_char) -> *mut c_void);
        assert!(!answer.is_null(), "Julia raised at: {code}");
        let answer = call!(self, "jl_unbox_bool", (answer) as fn(*mut c_void) -> i8);
        assert_eq!(answer, 1, "Julia raised at: {code}");
    }

    /// Runs Julia's exit hooks.
    pub(crate) fn finish(self) {
        call!(self, "jl_atexit_hook", (0) as fn(c_int));
        // Julia's own threads may still be in it.
        std::mem::forget(self.library);
    }
}

/// The shared library that cargo built beside this program.
fn library_path() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let name = format!("libdlbridge_capi{}", std::env::consts::DLL_SUFFIX);
    let mut found = program.ancestors().skip(1).take(2).map(|folder| folder.join(&name));
    found.find(|path| path.is_file()).expect("cargo has built the library")
}
