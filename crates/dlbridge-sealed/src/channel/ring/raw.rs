//! The memory of rings: a page of counters, then the bytes.
//! Invariant: R4: memory that another process writes is copied, and never borrowed.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex};

use memmap2::MmapRaw;

use super::super::api::lock;
use super::super::raw::PeerSlot;
use super::super::wire::START;
use super::{Counter, ROOM};
use crate::raw::NewFile;

/// The ring of this end, which the other one only reads.
#[derive(Debug)]
pub(super) struct Mine {
    map: Arc<MmapRaw>,
    /// Of the thread that writes bytes.
    turn: Mutex<()>,
}

impl Mine {
    /// A ring, and its file for the other end. `None` where there is no memory for it.
    pub(super) fn create() -> Option<(Self, NewFile)> {
        let file = NewFile::create(START + ROOM as usize).ok()?;
        let map = file.map().ok()?.into_map();
        Some((Self { map, turn: Mutex::default() }, file))
    }

    pub(super) fn counter(&self, counter: Counter) -> &AtomicU32 {
        let place = self.map.as_mut_ptr().wrapping_add(counter as usize);
        // SAFETY: aligned, inside the mapping, which lives as long as `self` (R2). All that this process does there is
        // atomic.
        unsafe { AtomicU32::from_ptr(place.cast()) }
    }

    /// Copies bytes to a place of the ring.
    pub(super) fn put(&self, place: usize, bytes: &[u8]) {
        let _turn = lock(&self.turn);
        assert!(place + bytes.len() <= ROOM as usize, "a ring has room up to its end");
        let place = self.map.as_mut_ptr().wrapping_add(START + place);
        // SAFETY: inside the mapping (asserted, R2), of which no reference is made and which the thread with the lock
        // writes.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }
}

/// The ring of the other end.
#[derive(Debug)]
pub(super) struct Theirs(PeerSlot);

impl Theirs {
    /// A ring, if it has its size.
    pub(super) fn new(slot: PeerSlot) -> Option<Self> {
        (slot.room() == ROOM as usize).then_some(Self(slot))
    }

    /// What the other end wrote last. What it did before is seen after this call.
    pub(super) fn counter(&self, counter: Counter) -> u32 {
        let place = self.0.start().wrapping_sub(START).wrapping_add(counter as usize);
        // SAFETY: aligned, inside the mapping, whose size and pages stay (R2, F10). An atomic load that is relaxed may read
        // memory that this process cannot write.
        let number = unsafe { AtomicU32::from_ptr(place.cast()) }.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        number
    }

    /// Copies bytes from a place of the ring.
    pub(super) fn get(&self, place: usize, bytes: &mut [u8]) {
        assert!(place + bytes.len() <= ROOM as usize, "a ring has bytes up to its end");
        let place = self.0.start().wrapping_add(place);
        // SAFETY: inside the mapping (asserted), whose size and pages stay (R2, F10). The other end may write there meanwhile,
        // so that the bytes may have any value (R4, T6).
        unsafe { place.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) }
    }
}
