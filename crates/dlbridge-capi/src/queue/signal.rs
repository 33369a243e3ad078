//! A descriptor that can be read while a queue has something.
//! Invariant: one byte waits in it if, and only if, it is set.

#[cfg(not(unix))]
pub(super) use other::Signal;
#[cfg(unix)]
pub(super) use unix::Signal;

#[cfg(unix)]
mod unix {
    use std::ffi::c_int;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use crate::error::{Error, Result};

    #[derive(Debug)]
    pub(in super::super) struct Signal {
        read: UnixStream,
        write: UnixStream,
        is_set: bool,
    }

    impl Signal {
        pub(in super::super) fn new() -> Result<Self> {
            let refused = |error: std::io::Error| dlbridge::Error::Refused {
                by: "descriptor",
                reason: error.to_string(),
            };
            let (read, write) = UnixStream::pair().map_err(refused)?;
            for stream in [&read, &write] {
                stream.set_nonblocking(true).map_err(refused).map_err(Error::from)?;
            }
            Ok(Self { read, write, is_set: false })
        }

        pub(in super::super) fn descriptor(&self) -> c_int {
            self.read.as_raw_fd()
        }

        /// Neither can fail: there is room for one byte, and both ends are open.
        pub(in super::super) fn set(&mut self, is_set: bool) {
            let done = match (self.is_set, is_set) {
                (false, true) => self.write.write(&[1]),
                (true, false) => self.read.read(&mut [0]),
                _ => return,
            };
            if done.is_ok() {
                self.is_set = is_set;
            }
        }
    }
}

#[cfg(not(unix))]
mod other {
    use std::ffi::c_int;

    use crate::error::Result;

    /// Never made: this system has no descriptors for queues.
    #[derive(Debug)]
    pub(in super::super) enum Signal {}

    impl Signal {
        pub(in super::super) fn new() -> Result<Self> {
            let reason = "only Unix has descriptors for queues".to_owned();
            Err(dlbridge::Error::Refused { by: "descriptor", reason }.into())
        }

        pub(in super::super) fn descriptor(&self) -> c_int {
            match *self {}
        }

        pub(in super::super) fn set(&mut self, _: bool) {
            match *self {}
        }
    }
}
