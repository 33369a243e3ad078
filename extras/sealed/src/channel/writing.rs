//! The half of an end that sends: messages, and the ends of leases. It has no way to read.
//! Invariant: nothing waits, and after an error nothing is sent.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};

use dlbridge::Error;

use super::slots::UsedSlot;
use super::transport::{Outgoing, Transport};
use super::wire::{Head, Kind};
use crate::lock;

#[derive(Default, Debug)]
pub(super) struct Writer {
    outgoing: Outgoing,
    /// The slots whose descriptors the other end has.
    known: HashMap<u32, Weak<()>>,
    /// Why nothing more can be sent.
    end: Option<Error>,
}

impl Writer {
    /// Sends nothing if there is a fault.
    pub(super) fn new(fault: Option<Error>) -> Self {
        Self { end: fault, ..Self::default() }
    }

    /// Offers a message to the socket. Whether the socket took its first byte, and so takes the rest.
    pub(super) fn offer(
        &mut self,
        transport: &Transport,
        slot: &UsedSlot,
        lease: Option<u64>,
        texts: &[u8],
    ) -> Result<bool, Error> {
        let Self { outgoing, known, .. } = self;
        let (number, described) = (slot.slot().number, &*slot.plan.description);
        let head = |kind, lease, values| Head {
            described: described.len(),
            texts: texts.len(),
            values,
            ..Head::new(kind, number, lease)
        };
        let Some(lease) = lease else {
            let head = head(Kind::Inline, 0, slot.plan.len).encode();
            return slot.with_values(|values| {
                transport.send(outgoing, [&head, described, texts, values], None)
            });
        };
        if known.contains_key(&number) {
            let head = head(Kind::Lease, lease, 0).encode();
            return transport.send(outgoing, [&head, described, texts], None);
        }
        // The other end is told which slots are gone before it gets one more.
        let gone = known.iter().filter(|(_, alive)| alive.strong_count() == 0);
        let gone: HashSet<u32> = gone.map(|(&number, _)| number).collect();
        let forget = gone.iter().flat_map(|&number| Head::new(Kind::Forget, number, 0).encode());
        let forget: Vec<u8> = forget.collect();
        let head = head(Kind::LeaseNew, lease, 0).encode();
        let parts = [&forget, &head[..], described, texts];
        let is_taken = transport.send(outgoing, parts, Some(slot.as_fd()))?;
        if is_taken {
            known.retain(|number, _| !gone.contains(number));
            known.insert(number, Arc::downgrade(&slot.slot().alive));
        }
        Ok(is_taken)
    }

    /// Sends the rest of earlier frames, and the ends of leases. Whether nothing is left.
    pub(super) fn flush(
        &mut self,
        transport: &Transport,
        returns: &Mutex<Vec<u64>>,
    ) -> Result<bool, Error> {
        loop {
            if !transport.flush(&mut self.outgoing)? {
                return Ok(false);
            }
            let returns = std::mem::take(&mut *lock(returns));
            if returns.is_empty() {
                return Ok(true);
            }
            for lease in returns {
                self.outgoing.extend(Head::new(Kind::Return, 0, lease).encode());
            }
        }
    }

    /// Does work that writes, unless an earlier one failed.
    pub(super) fn unless_over(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        let written = self.end.clone().map_or_else(|| work(self), Err);
        written.inspect_err(|error| self.end = Some(error.clone()))
    }
}
