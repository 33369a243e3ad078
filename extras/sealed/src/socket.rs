//! Descriptors through Unix sockets, which the standard library cannot send yet, and waiting for sockets.
//! A received file is checked like any other.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use dlbridge::Error;
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::{refused, system};

/// A descriptor travels beside a byte at least.
const BYTE: [u8; 1] = [0];
/// The most descriptors that one call receives.
const MOST: usize = 4;

/// Sends one byte with a descriptor.
pub(crate) fn send_file(socket: impl AsFd, file: impl AsFd) -> Result<(), Error> {
    let sent = send(socket, &[IoSlice::new(&BYTE)], Some(file.as_fd()), SendFlags::NOSIGNAL);
    sent.map(drop).map_err(|error| system("sendmsg", error))
}

/// The descriptor that was sent with a byte; `None` at the end of the stream.
pub(crate) fn receive_file(socket: impl AsFd) -> Result<Option<OwnedFd>, Error> {
    let mut files = Vec::new();
    let received = receive(socket, &mut BYTE.clone(), &mut files, RecvFlags::empty());
    let (bytes, is_cut) = received.map_err(|error| system("recvmsg", error))?;
    match <[OwnedFd; 1]>::try_from(files) {
        Ok([file]) => Ok(Some(file)),
        Err(_) if is_cut => Err(no_room()),
        Err(_) if bytes == 0 => Ok(None),
        Err(files) => Err(refused(format!("expected one descriptor, found {}", files.len()))),
    }
}

/// Sends bytes, and a descriptor with the first of them. The number of bytes.
pub(crate) fn send(
    socket: impl AsFd,
    parts: &[IoSlice<'_>],
    file: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.map(|file| [file]);
    if let Some(files) = &files {
        // There is room for one, as `cmsg_space!` says.
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    retry_on_intr(|| sendmsg(&socket, parts, &mut control, flags))
}

/// Receives bytes, and the descriptors that came with them. The number of bytes, and whether the kernel found no room for
/// a descriptor.
pub(crate) fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    files: &mut impl Extend<OwnedFd>,
    flags: RecvFlags,
) -> rustix::io::Result<(usize, bool)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [IoSliceMut::new(bytes)];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = retry_on_intr(|| recvmsg(&socket, &mut bytes, &mut control, flags))?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(found) = message {
            files.extend(found);
        }
    }
    Ok((received.bytes, received.flags.contains(ReturnFlags::CTRUNC)))
}

/// The error for a descriptor that was sent, and did not arrive.
pub(crate) fn no_room() -> Error {
    refused(format!(
        "expected room for a descriptor, found none: the process is at its limit of descriptors (ulimit -n), or more \
         than {MOST} were sent; close some, or raise the limit"
    ))
}

/// Waits until one of the sockets can be used or has an error, or so long. A signal ends it early as well. Whether one can.
pub(crate) fn wait(sockets: &[(BorrowedFd<'_>, PollFlags)], time: Duration) -> Result<bool, Error> {
    let fds = sockets.iter().map(|&(socket, events)| PollFd::from_borrowed_fd(socket, events));
    match poll(&mut fds.collect::<Vec<_>>(), Timespec::try_from(time).ok().as_ref()) {
        Ok(found) => Ok(found > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(system("poll", error)),
    }
}
