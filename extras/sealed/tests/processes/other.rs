//! Starts this program again as another process, and watches whether its memory is freed.

use std::fs;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::inotify;
use rustix::io::Errno;

/// Another process of this program, which is killed in the end.
pub(crate) struct Other {
    pub(crate) child: Child,
    pub(crate) socket: UnixStream,
}

impl Other {
    /// Starts a process that stops after a step.
    pub(crate) fn start(role: &str, last: &str) -> Self {
        let (socket, theirs) = UnixStream::pair().expect("sockets");
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "other_side", "--ignored", "--nocapture"])
            .env("DLBRIDGE_ROLE", role)
            .env("DLBRIDGE_LAST", last)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        Self { child, socket }
    }

    /// Waits for the byte of its last step, and skips the bytes that came with descriptors.
    pub(crate) fn wait(&mut self) {
        let mut done = [0];
        while done != *b"." {
            self.socket.read_exact(&mut done).expect("the last step");
        }
    }

    pub(crate) fn kill(self) {
        drop(self);
    }
}

/// A test that fails leaves no process.
impl Drop for Other {
    fn drop(&mut self) {
        self.child.kill().expect("a process");
        self.child.wait().expect("a process");
    }
}

/// Tests that open files of their own would change the counts of others.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kernel's word that a file is freed: no process has a descriptor or a mapping of it.
pub(crate) struct Watch(OwnedFd);

impl Watch {
    /// Watches the memory file that a process has.
    pub(crate) fn of(process: u32) -> Self {
        let folder = fs::read_dir(format!("/proc/{process}/fd")).expect("procfs");
        let mut paths = folder.map(|entry| entry.expect("a descriptor").path());
        let is_ours = |path: &PathBuf| {
            fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:dlbridge"))
        };
        let path = paths.find(is_ours).expect("a memory file");
        let inotify = inotify::init(inotify::CreateFlags::NONBLOCK).expect("inotify");
        inotify::add_watch(&inotify, path, inotify::WatchFlags::DELETE_SELF).expect("a watch");
        Self(inotify)
    }

    pub(crate) fn is_freed(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 256];
        match inotify::Reader::new(&self.0, &mut buffer).next() {
            Ok(event) => event.events().contains(inotify::ReadFlags::DELETE_SELF),
            Err(error) => {
                assert_eq!(error, Errno::AGAIN);
                false
            }
        }
    }
}
