//! Ends that are closed, dropped, forked or not read, and limits of time.

use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dlbridge::{DType, Error, Tensor};
use dlbridge_sealed::{Channel, Pool, WaitError};

const NO_TIME: Duration = Duration::ZERO;
/// How long a test waits for what a mistake would keep for ever.
const LONG: Duration = Duration::from_secs(60);
/// Too large to travel inline.
const SIZE: usize = 20_000;

/// The result of a call that must end.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(LONG).expect("a call that ends")
}

fn send(channel: &Channel, size: usize) -> Result<(), Error> {
    channel.send_copy(&[("x", &Tensor::from(vec![7_u8; size]))])
}

#[test]
fn a_reader_that_read_all_and_closed_ends_its_maker_at_any_message() {
    for (count, size) in (0..40).flat_map(|count| [(count, 10), (count, SIZE)]) {
        let (maker, reader) = Channel::pair().expect("sockets");
        (0..count).for_each(|_| send(&maker, size).expect("a reader"));
        (0..count).for_each(|_| assert!(reader.receive().expect("a frame").is_some()));
        drop(reader);
        let (kept, received, sent) = in_time(move || {
            let received = maker.receive().map(|message| message.is_none());
            (maker.kept(), received, (0..2).all(|_| send(&maker, size).is_err()))
        });
        assert_eq!((kept, received, sent), ((0, 0), Ok(true), true), "{count} of {size}");
    }
}

#[test]
fn sending_to_an_end_that_is_gone_fails_while_messages_wait() {
    for size in [10, SIZE] {
        let (one, other) = Channel::pair().expect("sockets");
        // Both directions are in use, and more messages wait than an inbox holds.
        for _ in 0..20 {
            send(&one, size).expect("a reader");
            send(&other, size).expect("a reader");
            assert!(one.receive().expect("a frame").is_some());
            assert!(other.receive().expect("a frame").is_some());
        }
        let other = in_time(move || {
            (0..256).for_each(|_| send(&other, 10).expect("room"));
            other
        });
        let one = in_time(move || {
            let _ = one.kept();
            one
        });
        (0..20).for_each(|_| send(&other, 10).expect("room"));
        drop(other);
        let (one, is_err) = in_time(move || {
            let sent = (0..10_000).any(|_| send(&one, size).is_err());
            (one, sent)
        });
        assert!(is_err, "{size}");
        // What was sent before it went is received.
        let received = (0..276).filter(|_| matches!(one.receive(), Ok(Some(_)))).count();
        assert_eq!(received, 276);
        assert!(one.receive().expect("the end").is_none());
    }
}

#[test]
fn memory_of_an_end_that_is_gone_is_free_while_its_messages_wait() {
    let (socket, other) = UnixStream::pair().expect("sockets");
    let pool = Pool::new(32 << 10);
    let one = Channel::with_pool(socket, &pool, usize::MAX, false);
    let other = Channel::new(other);
    send(&one, SIZE).expect("a reader");
    let reading = one.clone();
    let other = in_time(move || {
        assert!(other.receive().expect("a frame").is_some());
        for _ in 0..300 {
            send(&other, 10).expect("room");
            let _ = reading.kept();
        }
        other
    });
    send(&one, SIZE).expect("the first slot came back before the inbox was full");
    let x: [(&str, DType, &[i64]); 1] = [("x", DType::U8, &[SIZE as i64])];
    let error = one.loan(&x).map(drop).expect_err("a full inbox").to_string();
    assert!(error.contains("messages to be received"), "{error}");
    drop(other);
    in_time(move || one.loan(&x).map(drop)).expect("memory");
}

/// A pool of one message, whose only reader has returned it behind more messages than an inbox holds.
fn full_end(pool: &Pool) -> (Channel, Channel) {
    let (socket, other) = UnixStream::pair().expect("sockets");
    let (one, other) = (Channel::with_pool(socket, pool, usize::MAX, false), Channel::new(other));
    send(&one, SIZE).expect("a reader");
    let message = other.receive().expect("a frame").expect("a message");
    for _ in 0..256 {
        send(&other, 10).expect("room");
        let _ = one.kept();
    }
    drop(message);
    (one, other)
}

#[test]
fn a_loan_ends_although_an_idle_end_of_its_pool_is_open() {
    let pool = Pool::new(32 << 10);
    let (socket, idle) = UnixStream::pair().expect("sockets");
    let open = Channel::with_pool(socket, &pool, usize::MAX, false);
    assert!(!open.wait(NO_TIME).expect("open"));
    let (one, _other) = full_end(&pool);
    let error = in_time(move || {
        let error = one.loan(&[("x", DType::U8, &[SIZE as i64])]).map(drop);
        error.expect_err("a full inbox").to_string()
    });
    assert!(error.contains("messages to be received"), "{error}");
    drop((open, idle));
}

#[test]
fn a_loan_waits_for_a_reader_while_another_end_is_full() {
    let pool = Pool::new(48 << 10);
    let (socket, other) = UnixStream::pair().expect("sockets");
    let (maker, reader) =
        (Channel::with_pool(socket, &pool, usize::MAX, false), Channel::new(other));
    let _full = full_end(&pool);
    let x: [(&str, DType, &[i64]); 1] = [("x", DType::U8, &[SIZE as i64])];
    send(&maker, SIZE).expect("a reader");
    assert_eq!(maker.loan_timeout(&x, NO_TIME).map(drop), Err(WaitError::Timeout));
    drop(reader.receive());
    assert!(maker.loan(&x).is_ok());
}

#[test]
fn two_ends_that_send_and_do_not_receive_are_told_of_it() {
    let (one, other) = Channel::pair().expect("sockets");
    let fill = |end: Channel| {
        thread::spawn(move || {
            loop {
                if let Err(error) = send(&end, 5_000) {
                    break (end, error);
                }
            }
        })
    };
    let both = [fill(one), fill(other)];
    let ended = in_time(move || both.map(|thread| thread.join().expect("no panic")));
    for (_, error) in &ended {
        assert!(error.to_string().contains("messages to be received"), "{error}");
    }
    let [(one, _), (other, _)] = ended;
    // Both go on once one of them receives.
    let mut found = 0;
    while one.wait(NO_TIME).expect("open") {
        assert!(one.receive().expect("a frame").is_some());
        found += 1;
    }
    assert!(found > 256, "{found}");
    send(&other, 5_000).expect("room");
}

#[test]
fn sending_ends_at_its_timeout_and_nothing_of_the_message_is_sent() {
    let (maker, reader) = Channel::pair().expect("sockets");
    let ready = |value: u8| {
        let mut loan = maker.loan(&[("x", DType::U8, &[10_000])]).expect("memory");
        loan.tensor("x").expect("there").as_slice_mut::<u8>().expect("exclusive").fill(value);
        loan.ready().expect("no tensor is alive")
    };
    let mut sent = 0;
    while maker.send_timeout(&ready(sent), NO_TIME) == Ok(()) {
        sent += 1;
    }
    assert!(sent > 1);
    let timeout = maker.send_timeout(&ready(99), Duration::from_millis(50));
    assert_eq!(timeout, Err(WaitError::Timeout));
    for value in 0..sent {
        let message = reader.receive().expect("a frame").expect("a message");
        assert_eq!(message.to_owned("x").expect("x").as_slice::<u8>().expect("own")[0], value);
    }
    assert_eq!(reader.receive_timeout(NO_TIME).map(drop), Err(WaitError::Timeout));
    maker.send_timeout(&ready(100), NO_TIME).expect("room");
    assert_eq!(reader.receive().expect("a frame").expect("a message").nbytes(), 10_000);
    // Leases that were not taken are not given.
    let mut large = 0;
    loop {
        let mut loan = maker.loan(&[("x", DType::U8, &[SIZE as i64])]).expect("memory");
        loan.metadata("k", "x".repeat(100_000));
        match maker.send_timeout(&loan.ready().expect("filled"), NO_TIME) {
            Ok(()) => large += 1,
            Err(error) => break assert_eq!(error, WaitError::Timeout),
        }
    }
    assert_eq!(maker.kept().0, large);
    // The last one was sent in part. Its rest leaves with a later call.
    for _ in 0..large {
        while matches!(reader.receive_timeout(NO_TIME), Err(WaitError::Timeout)) {
            assert!(!maker.wait(NO_TIME).expect("open"));
        }
    }
}

#[test]
fn an_end_that_is_dropped_ends_the_stream_although_its_message_is_alive() {
    for size in [10, SIZE] {
        let (maker, reader) = Channel::pair().expect("sockets");
        send(&maker, size).expect("a reader");
        let message = reader.receive().expect("a frame").expect("a message");
        drop(reader);
        let (received, kept) = in_time(move || (maker.receive().map(drop), maker.kept()));
        assert_eq!((received, kept), (Ok(()), (0, 0)));
        assert_eq!(message.to_owned("x").expect("x").as_slice::<u8>(), Ok(&vec![7; size][..]));
    }
}

#[test]
fn a_message_is_sent_again_once_it_came_back() {
    let (maker, reader) = Channel::pair().expect("sockets");
    let loan = maker.loan(&[("x", DType::U8, &[SIZE as i64])]).expect("memory");
    let ready = loan.ready().expect("filled");
    for _ in 0..3 {
        maker.send(&ready).expect("a reader");
        let error = maker.send(&ready).expect_err("the reader has it").to_string();
        assert!(error.contains("found one that it has"), "{error}");
        assert!(reader.receive().expect("a frame").is_some());
    }
}

#[test]
fn an_end_that_was_not_used_is_closed_alone() {
    let (maker, reader) = UnixStream::pair().expect("sockets");
    let (copy, reader) = (Channel::new(reader.try_clone().expect("a copy")), Channel::new(reader));
    let maker = Channel::new(maker);
    copy.close();
    drop(copy);
    send(&maker, 10).expect("a reader");
    assert!(reader.receive().expect("a frame").is_some());
    // One that was used closes the stream, whatever copies there are.
    let copy = rustix::io::dup(&maker).expect("a copy");
    drop(maker);
    assert!(in_time(move || reader.receive()).expect("the end").is_none());
    drop(copy);
}

#[test]
fn each_thread_that_receives_from_one_end_gets_its_message() {
    let one_of = |channel: &Channel| {
        let message = channel.receive().expect("a frame").expect("a message");
        i64::from(message.to_owned("x").expect("x").as_slice::<u8>().expect("own")[0])
    };
    for _ in 0..100 {
        let (one, other) = Channel::pair().expect("sockets");
        thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| one_of(&other))).collect();
            for value in 1..5_u8 {
                one.send_copy(&[("x", &Tensor::from(vec![value]))]).expect("a reader");
            }
            let sum: i64 = threads.into_iter().map(|thread| thread.join().expect("one")).sum();
            assert_eq!(sum, 10);
        });
    }
}

#[test]
fn a_socket_is_readable_when_a_message_came_after_a_look() {
    let (one, other) = Channel::pair().expect("sockets");
    for value in 0..100 {
        while other.wait(NO_TIME).expect("no error") {
            assert!(other.receive().expect("a frame").is_some());
        }
        send(&one, 10 + value).expect("a reader");
        let mut poll = [rustix::event::PollFd::new(&other, rustix::event::PollFlags::IN)];
        let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut poll, Some(&second)), Ok(1), "message {value}");
    }
}

/// A datagram that is longer than a read is cut, and no datagram tells that the other end is closed.
#[test]
fn a_socket_that_is_no_stream_is_refused() {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    for kind in [SocketType::DGRAM, SocketType::SEQPACKET] {
        let ends = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let (one, _other) = ends.expect("sockets");
        let channel = Channel::from(UnixStream::from(one));
        let expects = |error: Error| assert!(error.to_string().contains("SOCK_STREAM"), "{error}");
        expects(channel.receive().map(drop).expect_err("no stream"));
        expects(channel.send_copy(&[("x", &Tensor::from(vec![1_u8]))]).expect_err("no stream"));
        expects(
            channel.send_copy(&[("x", &Tensor::from(vec![1_u8; 1 << 16]))]).expect_err("no stream"),
        );
    }
}
