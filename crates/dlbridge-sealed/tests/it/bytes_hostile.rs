//! Peers of a channel by bytes that break its protocol: each ends its channel with an error.

use std::io::Write;
use std::time::{Duration, Instant};

use dlbridge_sealed::{Channel, Pool};

use crate::bytes::tcp;

const BYTES: u32 = 9;
const LIMIT: usize = 1 << 30;

fn head(kind: u32, described: u32, values: u64) -> Vec<u8> {
    let numbers = [kind, described, 0, 0];
    let mut head: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    head.extend(values.to_ne_bytes());
    head.extend([0; 8]);
    head
}

/// A frame of tensors of bytes: their sizes and offsets.
fn frame(tensors: &[(i64, u64)], values: u64) -> Vec<u8> {
    let describe = |&(size, offset): &(i64, u64)| {
        let mut described = 1_u32.to_ne_bytes().to_vec();
        described.extend([b'x', 1, 8, 1, 0, 1]);
        described.extend(size.to_ne_bytes());
        described.extend(offset.to_ne_bytes());
        described
    };
    let description: Vec<u8> = tensors.iter().flat_map(describe).collect();
    [head(BYTES, description.len() as u32, values), description].concat()
}

/// Why a reader closes its channel.
fn why(bytes: &[u8]) -> String {
    let (mut attacker, socket) = tcp();
    let reader = Channel::by_bytes(socket, &Pool::new(LIMIT));
    attacker.write_all(bytes).expect("room");
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
    let whole = [frame(&[(4, 0)], 4), vec![7; 4]].concat();
    let cut = |len: usize| whole[..len].to_vec();
    let long = [head(BYTES, (128 << 10) + 1, 0), vec![0; 1000]].concat();
    let mut text = whole.clone();
    text[32 + 4] = 0xff;
    for (frame, wanted) in [
        (vec![0; 32], "a frame of kind 0"),
        (b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n".to_vec(), "a frame of kind"),
        (head(1, 0, 0), "an end that shares memory, while this one sends bytes"),
        (head(3, 0, 0), "an end that shares memory"),
        (head(BYTES.swap_bytes(), 0, 0), "a machine of the other byte order"),
        (cut(31), "ends early"),
        (cut(40), "ends early"),
        (cut(whole.len() - 1), "ends early"),
        (long, "131073"),
        (frame(&[(1 << 60, 0)], 1 << 60), "where at most 1073741824 are allowed"),
        (frame(&[(4, 0)], u64::MAX), "where at most"),
        (frame(&[(4, 0)], 3), "a tensor of 4 bytes at 0 in 3"),
        (frame(&[(4, 0)], 5), "a message of 5 bytes with tensors of 4"),
        (frame(&[(4, 64)], 68), "at 64, after one that ends at 0"),
        (frame(&[(4, 0), (4, 0)], 4), "at 0, after one that ends at 4"),
        (frame(&[(4, 0), (4, 128)], 132), "at 128, after one that ends at 4"),
        (frame(&[(4, 0), (4, 1)], 132), "at 1 in 132"),
        (frame(&[(-1, 0)], 64), "found -1"),
        (text, "no UTF-8"),
        ([whole.clone(), vec![1; 40]].concat(), "a frame of kind 16843009"),
    ] {
        let found = why(&frame);
        assert!(found.contains(wanted), "{wanted}: {found}");
    }
    assert_eq!(why(&[whole.clone(), whole].concat()), "the end");
    // As many names as fit are read, and none is compared with each other.
    assert_eq!(why(&frame(&[(0, 0); 4000], 0)), "the end");
}

#[test]
fn a_frame_that_comes_byte_by_byte_keeps_nobody_longer_than_the_timeout() {
    let (mut attacker, socket) = tcp();
    let reader = Channel::from(socket);
    let whole = [frame(&[(2, 0), (2, 64)], 66), vec![7; 66]].concat();
    let (last, drip) = whole.split_last().expect("bytes");
    for byte in drip {
        attacker.write_all(&[*byte]).expect("room");
        let start = Instant::now();
        assert!(!reader.wait(Duration::from_millis(1)).expect("no error"));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    attacker.write_all(&[*last]).expect("room");
    let message = reader.receive().expect("a frame").expect("a message");
    assert_eq!(message.to_owned("x").expect("memory").as_slice::<u8>(), Ok(&[7; 2][..]));
}

#[cfg(target_os = "linux")]
#[test]
fn a_size_that_is_only_claimed_takes_no_memory() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/statm").expect("procfs");
        let pages: usize = status.split(' ').nth(1).expect("a number").parse().expect("a number");
        pages * 4096
    };
    let before = resident();
    let peers = (0..20).map(|_| {
        let (mut attacker, socket) = tcp();
        let reader = Channel::by_bytes(socket, &Pool::new(LIMIT));
        attacker.write_all(&frame(&[(LIMIT as i64, 0)], LIMIT as u64)).expect("room");
        assert!(!reader.wait(Duration::from_millis(1)).expect("no error"));
        (attacker, reader)
    });
    let peers: Vec<_> = peers.collect();
    assert!(resident() < before + (64 << 20), "{} of {} peers", resident() - before, peers.len());
}
