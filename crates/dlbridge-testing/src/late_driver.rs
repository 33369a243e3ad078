//! A fake CUDA driver, for tests of the order of work on machines without a GPU. Its source is
//! `late_driver.c`. Another process loads it, so that this one stays as it is.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, process};

const SOURCE: &str = include_str!("late_driver.c");

/// A library that plays the CUDA driver, with streams that are as late as CUDA lets them be: what
/// is queued runs when a call waits for it, and not before. Memory that is freed is overwritten.
///
/// Code that forgets to order its work reads old values from it, every time; on a GPU it would
/// now and then. It has copies and fills, and no kernels. Nothing that it shows is said of a real
/// driver's errors, speed or contexts.
///
/// ```
/// use dlbridge_testing::LateDriver;
///
/// if let Some(_driver) = LateDriver::build_or_skip() {
///     // driver.rerun(&["--ignored"])
/// }
/// ```
#[derive(Debug)]
pub struct LateDriver {
    folder: PathBuf,
}

impl LateDriver {
    /// Builds the library with this machine's C compiler, in a new folder that is removed with it.
    ///
    /// # Errors
    ///
    /// Why there can be none here: another system than Linux, or no C compiler.
    ///
    /// # Panics
    ///
    /// If the folder cannot be written to, or the compiler refuses the library.
    pub fn build() -> Result<Self, String> {
        if !cfg!(target_os = "linux") {
            return Err("the driver is played on Linux alone".to_owned());
        }
        static BUILT: AtomicUsize = AtomicUsize::new(0);
        let (id, count) = (process::id(), BUILT.fetch_add(1, Ordering::Relaxed));
        let name = format!("dlbridge-late-driver-{id}-{count}");
        let driver = Self { folder: env::temp_dir().join(name) };
        fs::create_dir_all(&driver.folder).expect("a folder for temporary files");
        let source = driver.folder.join("late_driver.c");
        fs::write(&source, SOURCE).expect("a folder that may be written to");
        let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let mut command = Command::new(compiler);
        command.args(["-shared", "-fPIC", "-pthread", "-o"]);
        match command.arg(driver.library()).arg(&source).stdin(Stdio::null()).output() {
            Err(error) => Err(format!("no C compiler: {error}")),
            Ok(done) => {
                let said = String::from_utf8_lossy(&done.stderr);
                assert!(done.status.success(), "the C compiler refuses the library: {said}");
                Ok(driver)
            }
        }
    }

    /// The same for a test, which says why it is skipped where there can be none.
    ///
    /// # Panics
    ///
    /// As [`build`](Self::build).
    #[must_use]
    pub fn build_or_skip() -> Option<Self> {
        Self::build().inspect_err(|reason| println!("skipped: {reason}")).ok()
    }

    /// Where the library is, under the name that programs open.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.folder.join("libcuda.so.1")
    }

    /// Runs this very program again, with `arguments`, where it finds the library; gives what it
    /// printed.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn rerun(&self, arguments: &[&str]) -> String {
        self.rerun_forgetting("", arguments)
    }

    /// The same with a driver that does nothing when this function is called: what a test that has
    /// to fail then is shown to be good for.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn rerun_forgetting(&self, function: &str, arguments: &[&str]) -> String {
        let program = env::current_exe().expect("a program knows where it is");
        let path = env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command.args(arguments).env("LATE_DRIVER_FORGETS", function);
        command.env("LD_LIBRARY_PATH", search(&self.folder, &path));
        let done = command.output().expect("it ran before");
        String::from_utf8_lossy(&done.stdout).into_owned()
    }
}

impl Drop for LateDriver {
    fn drop(&mut self) {
        // What is left in a folder for temporary files is no test's failure.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The folder first, then where libraries were looked for before.
fn search(folder: &Path, path: &str) -> String {
    let separator = if path.is_empty() { "" } else { ":" };
    format!("{}{separator}{path}", folder.display())
}
