//! Channels whose other end is killed at every step, and what is left of them.

use std::fs;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use dlbridge::DType;
use dlbridge_sealed::{Channel, Pool};

use crate::other::{Other, alone};

const MAKER: [&str; 4] = ["loaned", "taken", "filled", "sent"];
const READER: [&str; 4] = ["waiting", "received", "read", "dropped"];
const SIZE: i64 = 4 << 20;
/// How long a test waits for what a mistake would keep for ever.
const LONG: Duration = Duration::from_secs(20);
/// Messages of the tests of leaks.
const ROUNDS: usize = 3_000;
const MANY_ROUNDS: usize = 100_000;

fn send(channel: &Channel, step: &dyn Fn(&str)) {
    let mut loan = channel.loan(&[("x", DType::U8, &[SIZE])]).expect("memory");
    step("loaned");
    let mut tensor = loan.tensor("x").expect("there");
    step("taken");
    tensor.as_slice_mut::<u8>().expect("exclusive").fill(7);
    step("filled");
    drop(tensor);
    loan.send().expect("a reader");
    step("sent");
}

pub(crate) fn make(socket: &UnixStream, step: &dyn Fn(&str)) {
    send(&Channel::new(socket.try_clone().expect("a socket")), step);
}

pub(crate) fn read(socket: &UnixStream, step: &dyn Fn(&str)) {
    let channel = Channel::new(socket.try_clone().expect("a socket"));
    step("waiting");
    let message = channel.receive().expect("a frame").expect("a message");
    step("received");
    let tensor = message.tensor("x").expect("there");
    assert!(tensor.view::<u8>().expect("bytes").iter().all(|byte| byte == 7));
    step("read");
    drop((message, tensor));
    step("dropped");
}

#[test]
fn a_maker_that_is_killed_ends_the_stream_after_its_messages() {
    let _alone = alone();
    for step in MAKER {
        let mut other = Other::start("channel_maker", step);
        let channel = Channel::new(other.socket.try_clone().expect("a socket"));
        let message = if step == "sent" {
            Some(channel.receive().expect("a frame"))
        } else {
            other.wait();
            None
        };
        other.kill();
        // The end, or the byte of the step, which is no frame.
        assert!(matches!(channel.receive(), Err(_) | Ok(None)), "{step}");
        let Some(message) = message else { continue };
        let message = message.expect("a message");
        let kept = message.seal().expect("memory");
        assert_eq!(kept.tensor("x").expect("there").as_slice::<u8>().expect("frozen")[0], 7);
        let tensor = message.tensor("x").expect("there");
        drop((channel, message));
        assert!(tensor.view::<u8>().expect("bytes").iter().all(|byte| byte == 7));
    }
}

#[test]
fn a_reader_that_is_killed_returns_all_its_leases() {
    let _alone = alone();
    let pool = Pool::new(SIZE as usize + (1 << 20));
    for step in READER {
        let mut other = Other::start("channel_reader", step);
        let socket = other.socket.try_clone().expect("a socket");
        let channel = Channel::with_pool(socket, &pool, usize::MAX, false);
        if step == "waiting" {
            other.wait();
        }
        send(&channel, &|_| {});
        if step != "waiting" {
            other.wait();
        }
        other.kill();
        // All memory of the pool is there for the next reader.
        let loan = pool.loan(&[("x", DType::U8, &[SIZE])]).expect("memory");
        assert_eq!(channel.kept(), (0, 0), "{step}");
        drop(loan);
    }
}

#[test]
fn a_reader_of_three_that_is_killed_leaves_the_memory_to_the_others() {
    let _alone = alone();
    let x: [(&str, DType, &[i64]); 1] = [("x", DType::U8, &[SIZE])];
    let pool = Pool::new(SIZE as usize + (1 << 20));
    for step in READER.into_iter().skip(1) {
        let steps = [step, "dropped", "dropped"];
        let mut others = steps.map(|step| Other::start("channel_reader", step));
        let channels = others.each_ref().map(|other| {
            let socket = other.socket.try_clone().expect("a socket");
            Channel::with_pool(socket, &pool, usize::MAX, false)
        });
        let mut loan = pool.loan_timeout(&x, LONG).expect("memory in time");
        loan.tensor("x").expect("there").as_slice_mut::<u8>().expect("exclusive").fill(7);
        let ready = loan.ready().expect("no tensor is alive");
        channels.iter().for_each(|channel| channel.send(&ready).expect("a reader"));
        drop(ready);
        others[0].wait();
        others[0].child.kill().expect("a process");
        // The others read on, and the memory is there once they have.
        let loan = pool.loan_timeout(&x, LONG).expect("memory in time");
        assert!(channels.iter().all(|channel| channel.kept() == (0, 0)), "{step}");
        drop(loan);
    }
}

/// Sends so many messages, reads none, and stops.
pub(crate) fn stuff(socket: &UnixStream, step: &dyn Fn(&str)) {
    let channel = Channel::new(socket.try_clone().expect("a socket"));
    let x = dlbridge::Tensor::from(vec![7_u8; 100]);
    (0..400).for_each(|_| channel.send_copy(&[("x", &x)]).expect("a reader"));
    step("stuffed");
}

#[test]
fn sending_to_a_process_that_is_killed_ends_while_its_messages_wait() {
    let _alone = alone();
    let other = Other::start("stuffer", "stuffed");
    let channel = Channel::new(other.socket.try_clone().expect("a socket"));
    // As many as an inbox holds are read, and leave room for the others in the socket.
    let end = Instant::now() + LONG;
    while !channel.wait(Duration::from_millis(10)).expect("open") || !is_sleeping(other.child.id())
    {
        let _ = channel.kept();
        assert!(Instant::now() < end);
    }
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        other.kill();
    });
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let x = dlbridge::Tensor::from(vec![7_u8; 10_000]);
        let error = (0..10_000).find_map(|_| channel.send_copy(&[("x", &x)]).err());
        sender.send(error.map(|error| error.to_string()))
    });
    let error = receiver.recv_timeout(LONG).expect("a call that ends").expect("an error");
    assert!(error.contains("closed"), "{error}");
    killer.join().expect("a kill");
}

/// Whether a process waits for an event.
fn is_sleeping(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).expect("procfs");
    status.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
}

#[test]
fn a_channel_leaks_no_descriptor_no_mapping_and_no_memory() {
    leak(ROUNDS);
}

#[test]
fn a_hundred_thousand_messages_leak_nothing() {
    leak(MANY_ROUNDS);
}

/// Sends messages of every size, and counts what is left of them.
fn leak(rounds: usize) {
    let count = |path: &str| match path.strip_suffix("fd") {
        Some(_) => fs::read_dir(path).expect("procfs").count(),
        None => fs::read_to_string(path).expect("procfs").matches("memfd:dlbridge").count(),
    };
    let _alone = alone();
    let counts = || ["/proc/self/fd", "/proc/self/maps"].map(count);
    let before = counts();
    let (one, other) = UnixStream::pair().expect("sockets");
    let pool = Pool::new(2 << 20);
    let maker = Channel::with_pool(one, &pool, usize::MAX, false);
    let reader = Channel::new(other);
    for round in 0..rounds {
        // Sizes of every class, which take the memory of each other.
        let size = (round as i64 * 7919) % (1 << 20);
        maker.loan(&[("x", DType::U8, &[size])]).expect("memory").send().expect("a reader");
        let message = reader.receive().expect("a frame").expect("a message");
        assert_eq!(message.tensor("x").expect("there").nbytes(), size as usize);
        assert!(pool.nbytes() <= 2 << 20);
    }
    assert!(counts()[1] < before[1] + 200, "{:?}", counts());
    drop((maker, reader, pool));
    assert_eq!(counts(), before);
}
