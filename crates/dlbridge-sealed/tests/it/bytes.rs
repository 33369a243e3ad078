//! Channels that send bytes, over TCP and over Unix sockets, in one process. Peers that break the protocol belong to
//! `bytes_hostile.rs`, other processes to `processes/`.

use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use dlbridge::{Access, DType, Error, Tensor};
use dlbridge_sealed::{Channel, Pool};

const NO_TIME: Duration = Duration::ZERO;
/// More than the buffers of a socket hold.
const LARGE: i64 = 16 << 20;

pub(crate) fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let one = TcpStream::connect(listener.local_addr().expect("a port")).expect("a listener");
    (one, listener.accept().expect("a connection").0)
}

fn pair() -> (Channel, Channel) {
    let (one, other) = tcp();
    (one.into(), other.into())
}

#[cfg(unix)]
fn unix_pair() -> (Channel, Channel) {
    let (one, other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let pool = Pool::default();
    (Channel::by_bytes(one, &pool), Channel::by_bytes(other, &pool))
}
#[cfg(not(unix))]
fn unix_pair() -> (Channel, Channel) {
    Channel::pair().expect("sockets")
}

fn send(channel: &Channel, size: i64, value: u8) {
    let mut loan = channel.loan(&[("x", DType::U8, &[size])]).expect("memory");
    loan.tensor("x").expect("there").as_slice_mut::<u8>().expect("exclusive").fill(value);
    loan.send().expect("a reader");
}

#[test]
fn every_size_type_and_shape_arrives_as_it_was_sent() {
    for (maker, reader) in [pair(), unix_pair()] {
        assert!(!maker.shares_memory() && !reader.shares_memory());
        for count in [0, 1, 1000, 4097, 1 << 18] {
            let x = Tensor::from((0..count).map(f64::from).collect::<Vec<_>>());
            let y = Tensor::builder(vec![1_i16, 2, 3, 4, 5, 6]).shape(&[3]).strides(&[-2]);
            let y = y.offset(5).build().expect("inside");
            let empty = Tensor::zeros(DType::F32, &[0, 3]).expect("no elements");
            thread::scope(|scope| {
                scope.spawn(|| maker.send_copy(&[("y", &y), ("empty", &empty), ("x", &x)]));
                let message = reader.receive().expect("a frame").expect("a message");
                assert_eq!(message.names().collect::<Vec<_>>(), ["y", "empty", "x"]);
                let (found, own) = (message.tensor("x").expect("x"), message.to_owned("x"));
                let own = own.expect("memory");
                assert_eq!((found.access(), own.access()), (Access::Shared, Access::Exclusive));
                assert!(found.is_read_only());
                assert_eq!(own.as_slice::<f64>(), x.as_slice());
                assert_eq!(found.data_ptr().addr() % 64, 0);
                let unknown = Error::UnknownName { what: "tensor", name: "z".into() };
                assert_eq!(message.tensor("z").map(drop), Err(unknown));
                let tensors = message.into_tensors().expect("memory");
                let [(_, y), (_, empty), (_, again)] = &tensors[..] else { panic!("three") };
                assert_eq!(y.as_slice::<i16>(), Ok(&[6, 4, 2][..]));
                assert_eq!(empty.shape(), [0, 3]);
                // `found` shares the memory, so that this is a copy.
                assert_eq!(again.as_slice::<f64>(), x.as_slice());
                assert_eq!(
                    found.view::<f64>().expect("x").to_vec(),
                    own.as_slice::<f64>().expect("own")
                );
            });
        }
        assert_eq!(maker.kept(), (0, 0));
        drop(maker);
        assert!(reader.receive().expect("the end").is_none());
        assert!(reader.receive().expect("the end").is_none());
    }
}

#[test]
fn tensors_that_were_not_shared_are_exclusive_without_a_copy() {
    let (maker, reader) = pair();
    send(&maker, 1000, 7);
    let message = reader.receive().expect("a frame").expect("a message");
    let mut tensors = message.into_tensors().expect("no copy");
    let (name, x) = &mut tensors[0];
    assert_eq!((&name[..], x.access()), ("x", Access::Exclusive));
    x.as_slice_mut::<u8>().expect("exclusive").fill(8);
}

#[test]
fn a_tensor_that_is_alive_prevents_sending() {
    let (maker, reader) = pair();
    let mut loan = maker.loan(&[("x", DType::U8, &[10]), ("y", DType::U8, &[10])]).expect("memory");
    let alive = loan.tensor("x").expect("there");
    let again = loan.tensor("x").map(drop).expect_err("taken").to_string();
    assert!(again.contains("expected a tensor that is not taken out"), "{again}");
    assert_eq!(loan.alive(), 1);
    let error = loan.send().expect_err("a tensor is alive").to_string();
    assert!(error.contains("found 1 alive"), "{error}");
    drop((alive, maker));
    assert!(reader.receive().expect("the end").is_none());
}

#[test]
fn messages_are_bounded_by_the_pool_in_both_directions() {
    let (one, other) = tcp();
    let (small, large) = (Pool::new(1000), Pool::new(1 << 20));
    let (maker, reader) = (Channel::by_bytes(one, &large), Channel::by_bytes(other, &small));
    let error = reader.loan(&[("x", DType::U8, &[1001])]).map(drop).expect_err("too large");
    assert!(error.to_string().contains("at most 1000 bytes, the limit of the pool"), "{error}");
    send(&maker, 1000, 1);
    send(&maker, 1001, 2);
    assert!(reader.receive().expect("a frame").is_some());
    let error = reader.receive().map(drop).expect_err("too large");
    assert!(error.to_string().contains("1001 bytes, where at most 1000"), "{error}");
}

#[test]
fn a_socket_that_is_full_makes_the_sender_wait() {
    let (maker, reader) = pair();
    let mut loan = maker.loan(&[("x", DType::U8, &[LARGE])]).expect("memory");
    loan.tensor("x").expect("there").as_slice_mut::<u8>().expect("exclusive").fill(7);
    let ready = loan.ready().expect("no tensor is alive");
    let start = Instant::now();
    maker.post(&ready).expect("a reader");
    assert!(!maker.flush(Duration::from_millis(10)).expect("a reader"));
    assert!(start.elapsed() < Duration::from_secs(5));
    thread::scope(|scope| {
        let sending = scope.spawn(|| maker.send(&ready));
        for _ in 0..2 {
            let message = reader.receive().expect("a frame").expect("a message");
            let x = message.to_owned("x").expect("memory");
            assert!(x.as_slice::<u8>().expect("bytes") == vec![7; LARGE as usize]);
        }
        sending.join().expect("no panic").expect("a reader");
    });
}

#[test]
fn both_ends_send_more_than_their_sockets_hold() {
    let (one, other) = pair();
    let echo = |channel: Channel| {
        (0..4).for_each(|value| send(&channel, LARGE, value));
        for value in 0..4 {
            let message = channel.receive().expect("a frame").expect("a message");
            let x = message.to_owned("x").expect("memory");
            assert_eq!(x.as_slice::<u8>().expect("bytes")[LARGE as usize - 1], value);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| echo(one));
        echo(other);
    });
}

#[test]
fn a_message_of_a_pool_goes_to_ends_of_both_kinds() {
    let pool = Pool::new(1 << 20);
    let ((tcp, tcp_reader), (local, local_reader)) = (tcp(), local_pair());
    let ends = [
        (Channel::by_bytes(tcp, &pool), Channel::from(tcp_reader)),
        (with_pool(local, &pool), local_reader.into()),
    ];
    for size in [10, 100_000] {
        let loan = pool.loan(&[("x", DType::U8, &[3]), ("y", DType::U8, &[size])]);
        let mut loan = loan.expect("memory");
        loan.tensor("x").expect("there").as_slice_mut::<u8>().expect("exclusive").fill(3);
        loan.tensor("y").expect("there").as_slice_mut::<u8>().expect("exclusive").fill(7);
        let ready = loan.ready().expect("no tensor is alive");
        for (maker, reader) in &ends {
            maker.send(&ready).expect("a reader");
            let message = reader.receive().expect("a frame").expect("a message");
            let y = message.to_owned("y").expect("memory");
            assert_eq!(y.as_slice::<u8>().expect("bytes"), vec![7; size as usize]);
            assert_eq!(message.to_owned("x").expect("memory").as_slice::<u8>(), Ok(&[3; 3][..]));
        }
    }
    if ends[1].0.shares_memory() {
        let loan = ends[0].0.loan(&[("x", DType::U8, &[3])]).expect("memory");
        let error = ends[1].0.send(&loan.ready().expect("none alive")).expect_err("no slot");
        assert!(error.to_string().contains("found one of a channel that sends bytes"), "{error}");
    }
}

#[cfg(unix)]
use std::os::unix::net::UnixStream as Local;
#[cfg(not(unix))]
type Local = TcpStream;

fn local_pair() -> (Local, Local) {
    #[cfg(unix)]
    return Local::pair().expect("sockets");
    #[cfg(not(unix))]
    return tcp();
}

fn with_pool(socket: Local, pool: &Pool) -> Channel {
    #[cfg(unix)]
    return Channel::with_pool(socket, pool, usize::MAX, false);
    #[cfg(not(unix))]
    return Channel::by_bytes(socket, pool);
}

#[cfg(target_os = "linux")]
#[test]
fn a_message_is_kept_as_a_copy() {
    let (maker, reader) = pair();
    send(&maker, 1000, 7);
    let message = reader.receive().expect("a frame").expect("a message");
    let sealed = message.keep(NO_TIME).expect("no error").expect("a copy needs no answer");
    assert_eq!(sealed.tensor("x").expect("x").as_slice::<u8>(), Ok(&[7; 1000][..]));
}

#[test]
fn waiting_ends_with_its_time_and_with_the_stream() {
    let (maker, reader) = pair();
    let start = Instant::now();
    assert!(!reader.wait(NO_TIME).expect("no error"));
    assert!(!reader.wait(Duration::from_millis(20)).expect("no error"));
    assert!(start.elapsed() >= Duration::from_millis(20));
    maker.close();
    assert!(reader.wait(Duration::MAX).expect("the end"));
    assert!(reader.receive().expect("the end").is_none());
    let x = Tensor::from(vec![1_u8; 1 << 20]);
    let error = (0..100).find_map(|_| reader.send_copy(&[("x", &x)]).err()).expect("closed");
    assert!(error.to_string().contains("the other end is closed"), "{error}");
}
