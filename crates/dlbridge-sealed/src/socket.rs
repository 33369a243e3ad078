//! Sends the descriptors of sealed files over Unix sockets, which the standard library cannot do yet.
//! A received file is checked like any other.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use dlbridge::Error;

use crate::{SealedTensors, refused, system};

/// A descriptor travels beside a byte at least.
const BYTE: [u8; 1] = [0];

impl SealedTensors {
    /// Sends the descriptor over a Unix socket, beside one byte. `socket.recv_fds` in Python takes it.
    ///
    /// ```
    /// use std::os::unix::net::UnixStream;
    ///
    /// use dlbridge::Tensor;
    /// use dlbridge_sealed::SealedTensors;
    ///
    /// let (here, there) = UnixStream::pair()?;
    /// SealedTensors::try_from(&Tensor::from(vec![1_i64, 2]))?.send(&here)?;
    ///
    /// // In the other process:
    /// let sealed = SealedTensors::receive(&there)?;
    /// assert_eq!(sealed.tensor("tensor")?.as_slice::<i64>()?, [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) with what the system says.
    pub fn send(&self, socket: impl AsFd) -> Result<(), Error> {
        send_file(socket, self)
    }

    /// Receives a descriptor and one byte, as [`send`](Self::send) or `socket.send_fds` in Python
    /// sends them, and checks the file.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) if anything but one descriptor arrives, and those of
    /// [`try_from`](Self::try_from).
    pub fn receive(socket: impl AsFd) -> Result<Self, Error> {
        let file = receive_file(socket)?;
        Self::open(file.ok_or_else(|| {
            refused("expected one descriptor, found the end of the stream".into())
        })?)
    }
}

pub(crate) fn send_file(socket: impl AsFd, file: impl AsFd) -> Result<(), Error> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    let descriptors = [file.as_fd()];
    // There is room for one, as `cmsg_space!` says.
    message.push(SendAncillaryMessage::ScmRights(&descriptors));
    let bytes = [IoSlice::new(&BYTE)];
    let sent = retry_on_intr(|| sendmsg(&socket, &bytes, &mut message, SendFlags::NOSIGNAL));
    sent.map(drop).map_err(|error| system("sendmsg", error))
}

/// The descriptor that was sent; `None` at the end of the stream.
pub(crate) fn receive_file(socket: impl AsFd) -> Result<Option<OwnedFd>, Error> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    let mut byte = BYTE;
    let mut bytes = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = retry_on_intr(|| recvmsg(&socket, &mut bytes, &mut message, flags));
    let received = received.map_err(|error| system("recvmsg", error))?;
    let mut files = message.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files: Vec<OwnedFd> = files.by_ref().flatten().collect();
    match <[OwnedFd; 1]>::try_from(files) {
        Ok([file]) => Ok(Some(file)),
        // `MSG_CTRUNC`: the kernel had no number for the descriptor.
        Err(_) if received.flags.contains(ReturnFlags::CTRUNC) => Err(refused(
            "expected room for one descriptor, found none: the process is at its limit of \
             descriptors (ulimit -n), or more than one was sent; close some, or raise the limit"
                .into(),
        )),
        Err(_) if received.bytes == 0 => Ok(None),
        Err(files) => Err(refused(format!("expected one descriptor, found {}", files.len()))),
    }
}
