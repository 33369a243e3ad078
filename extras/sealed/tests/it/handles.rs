//! Clients of a handle's maker that break its protocol. Other processes and users belong to
//! `test_sealed_processes.py`.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use dlbridge::Tensor;
use dlbridge_sealed::{Opening, Opens, SealedTensors, WaitError, open_handle};
use rustix::time::{ClockId, clock_gettime};

/// Where a handle has the name of its maker's socket, and where its secret.
const NAME: usize = 52;
const SECRET: usize = 68;

fn sealed() -> SealedTensors {
    SealedTensors::try_from(&Tensor::from(vec![1_u8, 2])).expect("memory")
}

fn connect(handle: &[u8]) -> UnixStream {
    let name = [b"dlbridge-", &handle[NAME..SECRET]].concat();
    let address = SocketAddr::from_abstract_name(name).expect("a name");
    UnixStream::connect_addr(&address).expect("the maker")
}

#[test]
fn clients_that_are_silent_delay_no_other() {
    let sealed = sealed();
    let handle = sealed.handle(Opens::Many).expect("a server");
    let silent: Vec<_> = (0..100).map(|_| connect(&handle)).collect();
    let start = Instant::now();
    for _ in 0..10 {
        open_handle(&handle).expect("a handle");
    }
    // Each of them would be waited for, for a second.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    // The maker gives each of them up.
    for mut client in silent {
        client.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
        assert_eq!(client.read(&mut [0]).expect("the end"), 0);
    }
}

#[test]
fn a_client_gets_nothing_for_anything_but_a_secret() {
    let sealed = sealed();
    let handle = sealed.handle(Opens::Many).expect("a server");
    let mut forged = handle[SECRET..].to_vec();
    forged[0] ^= 1;
    for sent in [&[][..], &handle[SECRET..SECRET + 15], &forged, &[0; 1000]] {
        let mut client = connect(&handle);
        client.write_all(sent).expect("a socket");
        client.shutdown(std::net::Shutdown::Write).expect("a socket");
        client.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
        // The end, also with bytes that the maker did not read.
        assert!(!matches!(client.read(&mut [0]), Ok(1)));
    }
    assert!(open_handle(&handle).is_ok());
}

#[test]
fn a_maker_that_is_silent_is_waited_for_as_long_as_told() {
    let sealed = sealed();
    let mut handle = sealed.handle(Opens::Many).expect("a server");
    // A process that listens and does not answer, then one whose queue is full.
    handle[NAME..SECRET].copy_from_slice(&[7; 16]);
    let name = [b"dlbridge-", &handle[NAME..SECRET]].concat();
    let address = SocketAddr::from_abstract_name(name).expect("a name");
    let _listener = std::os::unix::net::UnixListener::bind_addr(&address).expect("a name");
    let wait = || {
        let mut opening = Opening::new(&handle).expect("a handle");
        let start = Instant::now();
        for _ in 0..2 {
            let opened = opening.wait(Duration::from_millis(50)).map(drop);
            assert_eq!(opened, Err(WaitError::Timeout));
        }
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        opening
    };
    let full: Vec<_> = (0..5000).map_while(|_| connect_now(&address)).collect();
    let busy = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let before = busy();
    wait();
    let busy = busy() - before;
    assert!(busy < Duration::from_millis(25), "it waits 100 ms, and is busy for {busy:?}");
    drop(full);
    let start = Instant::now();
    let error = open_handle(&handle).map(drop).expect_err("silence").to_string();
    assert!(error.contains("found none in 10 s"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

/// A connection, unless the queue of the listener is full.
fn connect_now(address: &SocketAddr) -> Option<rustix::fd::OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let socket = socket.expect("a socket");
    let address = SocketAddrUnix::new_abstract_name(address.as_abstract_name()?).expect("a name");
    rustix::net::connect(&socket, &address).is_ok().then_some(socket)
}
