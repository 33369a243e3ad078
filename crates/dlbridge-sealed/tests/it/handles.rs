//! Clients of a handle's maker that break its protocol. Other processes and users belong to
//! `test_sealed_processes.py`.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use dlbridge::Tensor;
use dlbridge_sealed::{Opens, SealedTensors, open_handle};

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
