//! Frames that travel through memory, without a call of the system: each end has a page of counters and a ring of bytes,
//! which it writes and the other end reads.
//! Invariant: no memory is written by two processes, and a number of the other end is compared before it is used.

mod raw;

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, OnceLock};

use dlbridge::Error;

use self::raw::{Mine, Theirs};
use super::raw::PeerSlot;
use super::wire::broken;
use crate::raw::NewFile;

/// The bytes of a ring, a power of two.
const ROOM: u32 = 64 << 10;
/// How often a call looks at the other end's counters before it sleeps: as long as falling asleep and waking take.
const LOOKS: usize = 100;

/// A counter of an end, by its place in the page. Each wraps around.
#[derive(Clone, Copy)]
pub(super) enum Counter {
    /// The bytes that it wrote to its ring.
    Written = 0,
    /// The bytes that it read from the ring of the other end.
    Read = 64,
    /// How often it asked to be woken by bytes.
    Bytes = 128,
    /// How often it asked to be woken by room.
    Room = 192,
}

/// The rings of both ends, once each has the other's.
#[derive(Default, Debug)]
pub(super) struct Rings {
    mine: OnceLock<Option<Mine>>,
    theirs: OnceLock<Theirs>,
    /// Whether the frames to the other end are in this end's ring, and those from it in its ring.
    pub(super) writes: AtomicBool,
    pub(super) reads: AtomicBool,
    /// Whether the stream has ended.
    pub(super) is_over: AtomicBool,
    /// The last wishes of the other end that were fulfilled.
    woken: [AtomicU32; 2],
    /// How many threads of this process sleep.
    pub(super) sleepers: AtomicU32,
}

impl Rings {
    /// Makes the ring of this end, once: its file, for the other end.
    pub(super) fn offer(&self) -> Option<Arc<NewFile>> {
        let mut new = None;
        self.mine.get_or_init(|| {
            let (mine, file) = Mine::create()?;
            new = Some(Arc::new(file));
            Some(mine)
        });
        new
    }

    /// Takes the ring of the other end.
    pub(super) fn accept(&self, slot: PeerSlot) -> Result<(), Error> {
        let size = slot.room();
        let set = Theirs::new(slot).and_then(|theirs| self.theirs.set(theirs).ok());
        set.ok_or_else(|| broken(format!("a ring of {size} bytes, or one more")))
    }

    fn both(&self) -> Option<(&Mine, &Theirs)> {
        Some((self.mine.get()?.as_ref()?, self.theirs.get()?))
    }

    /// Whether each end has the other's ring.
    pub(super) fn is_there(&self) -> bool {
        self.both().is_some()
    }

    /// Whether bytes came through the ring that were not read.
    pub(super) fn has_bytes(&self) -> bool {
        self.reads.load(Ordering::Relaxed)
            && self.both().is_some_and(|(mine, theirs)| {
                theirs.counter(Counter::Written)
                    != mine.counter(Counter::Read).load(Ordering::Relaxed)
            })
    }

    /// Whether the ring of this end takes bytes.
    pub(super) fn has_room(&self) -> bool {
        self.both().is_some_and(|(mine, theirs)| {
            let written = mine.counter(Counter::Written).load(Ordering::Relaxed);
            written.wrapping_sub(theirs.counter(Counter::Read)) != ROOM
        })
    }

    /// Copies bytes from the ring of the other end: how many.
    pub(super) fn read(&self, bytes: &mut [u8]) -> Result<usize, Error> {
        let Some((mine, theirs)) = self.both() else { return Ok(0) };
        let read = mine.counter(Counter::Read);
        let from = read.load(Ordering::Relaxed);
        let there = theirs.counter(Counter::Written).wrapping_sub(from);
        if there > ROOM {
            return Err(broken(format!("{there} bytes in a ring of {ROOM}")));
        }
        let len = bytes.len().min(there as usize);
        let (first, rest) = bytes[..len].split_at_mut(len.min(until_end(from)));
        theirs.get((from % ROOM) as usize, first);
        theirs.get(0, rest);
        read.store(from.wrapping_add(len as u32), Ordering::Release);
        Ok(len)
    }

    /// Copies bytes to the ring of this end: how many it took.
    pub(super) fn write(&self, parts: &[IoSlice<'_>]) -> Result<usize, Error> {
        let Some((mine, theirs)) = self.both() else { return Ok(0) };
        let written = mine.counter(Counter::Written);
        let mut to = written.load(Ordering::Relaxed);
        let start = to;
        let full = to.wrapping_sub(theirs.counter(Counter::Read));
        let mut room = ROOM
            .checked_sub(full)
            .ok_or_else(|| broken(format!("{full} bytes that are not read in a ring of {ROOM}")))?
            as usize;
        for part in parts {
            let part = &part[..part.len().min(room)];
            room -= part.len();
            let (first, rest) = part.split_at(part.len().min(until_end(to)));
            mine.put((to % ROOM) as usize, first);
            mine.put(0, rest);
            to = to.wrapping_add(part.len() as u32);
        }
        written.store(to, Ordering::Release);
        Ok(to.wrapping_sub(start) as usize)
    }

    /// Asks the other end to wake this one. What it did before is looked for after this call.
    pub(super) fn ask(&self, wish: Counter) {
        if let Some((mine, _)) = self.both() {
            mine.counter(wish).fetch_add(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }

    /// Whether the other end has asked to be woken since it was last, after a counter was set that it waits for.
    pub(super) fn is_asked(&self, wish: Counter) -> bool {
        let Some((_, theirs)) = self.both() else { return false };
        fence(Ordering::SeqCst);
        let wished = theirs.counter(wish);
        self.woken[usize::from(matches!(wish, Counter::Room))].swap(wished, Ordering::Relaxed)
            != wished
    }
}

/// The bytes of a ring from this place on.
fn until_end(place: u32) -> usize {
    (ROOM - place % ROOM) as usize
}

/// Whether something happens in the time that falling asleep and waking take.
pub(super) fn soon(happens: impl Fn() -> bool) -> bool {
    (0..LOOKS).any(|_| {
        std::hint::spin_loop();
        happens()
    })
}
