//! Streams that have begun, whose frames travel through memory, and peers that break the rules of that memory.

use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use dlbridge::{DType, Tensor};
use dlbridge_sealed::Channel;
use memmap2::{MmapMut, MmapOptions};
use rustix::cmsg_space;
use rustix::fs::{SealFlags, fcntl_add_seals};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::channel_hostile::{SEALS, START, bytes, frame, memfd, send};

const INLINE: u32 = 1;
const NEW: u32 = 3;
const RING: u32 = 10;
const SWITCH: u32 = 11;
const ROOM: usize = 64 << 10;
/// How long an attack lasts that nothing ends.
const ENOUGH: Duration = Duration::from_secs(10);
/// The places of counters: bytes that were written, bytes that were read, calls to be woken.
const WRITTEN: usize = 0;
const READ: usize = 64;
const WISHES: [usize; 2] = [128, 192];

/// A peer with a ring, and an end that reads from it.
struct Attack {
    socket: UnixStream,
    end: Channel,
    ring: MmapMut,
    /// The ring of the end.
    theirs: OwnedFd,
}

impl Attack {
    fn new() -> Self {
        let (socket, other) = UnixStream::pair().expect("sockets");
        let end = Channel::new(other);
        let file = memfd(START + ROOM, SealFlags::SHRINK | SealFlags::GROW);
        // SAFETY: shared with an end of this test, which makes no reference to it.
        #[allow(unsafe_code)]
        let ring = unsafe { MmapOptions::new().map_mut(&file) };
        let mut ring = ring.expect("memory");
        ring.fill(0);
        fcntl_add_seals(&file, SealFlags::FUTURE_WRITE).expect("a file that can be sealed");
        send(&socket, &frame(RING, &[], &[], 0, 0), &[file.as_fd()]);
        assert_eq!(end.kept(), (0, 0));
        let theirs = receive_ring(&socket);
        send(&socket, &frame(SWITCH, &[], &[], 0, 0), &[]);
        Self { socket, end, ring, theirs }
    }

    fn set(&mut self, counter: usize, value: u32) {
        self.ring[counter..counter + 4].copy_from_slice(&value.to_ne_bytes());
    }

    fn write(&mut self, bytes: &[u8]) {
        self.ring[START..START + bytes.len()].copy_from_slice(bytes);
        self.set(WRITTEN, bytes.len() as u32);
    }

    fn why(&self) -> String {
        self.end.receive().map(drop).expect_err("an attack").to_string()
    }
}

/// The descriptor beside the first frame.
fn receive_ring(socket: &UnixStream) -> OwnedFd {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut head = [0; 32];
    let mut bytes = [IoSliceMut::new(&mut head)];
    recvmsg(socket, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC).expect("a frame");
    assert_eq!(head[..4], RING.to_ne_bytes());
    let Some(RecvAncillaryMessage::ScmRights(mut files)) = control.drain().next() else {
        panic!("expected a descriptor")
    };
    files.next().expect("one")
}

fn send_one(channel: &Channel, value: i64) {
    channel.send_copy(&[("x", &Tensor::from(vec![value; 10]))]).expect("a reader");
}

fn receive_one(channel: &Channel) -> i64 {
    let message = channel.receive().expect("a frame").expect("a message");
    message.to_owned("x").expect("x").as_slice::<i64>().expect("numbers")[9]
}

#[test]
fn each_message_of_a_long_stream_arrives_in_both_directions() {
    let (one, other) = Channel::pair().expect("sockets");
    thread::scope(|scope| {
        scope.spawn(|| {
            for value in 0..2000 {
                assert_eq!(receive_one(&other), value);
                send_one(&other, -value);
            }
        });
        for value in 0..2000 {
            send_one(&one, value);
            assert_eq!(receive_one(&one), -value);
        }
    });
    // Larger than a ring, and a lease between small ones.
    let name = "x".repeat(100_000);
    let x = Tensor::from((0..20_000).map(f64::from).collect::<Vec<_>>());
    let sum = |message: &dlbridge_sealed::Message, name: &str| {
        message.tensor(name).expect("x").view::<f64>().expect("x").iter().sum::<f64>()
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20 {
                one.send_copy(&[(&*name, &x)]).expect("a reader");
                send_one(&one, 1);
            }
        });
        for _ in 0..20 {
            let message = other.receive().expect("a frame").expect("a message");
            assert_eq!(sum(&message, &name), 199_990_000.0);
            assert_eq!(receive_one(&other), 1);
        }
    });
    // What was sent before the end is received after it.
    (0..50).for_each(|value| send_one(&one, value));
    drop(one);
    (0..50).for_each(|value| assert_eq!(receive_one(&other), value));
    assert!(other.receive().expect("the end").is_none());
    let mut sent = (0..20).map(|_| other.send_copy(&[("x", &x)]));
    assert!(sent.any(|sent| sent.is_err_and(|error| error.to_string().contains("closed"))));
}

#[test]
fn a_socket_is_readable_when_a_message_came_after_a_look() {
    let (one, other) = Channel::pair().expect("sockets");
    for value in 0..100 {
        while other.wait(Duration::ZERO).expect("no error") {
            assert_eq!(receive_one(&other), value - 1);
        }
        send_one(&one, value);
        let mut poll = [rustix::event::PollFd::new(&other, rustix::event::PollFlags::IN)];
        let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut poll, Some(&second)), Ok(1), "message {value}");
    }
}

#[test]
fn a_full_ring_waits_for_its_reader() {
    let (one, other) = Channel::pair().expect("sockets");
    let x = Tensor::from(vec![7_u8; 16_000]);
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            (0..200).for_each(|_| one.send_copy(&[("x", &x)]).expect("a reader"));
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!sender.is_finished());
        for _ in 0..200 {
            let message = other.receive().expect("a frame").expect("a message");
            assert_eq!(message.nbytes(), 16_000);
        }
    });
}

#[test]
fn descriptors_wait_for_their_frames_while_nothing_is_received() {
    let (one, other) = Channel::pair().expect("sockets");
    let x = Tensor::from(vec![7_i64; 2500]);
    thread::scope(|scope| {
        // More leases than messages may wait, each of a new slot.
        scope.spawn(|| {
            (0..1000).for_each(|_| one.send_copy(&[("x", &x)]).expect("a reader"));
        });
        while one.kept().0 < 450 {
            assert_eq!(other.kept(), (0, 0));
        }
        (0..1000).for_each(|_| assert_eq!(receive_seven(&other), 7));
    });
}

fn receive_seven(channel: &Channel) -> i64 {
    let message = channel.receive().expect("a frame").expect("a message");
    message.tensor("x").expect("x").view::<i64>().expect("x").iter().next().expect("one")
}

#[test]
fn a_ring_of_another_kind_closes_the_channel() {
    let ring = frame(RING, &[], &[], 0, 0);
    let whole = || memfd(START + ROOM, SEALS);
    for (frames, files, wanted) in [
        (ring.clone(), vec![], "a ring without a descriptor"),
        (ring.clone(), vec![memfd(START + ROOM, SealFlags::GROW)], "SHRINK"),
        (ring.clone(), vec![memfd(START + 4096, SEALS)], "a ring of 4096 bytes"),
        (ring.clone(), vec![memfd(100, SEALS)], "a ring of 0 bytes"),
        ([ring.clone(), ring].concat(), vec![whole(), whole()], "or one more"),
        (frame(SWITCH, &[], &[], 0, 0), vec![], "a switch without rings"),
    ] {
        let (attacker, socket) = UnixStream::pair().expect("sockets");
        let end = Channel::new(socket);
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        send(&attacker, &frames, &files);
        let error = end.receive().map(drop).expect_err("an attack").to_string();
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
}

#[test]
fn counters_and_frames_of_a_hostile_ring_close_the_channel() {
    let mut attack = Attack::new();
    attack.write(&frame(INLINE, &bytes(b"x", &[3], 0), &[1, 2, 3], 0, 0));
    let message = attack.end.receive().expect("a frame").expect("a message");
    assert_eq!(message.to_owned("x").expect("x").as_slice::<u8>(), Ok(&[1, 2, 3][..]));
    let read = u32::try_from(frame(INLINE, &bytes(b"x", &[3], 0), &[1, 2, 3], 0, 0).len());
    attack.set(WRITTEN, read.expect("a few bytes") + ROOM as u32 + 1);
    assert!(attack.why().contains("65537 bytes in a ring of 65536"));

    let mut attack = Attack::new();
    attack.set(WRITTEN, u32::MAX);
    assert!(attack.why().contains("4294967295 bytes in a ring"));

    let mut attack = Attack::new();
    attack.write(&frame(99, &[], &[], 0, 0));
    assert!(attack.why().contains("a frame of kind 99"));

    let mut attack = Attack::new();
    attack.write(&frame(SWITCH, &[], &[], 0, 0));
    assert!(attack.why().contains("or one more"));

    // More was read than was written.
    let mut attack = Attack::new();
    attack.set(READ, 5000);
    let x = Tensor::from(vec![1_u8]);
    let error = attack.end.send_copy(&[("x", &x)]).expect_err("an attack").to_string();
    assert!(error.contains("that are not read"), "{error}");

    // A peer that is never content costs a byte for each frame, and none once its socket is full.
    let mut attack = Attack::new();
    let mut sent = 0;
    while attack.end.loan_timeout(&[("x", DType::U8, &[1])], Duration::ZERO).is_ok() && sent < 5000
    {
        WISHES.iter().for_each(|&wish| attack.set(wish, sent + 1));
        attack.set(READ, ring_of(&attack, WRITTEN));
        attack.end.send_copy(&[("x", &x)]).expect("room");
        sent += 1;
    }
    assert_eq!(sent, 5000);
    drop(attack.socket);
    assert!(attack.end.receive().expect("the end").is_none());
}

/// A counter of the end, which its peer only reads.
fn ring_of(attack: &Attack, counter: usize) -> u32 {
    // SAFETY: shared with an end of this test, which makes no reference to it.
    #[allow(unsafe_code)]
    let map = unsafe { MmapOptions::new().map(&attack.theirs) }.expect("a ring");
    u32::from_ne_bytes(map[counter..counter + 4].try_into().expect("four bytes"))
}

#[test]
fn a_peer_that_wakes_for_ever_is_not_read_for_ever() {
    let mut attack = Attack::new();
    // It names a descriptor that does not come.
    attack.write(&frame(NEW, &bytes(b"x", &[4], 0), &[], 1, 1));
    let end = Instant::now() + ENOUGH;
    thread::scope(|scope| {
        for _ in 0..4 {
            let mut socket = attack.socket.try_clone().expect("a socket");
            scope.spawn(
                move || while Instant::now() < end && socket.write_all(&[0; 64 << 10]).is_ok() {},
            );
        }
        thread::sleep(Duration::from_millis(20));
        assert!(attack.why().contains("a slot without a descriptor"));
        assert!(Instant::now() < end);
    });
}

#[test]
fn a_peer_writes_nothing_to_the_ring_of_an_end() {
    let attack = Attack::new();
    // SAFETY: refused.
    #[allow(unsafe_code)]
    let mapped = unsafe { MmapOptions::new().map_mut(&attack.theirs) };
    assert_eq!(mapped.map(drop).expect_err("sealed").raw_os_error(), Some(1));
    assert_eq!(rustix::io::pwrite(&attack.theirs, &[1], 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&attack.theirs, 0), Err(Errno::PERM));
}

#[test]
fn each_thread_that_receives_from_one_end_gets_its_message() {
    for _ in 0..300 {
        let (one, other) = Channel::pair().expect("sockets");
        for value in 0..20 {
            send_one(&one, value);
            assert_eq!(receive_one(&other), value);
        }
        thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| receive_one(&other))).collect();
            (1..5).for_each(|value| send_one(&one, value));
            let sum: i64 = threads.into_iter().map(|thread| thread.join().expect("one")).sum();
            assert_eq!(sum, 10);
        });
    }
}
