//! Target `channel`, first half: a hostile peer of a channel, which sends frames of any kind with any descriptors, and returns leases
//! that it has, or has not. The model says which frame closes the channel, and what each message holds. The second half is in
//! `ends.rs`: two honest ends.
//! Invariant: the model knows all that was sent and received; it parses no byte of it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use dlbridge::{DType, Flags, MAX_NDIM};
use dlbridge_sealed::{Channel, Message, Pool};
use rustix::cmsg_space;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::input::Input;
use crate::{ends, model};

const INLINE: u32 = 1;
const LEASE: u32 = 2;
const NEW: u32 = 3;
const RETURN: u32 = 4;
const FORGET: u32 = 5;
/// Descriptors that one call of a channel takes; not twice as many.
const FILES: usize = 4;
/// The bytes of a small file.
const PAGE: usize = 4096;
const ALIGN: u64 = 64;
const SEALS: [SealFlags; 3] = [SealFlags::SHRINK, SealFlags::GROW, SealFlags::FUTURE_WRITE];
/// A message of the channel that travels as a lease, and the memory for some.
const SIZE: i64 = 20_000;
const LIMIT: usize = 100_000;
const STEPS: usize = 12;
const NO_TIME: Duration = Duration::ZERO;

/// A tensor as a description tells of it.
#[derive(Clone, Debug)]
struct Told {
    name: Vec<u8>,
    dtype: DType,
    shape: Vec<i64>,
    offset: u64,
}

/// What the channel is to know, by all that the peer sent.
#[derive(Default)]
struct Model {
    /// Descriptors that no frame took: the bytes for values, if it is a slot.
    files: VecDeque<Option<usize>>,
    /// The bytes for values, and whether there is a lease.
    slots: HashMap<u32, (usize, bool)>,
    /// The leases of the peer.
    given: HashSet<u64>,
    next: u64,
}

/// A message: its tensors, and the bytes that their offsets are in.
type Wanted = (Vec<Told>, Vec<u8>);

/// What a frame does.
enum Outcome {
    Nothing,
    Received(Wanted, Option<u32>),
    Closed,
}

/// Lets one peer speak to a channel.
///
/// # Panics
///
/// If the channel accepts or rejects a frame otherwise than the model, or a tensor differs.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    if input.rarely(2) {
        return ends::run(&mut input);
    }
    let (socket, peer) = UnixStream::pair().expect("sockets");
    let pool = Pool::new(LIMIT);
    let channel = Channel::with_pool(socket, &pool, usize::MAX, input.rarely(4));
    let (mut model, mut held) = (Model::default(), Vec::<(Message, Option<u32>)>::new());
    for _ in 0..=input.below(STEPS) {
        match input.below(8) {
            0 => model.send(&channel),
            1 if !held.is_empty() => {
                let (message, slot) = held.swap_remove(input.below(held.len()));
                drop(message);
                if let Some((_, is_leased)) = slot.and_then(|slot| model.slots.get_mut(&slot)) {
                    *is_leased = false;
                }
            }
            _ => match model.speak(&mut input, &peer) {
                Outcome::Nothing => assert!(!channel.wait(NO_TIME).expect("open")),
                Outcome::Received(wanted, slot) => {
                    assert!(channel.wait(NO_TIME).expect("open"), "nothing came");
                    let message = channel.receive().expect("a frame").expect("a message");
                    compare(&message, &wanted);
                    held.push((message, slot));
                }
                Outcome::Closed => return expect_closed(&channel, &held),
            },
        }
        assert_eq!(channel.kept().0, model.given.len());
    }
    if input.rarely(4) {
        // A frame that ends early.
        let frame = [INLINE.to_ne_bytes(), [255, 0, 0, 0]].concat();
        let len = 1 + input.below(frame.len());
        send(&peer, &frame[..len], &[]);
        drop(peer);
        return expect_closed(&channel, &held);
    }
    drop(peer);
    assert!(channel.receive().expect("the end").is_none());
}

fn expect_closed(channel: &Channel, held: &[(Message, Option<u32>)]) {
    assert!(channel.wait(NO_TIME).expect("a socket"), "not closed");
    let error = channel.receive().map(|_| ()).expect_err("closed");
    assert_eq!(channel.receive().map(|_| ()), Err(error));
    assert_eq!(channel.kept(), (0, 0));
    for (message, _) in held {
        for name in message.names() {
            message.to_owned(name).expect("messages stay");
        }
    }
}

impl Model {
    /// The channel sends a message, if it has the memory.
    fn send(&mut self, channel: &Channel) {
        let x: [(&str, DType, &[i64]); 1] = [("x", DType::U8, &[SIZE])];
        if let Ok(loan) = channel.loan_timeout(&x, NO_TIME) {
            loan.send().expect("open");
            self.next += 1;
            self.given.insert(self.next);
        }
    }

    /// The peer sends a frame.
    fn speak(&mut self, input: &mut Input<'_>, peer: &UnixStream) -> Outcome {
        let kinds = [INLINE, LEASE, NEW, NEW, RETURN, RETURN, FORGET, INLINE];
        let kind = if input.rarely(16) { input.below(8) as u32 } else { input.one_of(&kinds) };
        let (slot, lease) = (input.below(4) as u32, input.below(6) as u64);
        let told: Vec<Told> = (0..input.below(4)).map(|i| tell(input, i)).collect();
        let mut described: Vec<u8> = told.iter().flat_map(describe).collect();
        let cut = if input.rarely(16) { (1 + input.below(8)).min(described.len()) } else { 0 };
        described.truncate(described.len() - cut);
        let count = if input.rarely(8) { 16_000 } else { input.below(300) };
        let values: Vec<u8> = (0..count).map(|i| i as u8).collect();
        // Mostly one where one is needed.
        let count = usize::from(kind == NEW);
        let count =
            if input.rarely(8) { input.one_of(&[0, 1, 2, FILES, 2 * FILES]) } else { count };
        let files: Vec<_> = (0..count).map(|_| file(input)).collect();
        let texts = [1_u32.to_ne_bytes(), *b"k\x01\0\0"].concat();
        let texts = if input.rarely(4) { [&texts[..], &[0, b'v']].concat() } else { Vec::new() };
        let sizes = [described.len(), texts.len(), values.len()].map(|size| size as u32);
        let mut frame: Vec<u8> = [kind, sizes[0], sizes[1], sizes[2], slot, 0]
            .iter()
            .flat_map(|number| number.to_ne_bytes())
            .collect();
        frame.extend(lease.to_ne_bytes());
        frame.extend(&described);
        frame.extend(&texts);
        frame.extend(&values);
        let borrowed: Vec<_> = files.iter().map(|(file, _)| file.as_fd()).collect();
        send(peer, &frame, &borrowed);
        self.files.extend(files.iter().map(|(_, room)| *room));
        if files.len() > FILES {
            return Outcome::Closed;
        }
        self.judge(kind, slot, lease, (cut == 0).then_some(told), values)
    }

    fn judge(
        &mut self,
        kind: u32,
        slot: u32,
        lease: u64,
        told: Option<Vec<Told>>,
        values: Vec<u8>,
    ) -> Outcome {
        let is_valid = |size: usize| {
            told.as_ref().is_some_and(|all| are_apart(all) && all.iter().all(|one| fits(one, size)))
        };
        let is_fine = match kind {
            INLINE if is_valid(values.len()) => {
                return Outcome::Received((told.unwrap_or_default(), values), None);
            }
            LEASE | NEW => {
                let is_known = self.slots.contains_key(&slot);
                if kind == NEW {
                    match self.files.pop_front().flatten() {
                        Some(room) if !is_known => drop(self.slots.insert(slot, (room, false))),
                        _ => return Outcome::Closed,
                    }
                }
                match self.slots.get_mut(&slot) {
                    Some((room, is_leased)) if is_valid(*room) && !*is_leased => {
                        *is_leased = true;
                        let bytes = (0..*room).map(|i| i as u8).collect();
                        return Outcome::Received((told.unwrap_or_default(), bytes), Some(slot));
                    }
                    _ => false,
                }
            }
            RETURN => self.given.remove(&lease),
            FORGET => {
                self.slots.remove(&slot);
                true
            }
            _ => false,
        };
        if is_fine { Outcome::Nothing } else { Outcome::Closed }
    }
}

/// Mostly a tensor that fits.
fn tell(input: &mut Input<'_>, i: usize) -> Told {
    let name = if input.rarely(32) { vec![0xff] } else { format!("x{i}").into_bytes() };
    let dtype = if input.rarely(4) { input.dtype() } else { DType::U8 };
    let shape = match input.below(16) {
        0 => (0..input.below(4)).map(|_| input.number()).collect(),
        1 => vec![1; MAX_NDIM - 1 + input.below(4)],
        _ => input.small_shape(),
    };
    let offset =
        if input.rarely(16) { input.number() as u64 } else { ALIGN * input.below(5) as u64 };
    Told { name, dtype, shape, offset }
}

fn describe(told: &Told) -> Vec<u8> {
    let mut bytes = (told.name.len() as u32).to_ne_bytes().to_vec();
    bytes.extend(&told.name);
    bytes.extend([told.dtype.code.0, told.dtype.bits]);
    bytes.extend(told.dtype.lanes.to_ne_bytes());
    bytes.push(told.shape.len() as u8);
    bytes.extend(told.shape.iter().flat_map(|extent| extent.to_ne_bytes()));
    bytes.extend(told.offset.to_ne_bytes());
    bytes
}

fn nbytes(told: &Told) -> Option<i128> {
    if model::is_impossible(told.dtype) || told.shape.len() > MAX_NDIM {
        return None;
    }
    let span = model::measure(&told.shape, &vec![0; told.shape.len()]).ok()?;
    model::size(span.len, told.dtype, Flags::NONE)
}

/// Where a tensor ends.
fn end(told: &Told) -> Option<i128> {
    nbytes(told).map(|len| len + i128::from(told.offset))
}

/// Whether a tensor lies in so many bytes.
fn fits(told: &Told, size: usize) -> bool {
    let is_name = std::str::from_utf8(&told.name).is_ok();
    is_name && told.offset % ALIGN == 0 && end(told).is_some_and(|end| end <= size as i128)
}

/// Whether each tensor begins after the one before it.
fn are_apart(all: &[Told]) -> bool {
    let starts = all.iter().skip(1).map(|told| i128::from(told.offset));
    all.iter().zip(starts).all(|(before, start)| end(before).is_none_or(|end| end <= start))
}

/// A descriptor, and the bytes for values if it is a slot.
fn file(input: &mut Input<'_>) -> (OwnedFd, Option<usize>) {
    match input.below(16) {
        0 => return (File::open("/dev/null").expect("on every Linux").into(), None),
        1 => return (UnixStream::pair().expect("sockets").0.into(), None),
        2 => return (rustix::pipe::pipe().expect("a pipe").0, None),
        _ => {}
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let size = if input.rarely(8) { input.below(2 * PAGE) } else { PAGE + input.below(300) };
    let bytes: Vec<u8> = (0..size).map(|i| i as u8).collect();
    let mut file = File::from(memfd_create("fuzz", flags).expect("a memory file"));
    file.write_all(&bytes).expect("memory");
    let is_sparse = input.rarely(16);
    if is_sparse {
        ftruncate(&file, 5 * PAGE as u64).expect("a hole");
    }
    let seals = if input.rarely(8) { input.any::<u8>() } else { 0xff };
    let chosen = SEALS.iter().enumerate().filter(|(i, _)| seals >> i & 1 == 1);
    let seals = chosen.fold(SealFlags::empty(), |all, (_, &seal)| all | seal);
    fcntl_add_seals(&file, seals).expect("no mapping");
    let is_slot = size > 0 && !is_sparse && SEALS.iter().all(|&seal| seals.contains(seal));
    (file.into(), is_slot.then_some(size))
}

fn send(peer: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let sent = sendmsg(peer, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(bytes.len()));
}

fn compare(message: &Message, (told, bytes): &Wanted) {
    let names: Vec<_> = told.iter().map(|one| one.name.as_slice()).collect();
    assert!(message.names().map(str::as_bytes).eq(names));
    let mut seen = HashSet::new();
    // Of tensors of one name, the first is found.
    for one in told.iter().filter(|one| seen.insert(one.name.clone())) {
        let name = std::str::from_utf8(&one.name).expect("a name");
        let tensor = message.tensor(name).expect("there");
        assert_eq!((tensor.dtype(), tensor.shape()), (one.dtype, &one.shape[..]));
        let own = message.to_owned(name).expect("memory");
        let begin = one.offset as usize;
        assert_eq!(own.as_bytes(), Ok(&bytes[begin..][..tensor.nbytes()]), "{name}");
    }
}
