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
const FORGET: u32 = 5;
/// What a slot needs.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE);
const SIZE: i64 = 100_000;

fn frame(kind: u32, description: &[u8], values: &[u8], slot: u32, lease: u64) -> Vec<u8> {
    frame_of(kind, [description, &[], values], slot, lease)
}

/// A frame of a description, of texts and of values.
fn frame_of(kind: u32, parts: [&[u8]; 3], slot: u32, lease: u64) -> Vec<u8> {
    let [described, texts, values] = parts.map(|part| part.len() as u32);
    let sizes = [kind, described, texts, values, slot, 0];
    let mut frame: Vec<u8> = sizes.iter().flat_map(|number| number.to_ne_bytes()).collect();
    frame.extend(lease.to_ne_bytes());
    frame.extend(parts.concat());
    frame
}

/// The error that ends a channel, after its messages.
fn why_closed(reader: &Channel) -> String {
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

/// The description of a tensor of bytes.
fn bytes(name: &[u8], shape: &[i64], offset: u64) -> Vec<u8> {
    let mut described = (name.len() as u32).to_ne_bytes().to_vec();
    described.extend(name);
    described.extend([1, 8, 1, 0, shape.len() as u8]);
    described.extend(shape.iter().flat_map(|extent| extent.to_ne_bytes()));
    described.extend(offset.to_ne_bytes());
    described
}

fn memfd(size: usize, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let mut file = File::from(file.expect("a memfd"));
    file.write_all(&vec![7; size]).expect("room");
    fcntl_add_seals(&file, seals).expect("a file that can be sealed");
    file.into()
}

fn send(socket: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) {
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
    why_closed(&reader)
}

/// Each of a message's 4,096 tensors could be the whole slot, so that a copy of all needed 4,096
/// times the memory that the limit permits.
#[test]
fn a_frame_that_is_none_closes_the_channel() {
    let x = bytes(b"x", &[4], 0);
    let [long, many] = [(128 << 10) + 1, (16 << 10) + 1].map(|size: usize| vec![0; size]);
    for (frame, wanted) in [
        (vec![0; 32], "a frame of kind 0"),
        (frame(99, &[], &[], 0, 0), "a frame of kind 99"),
        (frame(6, &[], &[], 0, u64::MAX), "a frame of kind 6"),
        (frame(INLINE, &[], &[], 0, 0)[..31].to_vec(), "ends early"),
        (frame(INLINE, &long, &[], 0, 0), "131073"),
        (frame(INLINE, &[], &many, 0, 0), "16385"),
        (frame(INLINE, &x[..x.len() - 1], &[1; 4], 0, 0), "ends early"),
        (frame(INLINE, &x, &[1; 3], 0, 0), "a tensor of 4 bytes at 0 in 0..3"),
        (frame(INLINE, &bytes(b"x", &[1], 64), &[1; 64], 0, 0), "at 64 in 0..64"),
        (frame(INLINE, &bytes(b"x", &[1], 1), &[1; 64], 0, 0), "at 1 in 0..64"),
        (frame(INLINE, &bytes(b"x", &[1], u64::MAX - 63), &[1; 64], 0, 0), "in 0..64"),
        (frame(INLINE, &[&x[..], &x].concat(), &[1; 64], 0, 0), "at 0 in 4..64"),
        (frame(INLINE, &bytes(b"x", &[-1], 0), &[1; 64], 0, 0), "found -1"),
        (frame(INLINE, &bytes(b"x", &[1 << 40, 1 << 40], 0), &[1; 64], 0, 0), "address space"),
        (frame(INLINE, &bytes(b"x", &[1; 65], 0), &[1; 64], 0, 0), "found 65"),
        (frame(INLINE, &bytes(&[0xff], &[1], 0), &[1; 64], 0, 0), "no UTF-8"),
        (frame(LEASE, &x, &[], 3, 0), "slot 3, unknown"),
        (frame(NEW, &x, &[], 3, 0), "without a descriptor"),
        (frame(RETURN, &[], &[], 0, 5), "the end of lease 5, unknown"),
        (frame_of(INLINE, [&[], &long, &[]], 0, 0), "131073"),
        (frame_of(INLINE, [&[], &[1, 0, 0, 0, b'k'], &[]], 0, 0), "a text that ends early"),
        (frame_of(INLINE, [&[], &[255, 255, 255, 255, 0], &[]], 0, 0), "a text that ends early"),
        (frame_of(INLINE, [&[], &[1, 0, 0, 0, 255], &[]], 0, 0), "a text that is no UTF-8"),
    ] {
        let found = why(&frame, &[]);
        assert!(found.contains(wanted), "{wanted}: {found}");
    }
    // Tensors without elements count, and no name is compared with each other.
    for (count, wanted) in [(4096, "the end"), (4097, "a message of more than 4096 tensors")] {
        let names: Vec<u8> = (0..count).flat_map(|_| bytes(b"x", &[0], 0)).collect();
        let found = why(&frame(INLINE, &names, &[], 0, 0), &[]);
        assert!(found.contains(wanted), "{count}: {found}");
    }
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
        (memfd(3, SEALS), "a tensor of 4 bytes at 0 in 0..3"),
        (memfd(4, SEALS), "the end"),
    ] {
        let found = why(&x, &[file.as_fd()]);
        assert!(found.contains(wanted), "{wanted}: {found}");
    }
    let file = memfd(4096, SEALS);
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
    let (file, x) = (memfd(4096, SEALS), bytes(b"x", &[4096], 0));
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
    let file = memfd(1 << 20, SealFlags::SHRINK | SealFlags::GROW);
    let map = MmapOptions::new().map_raw(&file).expect("not sealed yet");
    fcntl_add_seals(&file, SealFlags::FUTURE_WRITE).expect("a seal");
    let (attacker, socket) = UnixStream::pair().expect("sockets");
    let reader = Channel::new(socket);
    let described = bytes(b"x", &[1 << 20], 0);
    send(&attacker, &frame(NEW, &described, &[], 1, 1), &[file.as_fd()]);
    let x = reader.receive().expect("a frame").expect("a message").tensor("x").expect("x");
    assert_eq!(ftruncate(&file, 0), Err(Errno::PERM));
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(fallocate(&file, hole, 0, 1 << 20), Err(Errno::PERM));
    assert_eq!(x.view::<u8>().expect("bytes").iter().next(), Some(7));
    let start = map.as_mut_ptr();
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
    let (socket, other) = UnixStream::pair().expect("sockets");
    let (honest, reader) =
        (Channel::with_pool(socket, &pool, usize::MAX, false), Channel::new(other));
    let (socket, attacker) = UnixStream::pair().expect("sockets");
    let maker = Channel::with_pool(socket, &pool, usize::MAX, false);
    let filled = |value| {
        let mut loan = pool.loan(&[("x", DType::U8, &[SIZE])]).expect("memory");
        loan.tensor("x").expect("there").as_slice_mut::<u8>().expect("exclusive").fill(value);
        loan.ready().expect("no tensor is alive")
    };
    // Both have the first message; the attacker reads its slot by the descriptor, without a lease.
    let first = filled(1);
    honest.send(&first).expect("a reader");
    maker.send(&first).expect("a reader");
    drop(first);
    let slot = received_file(&attacker);
    let kept = reader.receive().expect("a frame").expect("a message");
    send(&attacker, &frame(RETURN, &[], &[], 0, 1), &[]);
    assert_eq!(maker.kept(), (0, 0));
    // The honest reader has the slot: the next message is in another one.
    let second = filled(2);
    assert_eq!(first_byte(&slot), 1);
    honest.send(&second).expect("a reader");
    let other = reader.receive().expect("a frame").expect("a message");
    for (message, value) in [(&kept, 1), (&other, 2)] {
        let x = message.to_owned("x").expect("x");
        assert!(x.as_slice::<u8>().expect("own").iter().all(|&byte| byte == value));
    }
    drop((kept, second, other));
    assert_eq!(honest.kept(), (0, 0));
    // Once it is free, it is filled anew, and the attacker alone sees that.
    let third = [filled(3), filled(3)];
    assert_eq!(first_byte(&slot), 3);
    honest.send(&third[0]).expect("a reader");
    let x = reader.receive().expect("a frame").expect("a message").to_owned("x").expect("x");
    assert!(x.as_slice::<u8>().expect("own").iter().all(|&byte| byte == 3));
}

/// The descriptor of the slot that a maker sent.
fn received_file(socket: &UnixStream) -> File {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = rustix::net::RecvAncillaryBuffer::new(&mut space);
    let (mut bytes, flags) = ([0; 4096], rustix::net::RecvFlags::CMSG_CLOEXEC);
    let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
    rustix::net::recvmsg(socket, &mut parts, &mut control, flags).expect("a frame");
    let found = control.drain().find_map(|message| match message {
        rustix::net::RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    found.expect("a descriptor").into()
}

fn first_byte(file: &File) -> u8 {
    let mut byte = [0];
    std::os::unix::fs::FileExt::read_exact_at(file, &mut byte, 0).expect("a memory file");
    byte[0]
}

#[test]
fn slots_of_a_peer_are_bounded() {
    let (attacker, socket) = UnixStream::pair().expect("sockets");
    let reader = Channel::new(socket);
    let (file, x) = (memfd(4096, SEALS), bytes(b"x", &[4096], 0));
    // Slots that are gone leave room for others.
    for slot in 0..2000_u32 {
        send(&attacker, &frame(NEW, &x, &[], slot, slot.into()), &[file.as_fd()]);
        assert!(reader.receive().expect("a frame").is_some());
        send(&attacker, &frame(FORGET, &[], &[], slot, 0), &[]);
        while rustix::net::recv(&attacker, &mut [0; 4096][..], rustix::net::RecvFlags::DONTWAIT)
            .is_ok_and(|(read, _)| read > 0)
        {}
    }
    let before = mappings();
    let mut held = Vec::new();
    let error = (0..2000_u32).find_map(|slot| {
        send(&attacker, &frame(NEW, &x, &[], slot, slot.into()), &[file.as_fd()]);
        reader.receive().map(|message| held.push(message)).err()
    });
    assert!(error.expect("too many").to_string().contains("513 slots"));
    assert_eq!(held.len(), 512);
    assert!(mappings() < before + 600);
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("procfs").lines().count()
}

#[test]
fn a_peer_that_reads_no_ends_of_leases_is_closed() {
    let (attacker, socket) = UnixStream::pair().expect("sockets");
    let reader = Channel::new(socket);
    let (file, x) = (memfd(4096, SEALS), bytes(b"x", &[4096], 0));
    send(&attacker, &frame(NEW, &x, &[], 1, 1), &[file.as_fd()]);
    // It uses its slot again without a look whether it may: as soon as the lease has ended.
    let error = (0..1_000_000_u64).find_map(|lease| match reader.receive() {
        Ok(message) => {
            drop(message.expect("a message"));
            send_if_open(&attacker, &frame(LEASE, &x, &[], 1, lease))
        }
        Err(error) => Some(error.to_string()),
    });
    let error = error.expect("no end of memory");
    assert!(error.contains("512 ends of leases that it does not read"), "{error}");
    assert!(reader.receive().is_err());
}

/// What a call finds that cannot send: that the other end closed the socket.
fn send_if_open(socket: &UnixStream, bytes: &[u8]) -> Option<String> {
    let sent = rustix::net::send(socket, bytes, SendFlags::NOSIGNAL);
    assert!(sent == Ok(bytes.len()) || sent == Err(Errno::PIPE), "{sent:?}");
    None
}

#[test]
fn a_peer_that_sends_for_ever_is_not_read_for_ever() {
    let (attacker, socket) = UnixStream::pair().expect("sockets");
    let reader = Channel::new(socket);
    let frames = frame(FORGET, &[], &[], 1, 0).repeat(2000);
    let end = std::time::Instant::now() + Duration::from_secs(20);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while std::time::Instant::now() < end
                    && rustix::net::send(&attacker, &frames, SendFlags::NOSIGNAL).is_ok()
                {
                }
            });
        }
        for _ in 0..10 {
            assert!(!reader.wait(Duration::from_millis(20)).expect("open"));
        }
        assert!(std::time::Instant::now() < end);
        reader.close();
    });
}

#[test]
fn a_peer_that_sends_small_frames_fills_no_inbox() {
    // As many tensors without elements as a frame has, in frames that are not received.
    let (attacker, socket) = UnixStream::pair().expect("sockets");
    attacker.set_nonblocking(true).expect("a socket");
    let reader = Channel::new(socket);
    let names: Vec<u8> = (0..4000).flat_map(|_| bytes(b"", &[0], 0)).collect();
    let message = frame(INLINE, &names, &[0; 64], 0, 0);
    let mut frames = 0;
    let mut sent = 0;
    while frames < 500 {
        match rustix::net::send(&attacker, &message[sent..], SendFlags::NOSIGNAL) {
            Ok(more) => sent += more,
            Err(error) => {
                assert_eq!(error, Errno::AGAIN);
                let _ = reader.kept();
                let again = rustix::net::send(&attacker, &message[sent..], SendFlags::NOSIGNAL);
                match again {
                    Ok(more) => sent += more,
                    // Neither the inbox nor the socket takes more.
                    Err(_) => break,
                }
            }
        }
        if sent == message.len() {
            (frames, sent) = (frames + 1, 0);
        }
    }
    assert!(frames < 50, "{frames}");
    assert!((0..frames).all(|_| reader.receive().is_ok_and(|message| message.is_some())));
}
