//! A fake CUDA driver, for tests of the order of work on machines without a GPU. Its source is in
//! `fake_driver/`. A child process loads it, so that no other test of this process sees it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, process};

const SOURCES: [(&str, &str); 3] = [
    ("state.h", include_str!("fake_driver/state.h")),
    ("memory.h", include_str!("fake_driver/memory.h")),
    ("driver.c", include_str!("fake_driver/driver.c")),
];

/// A fake CUDA driver, as strict as the real one. Queued work runs as late as CUDA permits, and freed memory
/// is gone as early as that leaves it, so that code that forgets to order its work fails every time; on a GPU
/// it would fail now and then.
///
/// Calls without a current context, destroyed streams, forked children and captures of graphs behave as on
/// hardware. It has copies and fills, and no kernels. It shows nothing of a real driver's speed.
///
/// ```
/// use dlbridge_testing::FakeDriver;
///
/// if let Some(_driver) = FakeDriver::build_or_skip() {
///     // driver.rerun(&["--ignored"])
/// }
/// ```
#[derive(Debug)]
pub struct FakeDriver {
    folder: PathBuf,
}

impl FakeDriver {
    /// Builds the library with this machine's C compiler, in a new folder that is removed on drop.
    ///
    /// # Errors
    ///
    /// Why there can be none here: another system than Linux, or no C compiler.
    ///
    /// # Panics
    ///
    /// If the folder cannot be written to, or the compiler refuses the library.
    pub fn build() -> Result<Self, String> {
        Self::compiled(&[])
    }

    /// The same for a test, which prints why it is skipped where there can be none.
    ///
    /// # Panics
    ///
    /// As [`build`](Self::build).
    #[must_use]
    pub fn build_or_skip() -> Option<Self> {
        Self::build().inspect_err(|reason| println!("skipped: {reason}")).ok()
    }

    /// Like [`build_or_skip`](Self::build_or_skip), but a driver of CUDA 12.4, which has no
    /// `cuCtxRecordEvent`.
    ///
    /// # Panics
    ///
    /// As [`build`](Self::build).
    #[must_use]
    pub fn build_older_or_skip() -> Option<Self> {
        let built = Self::compiled(&["-DOLDER_DRIVER"]);
        built.inspect_err(|reason| println!("skipped: {reason}")).ok()
    }

    fn compiled(options: &[&str]) -> Result<Self, String> {
        if !cfg!(target_os = "linux") {
            return Err("the fake driver needs Linux".to_owned());
        }
        static BUILT: AtomicUsize = AtomicUsize::new(0);
        let (id, count) = (process::id(), BUILT.fetch_add(1, Ordering::Relaxed));
        let name = format!("dlbridge-fake-driver-{id}-{count}");
        let driver = Self { folder: env::temp_dir().join(name) };
        fs::create_dir_all(&driver.folder).expect("a folder for temporary files");
        for (name, source) in SOURCES {
            fs::write(driver.folder.join(name), source).expect("a folder that may be written to");
        }
        let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let mut command = Command::new(compiler);
        command.args(["-shared", "-fPIC", "-pthread", "-o"]).arg(driver.library());
        command.args(options).arg(driver.folder.join("driver.c")).stdin(Stdio::null());
        match command.output() {
            Err(error) => Err(format!("no C compiler: {error}")),
            Ok(done) => {
                let said = String::from_utf8_lossy(&done.stderr);
                assert!(done.status.success(), "the C compiler refuses the library: {said}");
                Ok(driver)
            }
        }
    }

    /// The path of the library, whose file name is the one that programs open.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.folder.join("libcuda.so.1")
    }

    /// Runs the current program again in a child process that finds the library, one test after the other: a test that
    /// waits for the device runs what another one has queued. Returns what it printed.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn rerun(&self, arguments: &[&str]) -> String {
        self.rerun_with(&[], arguments)
    }

    /// Like [`rerun`](Self::rerun), with environment variables of the driver: `FAKE_DRIVER_FORGETS` names a
    /// function that does nothing, which shows what a test is good for; `FAKE_DRIVER_FAILS` one that fails;
    /// `FAKE_DRIVER_LOG` a file that gets a line for each call; `FAKE_DRIVER_DEVICES` is the number of devices.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn rerun_with(&self, variables: &[(&str, &str)], arguments: &[&str]) -> String {
        let program = env::current_exe().expect("a program knows where it is");
        let path = env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command.args(arguments).env("RUST_TEST_THREADS", "1");
        command.env("FAKE_DRIVER_FORGETS", "").envs(variables.iter().copied());
        command.env("LD_LIBRARY_PATH", search(&self.folder, &path));
        let done = command.output().expect("it ran before");
        let [printed, errors] =
            [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        printed + &errors
    }
}

impl Drop for FakeDriver {
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
