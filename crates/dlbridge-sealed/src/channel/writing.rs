//! The half of a channel that writes frames, and what it gave to the other end.
//! Invariant: nothing here waits. What the socket does not take is kept, in order.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use dlbridge::Error;
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg};

use super::api::lock;
use super::end::Inner;
use super::held::Held;
use super::ring::Counter;
use super::wire::{Head, Kind};
use crate::{refused, system};

/// How many frames an end sends before it makes a ring, which costs 68 KiB and a few calls.
const OFFER: u64 = 16;

/// A file whose descriptor travels with a frame.
pub(super) trait File: AsFd + Debug + Send + Sync {}

impl<T: AsFd + Debug + Send + Sync> File for T {}

pub(super) type Sent = Option<Arc<dyn File>>;

#[derive(Default, Debug)]
pub(super) struct Writing {
    /// What the socket or the ring has not taken yet, and the file whose descriptor travels with its first byte.
    pub(super) rest: VecDeque<(Vec<u8>, Sent)>,
    frames: u64,
    /// Whether the other end was sent the ring of this one.
    is_offered: bool,
    pub(super) known: HashMap<u32, Weak<()>>,
    pub(super) next: u64,
}

#[derive(Default, Debug)]
pub(super) struct Given {
    /// With whether the other end has asked to keep it.
    pub(super) leases: HashMap<u64, (Arc<Held>, bool)>,
    pub(super) nbytes: usize,
    /// The bytes of sealed files that slots became, and that nothing returns.
    kept: usize,
}

impl Given {
    pub(super) fn give(&mut self, lease: u64, held: &Arc<Held>, quota: usize) -> Result<(), Error> {
        if self.nbytes + held.size() > quota {
            return Err(refused(format!(
                "expected a reader that keeps at most {quota} bytes, found {} messages of {} bytes that it \
                 has not returned; drop its channel, or send to it later",
                self.leases.len(),
                self.nbytes
            )));
        }
        self.nbytes += held.size();
        self.leases.insert(lease, (Arc::clone(held), false));
        Ok(())
    }

    pub(super) fn take_back(&mut self, lease: u64) -> Option<Arc<Held>> {
        let (held, _) = self.leases.remove(&lease)?;
        self.nbytes -= held.size();
        Some(held)
    }

    /// The slot of a lease that the other end asks to keep for the first time, and whether it may: it keeps
    /// at most `limit` bytes, since nothing says when it has freed them.
    pub(super) fn keep(&mut self, lease: u64, limit: usize) -> Option<(Arc<Held>, bool)> {
        let (held, is_asked) = self.leases.get_mut(&lease)?;
        if std::mem::replace(is_asked, true) {
            return None;
        }
        let kept = self.kept.saturating_add(held.size());
        let is_allowed = kept <= limit;
        if is_allowed {
            self.kept = kept;
        }
        Some((Arc::clone(held), is_allowed))
    }
}

impl Inner {
    /// Tells the other end of a lease, without waiting: from a drop, on any thread.
    pub(super) fn tell(&self, kind: Kind, lease: u64, file: Sent) {
        lock(&self.told).push((kind, lease, file));
        // Whoever holds the lock writes it, after what it writes now.
        while let Ok(mut writing) = self.writing.try_lock() {
            let _ = self.write_rest(&mut writing);
            let is_stuck = !writing.rest.is_empty();
            drop(writing);
            if is_stuck || lock(&self.told).is_empty() {
                break;
            }
        }
    }

    /// Tells the other end which slots are gone.
    pub(super) fn forget(&self, writing: &mut Writing) -> Result<(), Error> {
        let gone = writing.known.iter().filter(|(_, alive)| alive.strong_count() == 0);
        let gone: HashSet<u32> = gone.map(|(&slot, _)| slot).collect();
        writing.known.retain(|slot, _| !gone.contains(slot));
        gone.into_iter().try_for_each(|slot| {
            self.write(writing, Head::new(Kind::Forget, slot, 0), &[], &[], None)
        })
    }

    /// Makes the ring of this end, and tells the other one.
    pub(super) fn offer(&self) {
        if let Some(file) = self.rings.offer() {
            self.tell(Kind::Ring, 0, Some(file));
        }
    }

    /// Goes over to the ring, before the next frame. A frame of this size travels whole or not at all.
    fn switch(&self, writing: &Writing) -> Result<(), Error> {
        if writing.is_offered && self.rings.is_there() && !self.rings.writes.load(Ordering::Relaxed)
        {
            let frame = Head::new(Kind::Switch, 0, 0).encode();
            let written = self.write_socket(&[IoSlice::new(&frame)], None)?;
            self.rings.writes.store(written.is_some(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Wakes the other end if it has asked for that.
    pub(super) fn wake(&self, wish: Counter) {
        if !self.rings.is_asked(wish) {
            return;
        }
        if self.rings.writes.load(Ordering::Relaxed) {
            // A socket that is full wakes it as well, and one that is closed is found by the next look.
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let _ = send(&self.socket, &[0], flags);
        } else {
            // A frame that says nothing.
            self.tell(Kind::Forget, 0, None);
        }
    }

    /// Writes the rest of earlier frames and the ends of leases, as far as the socket takes them.
    pub(super) fn write_rest(&self, writing: &mut Writing) -> Result<(), Error> {
        loop {
            while let Some((bytes, file)) = writing.rest.front_mut() {
                let written = self.write_once(&[IoSlice::new(bytes)], file.as_deref())?;
                let Some(written) = written else { return Ok(()) };
                *file = None;
                if written == bytes.len() {
                    writing.rest.pop_front();
                } else {
                    bytes.drain(..written);
                }
            }
            self.switch(writing)?;
            let told = std::mem::take(&mut *lock(&self.told));
            if told.is_empty() {
                return Ok(());
            }
            for (kind, lease, file) in told {
                writing.is_offered |= kind == Kind::Ring;
                let frame = Head::new(kind, 0, lease).encode();
                match writing.rest.back_mut() {
                    Some((bytes, None)) if file.is_none() => bytes.extend(frame),
                    _ => writing.rest.push_back((frame.into(), file)),
                }
            }
        }
    }

    /// Writes a frame after what is left of others; what the socket does not take is left in turn.
    pub(super) fn write(
        &self,
        writing: &mut Writing,
        head: Head,
        description: &[u8],
        values: &[u8],
        file: Option<&Arc<Held>>,
    ) -> Result<(), Error> {
        writing.frames += 1;
        if writing.frames == OFFER {
            self.offer();
        }
        self.write_rest(writing)?;
        let head = head.encode();
        let parts = [&head[..], description, values];
        let written = if writing.rest.is_empty() {
            self.write_once(&parts.map(IoSlice::new), file.map(|file| &**file as &dyn File))?
        } else {
            None
        };
        let bytes = written.unwrap_or_default();
        if bytes < parts.iter().map(|part| part.len()).sum() {
            let rest = parts.concat().split_off(bytes);
            let file = file.filter(|_| written.is_none());
            writing.rest.push_back((rest, file.map(|file| Arc::clone(file) as Arc<dyn File>)));
        }
        Ok(())
    }

    /// The number of bytes that the socket or the ring took, with the descriptor; `None` if it is full.
    fn write_once(
        &self,
        bytes: &[IoSlice<'_>],
        file: Option<&dyn File>,
    ) -> Result<Option<usize>, Error> {
        if !self.rings.writes.load(Ordering::Relaxed) {
            return self.write_socket(bytes, file);
        }
        if self.rings.is_over.load(Ordering::Relaxed) {
            return Err(system("send", "the other end is closed"));
        }
        let is_sent = file.is_some();
        if is_sent && self.write_socket(&[IoSlice::new(&[0])], file)?.is_none() {
            return Ok(None);
        }
        let written = self.rings.write(bytes)?;
        self.wake(Counter::Bytes);
        Ok((is_sent || written > 0).then_some(written))
    }

    fn write_socket(
        &self,
        bytes: &[IoSlice<'_>],
        file: Option<&dyn File>,
    ) -> Result<Option<usize>, Error> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = file.map(|file| [file.as_fd()]);
        if let Some(files) = &files {
            control.push(SendAncillaryMessage::ScmRights(files));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            return match sendmsg(&self.socket, bytes, &mut control, flags) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(None),
                // Its leases end when what it sent before is read.
                Err(error @ (Errno::PIPE | Errno::CONNRESET)) => {
                    Err(system("sendmsg", format!("{error}: the other end is closed")))
                }
                sent => sent.map(Some).map_err(|error| system("sendmsg", error)),
            };
        }
    }
}
