//! Peers of a channel that break its protocol, in both directions: each ends its channel with an error, and
//! blocks no other one.

use std::fs::File;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use dlbridge::DType;
use dlbridge_sealed::{Channel, Pool};
use memmap2::MmapOptions;
use rustix::cmsg_space;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::fs::{fallocate, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

const INLINE: u32 = 1;
const LEASE: u32 = 2;
const NEW: u32 = 3;
const RETURN: u32 = 4;
const KEEP: u32 = 6;
const KEPT: u32 = 7;
const NOT_KEPT: u32 = 8;
/// Where the values of a slot begin.
pub(crate) const START: usize = 4096;
/// What a slot needs.
pub(crate) const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE);
const SIZE: i64 = 100_000;

pub(crate) fn frame(
    kind: u32,
    description: &[u8],
    values: &[u8],
    slot: u32,
    lease: u64,
) -> Vec<u8> {
    let sizes = [kind, description.len() as u32, values.len() as u32, slot];
    let mut frame: Vec<u8> = sizes.iter().flat_map(|number| number.to_ne_bytes()).collect();
    frame.extend(lease.to_ne_bytes());
    frame.extend([0; 8]);
    frame.extend(description);
    frame.extend(values);
    frame
}

/// The description of a tensor of bytes.
pub(crate) fn bytes(name: &[u8], shape: &[i64], offset: u64) -> Vec<u8> {
    let mut described = (name.len() as u32).to_ne_bytes().to_vec();
    described.extend(name);
    described.extend([1, 8, 1, 0, shape.len() as u8]);
    described.extend(shape.iter().flat_map(|extent| extent.to_ne_bytes()));
    described.extend(offset.to_ne_bytes());
    described
}

pub(crate) fn memfd(size: usize, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let mut file = File::from(file.expect("a memfd"));
    file.write_all(&vec![7; size]).expect("room");
    fcntl_add_seals(&file, seals).expect("a file that can be sealed");
    file.into()
}

pub(crate) fn send(socket: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::empty());
    assert_eq!(sent, Ok(bytes.len()));
}

/// Why a reader closes its channel.
fn why(bytes: &[u8], files: &[BorrowedFd<'_>]) -> String {
    let (attacker, socket) = UnixStream::pair().expect("sockets");
    let reader = Channel::new(socket);
    send(&attacker, bytes, files);
    drop(attacker);
    loop {
        match reader.receive() {
            Ok(Some(message)) => drop(message),
            Ok(None) => return "the end".into(),
            Err(error) => {
                assert_eq!(reader.receive().map(drop), Err(error.clone()));
                return error.to_string();
            }
        }
    }
}

#[test]
fn a_frame_that_is_none_closes_the_channel() {
    let x = bytes(b"x", &[4], 0);
    let [long, many] = [(128 << 10) + 1, (16 << 10) + 1].map(|size: usize| vec![0; size]);
    for (frame, wanted) in [
        (vec![0; 32], "a frame of kind 0"),
        (frame(99, &[], &[], 0, 0), "a frame of kind 99"),
        (frame(9, &[], &[], 0, u64::MAX), "an end that sends bytes, while this one shares memory"),
        (frame(INLINE, &[], &[], 0, 0)[..31].to_vec(), "ends early"),
        (frame(INLINE, &long, &[], 0, 0), "131073"),
        (frame(INLINE, &[], &many, 0, 0), "16385"),
        (frame(INLINE, &x[..x.len() - 1], &[1; 4], 0, 0), "ends early"),
        (frame(INLINE, &x, &[1; 3], 0, 0), "a tensor of 4 bytes at 0 in 3"),
        (frame(INLINE, &bytes(b"x", &[1], 64), &[1; 64], 0, 0), "at 64 in 64"),
        (frame(INLINE, &bytes(b"x", &[1], 1), &[1; 64], 0, 0), "at 1 in 64"),
        (frame(INLINE, &bytes(b"x", &[1], u64::MAX - 63), &[1; 64], 0, 0), "in 64"),
        (frame(INLINE, &bytes(b"x", &[-1], 0), &[1; 64], 0, 0), "found -1"),
        (frame(INLINE, &bytes(b"x", &[1 << 40, 1 << 40], 0), &[1; 64], 0, 0), "address space"),
        (frame(INLINE, &bytes(b"x", &[1; 65], 0), &[1; 64], 0, 0), "found 65"),
        (frame(INLINE, &bytes(&[0xff], &[1], 0), &[1; 64], 0, 0), "no UTF-8"),
        (frame(LEASE, &x, &[], 3, 0), "slot 3, unknown"),
        (frame(NEW, &x, &[], 3, 0), "without a descriptor"),
        (frame(RETURN, &[], &[], 0, 5), "the end of lease 5, unknown"),
        (frame(KEEP, &[], &[], 0, 5), "lease 5 to keep, unknown"),
        (frame(KEPT, &[], &[], 0, 5), "an answer without a question"),
        (frame(NOT_KEPT, &[], &[], 0, 5), "an answer without a question"),
    ] {
        let found = why(&frame, &[]);
        assert!(found.contains(wanted), "{wanted}: {found}");
    }
    // As many names as fit are read, and none is compared with each other.
    let names: Vec<u8> = (0..4000).flat_map(|_| bytes(b"x", &[0], 0)).collect();
    assert_eq!(why(&frame(INLINE, &names, &[], 0, 0), &[]), "the end");
}

#[test]
fn a_descriptor_of_another_kind_closes_the_channel() {
    let x = frame(NEW, &bytes(b"x", &[4], 0), &[], 1, 1);
    let pipe = rustix::pipe::pipe().expect("a pipe").0;
    let zero = OwnedFd::from(File::open("/dev/zero").expect("on every Linux"));
    let sparse = memfd(100, SealFlags::empty());
    ftruncate(&sparse, 1 << 20).expect("a hole");
    fcntl_add_seals(&sparse, SEALS).expect("a file that can be sealed");
    for (file, wanted) in [
        (pipe, "found a pipe"),
        (zero, "found a device"),
        (File::open("/").expect("on every Linux").into(), "found a directory"),
        (UnixStream::pair().expect("sockets").0.into(), "found a socket"),
        (memfd(4096, SealFlags::empty()), "without the seals"),
        (memfd(4096, SealFlags::SHRINK | SealFlags::GROW), "without the seals FUTURE_WRITE"),
        (memfd(4096, SealFlags::FUTURE_WRITE), "without the seals"),
        (sparse, "a hole at byte"),
        (memfd(3, SEALS), "a tensor of 4 bytes at 0 in 0"),
        (memfd(START + 3, SEALS), "a tensor of 4 bytes at 0 in 3"),
        (memfd(START + 4, SEALS), "the end"),
    ] {
        let found = why(&x, &[file.as_fd()]);
        assert!(found.contains(wanted), "{wanted}: {found}");
    }
    let file = memfd(START + 4096, SEALS);
    let found = why(&frame(INLINE, &[], &[], 0, 0), &[file.as_fd(); 4]);
    assert_eq!(found, "the end");
    // As many as the kernel sends at once.
    let found = why(&frame(INLINE, &[], &[], 0, 0), &[file.as_fd(); 253]);
    assert!(found.contains("expected room for a descriptor"), "{found}");
    let found = why(&[x.clone(), x].concat(), &[file.as_fd(); 2]);
    assert!(found.contains("slot 1 once more"), "{found}");
    let (attacker, socket) = UnixStream::pair().expect("sockets");
    let reader = Channel::new(socket);
    for _ in 0..17 {
        send(&attacker, &frame(INLINE, &[], &[], 0, 0), &[file.as_fd(); 4]);
    }
    let found = (0..18).find_map(|_| reader.receive().err()).expect("too many descriptors");
    assert!(found.to_string().contains("descriptors without frames"), "{found}");
}

#[test]
fn a_slot_that_is_sent_twice_closes_the_channel_and_keeps_the_first_message() {
    let (attacker, socket) = UnixStream::pair().expect("sockets");
    let reader = Channel::new(socket);
    let (file, x) = (memfd(START + 4096, SEALS), bytes(b"x", &[4096], 0));
    send(&attacker, &frame(NEW, &x, &[], 1, 1), &[file.as_fd()]);
    let message = reader.receive().expect("a frame").expect("a message");
    send(&attacker, &frame(LEASE, &x, &[], 1, 2), &[]);
    let error = reader.receive().map(drop).expect_err("the slot is leased").to_string();
    assert!(error.contains("whose lease has not ended"), "{error}");
    let x = message.to_owned("x").expect("x");
    assert_eq!(x.as_slice::<u8>(), Ok(&[7; 4096][..]));
}

#[test]
fn a_maker_changes_values_and_nothing_else() {
    let file = memfd(START + (1 << 20), SealFlags::SHRINK | SealFlags::GROW);
    let map = MmapOptions::new().map_raw(&file).expect("not sealed yet");
    fcntl_add_seals(&file, SealFlags::FUTURE_WRITE).expect("a seal");
    let (attacker, socket) = UnixStream::pair().expect("sockets");
    let reader = Channel::new(socket);
    let described = bytes(b"x", &[1 << 20], 0);
    send(&attacker, &frame(NEW, &described, &[], 1, 1), &[file.as_fd()]);
    let x = reader.receive().expect("a frame").expect("a message").tensor("x").expect("x");
    assert_eq!(ftruncate(&file, 0), Err(Errno::PERM));
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(fallocate(&file, hole, START as u64, 1 << 20), Err(Errno::PERM));
    assert_eq!(x.view::<u8>().expect("bytes").iter().next(), Some(7));
    let start = map.as_mut_ptr().wrapping_add(START);
    // SAFETY: a mapping of this test, of which there is no reference.
    #[allow(unsafe_code)]
    unsafe {
        start.write_volatile(8);
    }
    assert_eq!(x.view::<u8>().expect("bytes").iter().next(), Some(8));
    assert!(x.as_slice::<u8>().is_err());
}

/// A maker with one message, of a lease that the attacker has.
fn maker(pool: &Pool) -> (Channel, UnixStream) {
    let (socket, attacker) = UnixStream::pair().expect("sockets");
    let maker = Channel::with_pool(socket, pool, usize::MAX, false);
    let loan = maker.loan(&[("x", DType::U8, &[SIZE])]).expect("memory");
    loan.send().expect("a reader");
    assert_eq!(maker.kept().0, 1);
    (maker, attacker)
}

#[test]
fn a_lease_that_is_returned_twice_or_was_not_given_closes_the_channel() {
    let returned = |lease| frame(RETURN, &[], &[], 0, lease);
    for (sent, unknown) in [(vec![1, 1], 1), (vec![2], 2), (vec![u64::MAX], u64::MAX)] {
        let pool = Pool::new(1 << 20);
        let (maker, attacker) = maker(&pool);
        let frames: Vec<u8> = sent.into_iter().flat_map(returned).collect();
        send(&attacker, &frames, &[]);
        let error = maker.receive().map(drop).expect_err("a lease").to_string();
        assert!(error.contains(&format!("the end of lease {unknown}, unknown")), "{error}");
        assert_eq!(maker.kept(), (0, 0));
        let loan = maker.loan(&[("x", DType::U8, &[SIZE])]).expect("memory");
        assert!(loan.send().expect_err("closed").to_string().contains("closed"));
        // Other channels of the pool have all of its memory.
        let (socket, other) = UnixStream::pair().expect("sockets");
        let (good, reader) =
            (Channel::with_pool(socket, &pool, usize::MAX, false), Channel::new(other));
        let loan = good.loan(&[("x", DType::U8, &[1 << 19])]).expect("memory");
        loan.send().expect("a reader");
        assert!(reader.receive().expect("a frame").is_some());
    }
}

#[test]
fn a_lease_that_is_returned_early_changes_the_attackers_values_alone() {
    let pool = Pool::new(1 << 20);
    let (maker, attacker) = maker(&pool);
    send(&attacker, &frame(RETURN, &[], &[], 0, 1), &[]);
    assert_eq!(maker.kept(), (0, 0));
    let mut loan = maker.loan(&[("x", DType::U8, &[SIZE])]).expect("memory");
    // The same slot: what the attacker reads there changes.
    loan.tensor("x").expect("there").as_slice_mut::<u8>().expect("exclusive").fill(1);
    loan.send().expect("a reader");
    assert_eq!(maker.kept().0, 1);
}

#[test]
fn a_lease_that_is_kept_is_sealed_once_and_up_to_the_limit() {
    let pool = Pool::new(1 << 20);
    let (maker, mut attacker) = maker(&pool);
    attacker.set_nonblocking(true).expect("a socket");
    send(&attacker, &frame(KEEP, &[], &[], 0, 1), &[]);
    assert_eq!(maker.kept().0, 1);
    send(&attacker, &frame(RETURN, &[], &[], 0, 1), &[]);
    assert_eq!((maker.kept(), pool.nbytes()), ((0, 0), 0));
    // A reader that keeps everything gets no more than the limit, and the rest as a stream.
    for lease in 2..20 {
        let loan = maker.loan(&[("x", DType::U8, &[SIZE])]).expect("memory");
        loan.send().expect("a reader");
        send(&attacker, &[KEEP, RETURN].map(|kind| frame(kind, &[], &[], 0, lease)).concat(), &[]);
    }
    assert_eq!(maker.kept(), (0, 0));
    let mut answers = Vec::new();
    let _ = std::io::Read::read_to_end(&mut attacker, &mut answers);
    let mut kinds = Vec::new();
    while let [frame @ .., _] = &answers[..] {
        let number = |at: usize| u32::from_ne_bytes(frame[at..at + 4].try_into().expect("4"));
        kinds.push(number(0));
        let len = 32 + number(4) as usize + number(8) as usize;
        answers.drain(..len);
    }
    let said = |kind| kinds.iter().filter(|&&one| one == kind).count();
    assert_eq!((said(KEPT), said(NOT_KEPT)), (8, 11));
    // Twice: it would be an answer for each question, without end.
    maker.loan(&[("x", DType::U8, &[SIZE])]).expect("memory").send().expect("a reader");
    send(&attacker, &[KEEP, KEEP].map(|kind| frame(kind, &[], &[], 0, 20)).concat(), &[]);
    let error = maker.receive().map(drop).expect_err("twice").to_string();
    assert!(error.contains("lease 20 to keep, unknown or kept"), "{error}");
}

#[test]
fn a_file_that_is_not_sealed_is_not_kept() {
    let (attacker, socket) = UnixStream::pair().expect("sockets");
    let reader = Channel::new(socket);
    let (file, x) = (memfd(START + 4096, SEALS), bytes(b"x", &[4096], 0));
    for (lease, answer, files) in [(1, KEPT, true), (2, NOT_KEPT, false)] {
        send(&attacker, &frame(NEW, &x, &[], lease, lease.into()), &[file.as_fd()]);
        let message = reader.receive().expect("a frame").expect("a message");
        assert!(message.keep(Duration::ZERO).expect("no answer yet").is_none());
        let files = if files { &[file.as_fd()][..] } else { &[] };
        send(&attacker, &frame(answer, &[], &[], 0, lease.into()), files);
        match message.keep(Duration::MAX) {
            Err(error) => assert!(error.to_string().contains("without the seals"), "{error}"),
            // A copy.
            Ok(sealed) => {
                let x = sealed.expect("an answer").tensor("x").expect("there");
                assert_eq!((answer, x.as_slice::<u8>()), (NOT_KEPT, Ok(&[7; 4096][..])));
            }
        }
    }
}
