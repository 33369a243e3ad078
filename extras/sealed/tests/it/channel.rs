//! Channels in one process: what travels, when memory is used again, and limits. Peers that break the
//! protocol belong to `channel_hostile.rs`, other processes to `processes/`.

use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use dlbridge::{Access, DType, Error, Tensor};
use dlbridge_sealed::{Channel, Pool, WaitError};

const NO_TIME: Duration = Duration::ZERO;
/// Too large to travel inline.
const SIZE: i64 = 100_000;

fn pair_with(pool: &Pool, quota: usize) -> (Channel, Channel) {
    let (one, other) = UnixStream::pair().expect("sockets");
    (Channel::with_pool(one, pool, quota, false), Channel::new(other))
}

/// Sends a message of bytes with one value.
fn send(channel: &Channel, value: u8) {
    let mut loan = channel.loan(&[("x", DType::U8, &[SIZE])]).expect("memory");
    loan.tensor("x").expect("there").as_slice_mut::<u8>().expect("exclusive").fill(value);
    loan.send().expect("a reader");
}

/// Lets no call of this thread add the seal `FUTURE_WRITE`, as Linux before 5.1. Whether it was possible.
#[cfg(all(target_endian = "little", target_pointer_width = "64"))]
#[allow(unsafe_code, reason = "calls of the system")]
fn forget_the_seal() -> bool {
    let test = |at: u32, wanted: libc::c_int, or: u8, code: u32| {
        [(0x20, 0, 0, at), (code as u16, 0, or, wanted as u32)]
    };
    let [fcntl, adds, seal] = [
        test(0, libc::SYS_fcntl as libc::c_int, 5, 0x15),
        test(24, libc::F_ADD_SEALS, 3, 0x15),
        test(32, libc::F_SEAL_FUTURE_WRITE, 1, 0x45),
    ];
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32;
    let ends = [(0x06, 0, 0, refuse), (0x06, 0, 0, libc::SECCOMP_RET_ALLOW)];
    let words = [fcntl, adds, seal, ends].concat();
    let mut filter: Vec<_> =
        words.into_iter().map(|(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k }).collect();
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: a setting of this thread.
    let is_set = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    let (option, mode) = (libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER);
    // SAFETY: a program that lives during the call, for this thread alone.
    let is_filtered = unsafe { libc::prctl(option, mode, &raw const program) };
    (is_set, is_filtered) == (0, 0)
}

#[cfg(all(target_endian = "little", target_pointer_width = "64"))]
#[test]
fn memory_that_a_reader_would_refuse_is_not_loaned() {
    let loaned = thread::spawn(|| {
        forget_the_seal().then(|| {
            let (maker, _reader) = Channel::pair().expect("sockets");
            maker.loan(&[("x", DType::U8, &[SIZE])]).map(drop)
        })
    });
    match loaned.join().expect("no panic") {
        Some(loaned) => {
            let error = loaned.expect_err("no seal").to_string();
            assert!(error.contains("expected Linux 5.1 or newer"), "{error}");
        }
        None => println!("skipped: no filter of system calls here"),
    }
}

#[test]
fn every_size_type_and_shape_arrives_as_it_was_sent() {
    let (maker, reader) = Channel::pair().expect("sockets");
    for count in [0, 1, 1000, 4096, 4097, 1 << 18] {
        let x = Tensor::from((0..count).map(f64::from).collect::<Vec<_>>());
        let y = Tensor::builder(vec![1_i16, 2, 3, 4, 5, 6]).shape([3]).strides([-2]).offset(5);
        let y = y.build().expect("inside");
        maker.send_copy(&[("x", &x), ("y", &y)]).expect("a reader");
        let message = reader.receive().expect("a frame").expect("a message");
        assert_eq!(message.names().collect::<Vec<_>>(), ["x", "y"]);
        let (found, own) = (message.tensor("x").expect("x"), message.to_owned("x").expect("x"));
        assert_eq!((found.access(), own.access()), (Access::Shared, Access::Exclusive));
        assert!(found.is_read_only());
        assert_eq!(own.as_slice::<f64>(), x.as_slice());
        assert!(found.view::<f64>().expect("x").iter().eq(x.view::<f64>().expect("x").iter()));
        let y = message.to_owned("y").expect("y");
        assert_eq!(y.as_slice::<i16>(), Ok(&[6, 4, 2][..]));
        assert_eq!(found.data_ptr().addr() % 64, 0);
        let unknown = Error::UnknownName { what: "tensor", name: "z".into() };
        assert_eq!(message.tensor("z").map(drop), Err(unknown));
    }
    drop(maker);
    assert!(reader.receive().expect("the end").is_none());
    assert!(reader.receive().expect("the end").is_none());
}

/// Each pool counts its slots, and the other end knows them by number.
#[test]
fn a_message_of_another_pool_is_refused() {
    let (maker, _reader) = Channel::pair().expect("sockets");
    let (other, reader) = Channel::pair().expect("sockets");
    for size in [1, SIZE] {
        let loan = maker.loan(&[("x", DType::U8, &[size])]).expect("memory");
        let refused = other.send(&loan.ready().expect("filled")).expect_err("another pool");
        assert!(refused.to_string().contains("found one of another"), "{refused}");
    }
    send(&other, 7);
    assert!(reader.receive().expect("a frame").is_some());
}

#[test]
fn memory_is_used_again_once_all_tensors_of_a_message_are_dropped() {
    let pool = Pool::new(1 << 20);
    let (maker, reader) = pair_with(&pool, usize::MAX);
    let mut addresses = Vec::new();
    for value in 0..5 {
        send(&maker, value);
        let message = reader.receive().expect("a frame").expect("a message");
        let tensor = message.tensor("x").expect("x");
        drop(message);
        assert_eq!(maker.kept().0, 1);
        addresses.push(tensor.data_ptr());
        assert!(tensor.view::<u8>().expect("bytes").iter().all(|byte| byte == value));
    }
    // One slot, and one mapping of it in the reader.
    assert!(addresses.iter().all(|address| *address == addresses[0]));
    assert!(pool.nbytes() < 2 * SIZE as usize);
    assert_eq!(maker.kept(), (0, 0));
}

#[test]
fn a_loan_waits_while_readers_have_all_memory() {
    let pool = Pool::new(2 * SIZE as usize);
    let (maker, reader) = pair_with(&pool, usize::MAX);
    send(&maker, 1);
    let tensors: [(&str, DType, &[i64]); 1] = [("x", DType::U8, &[SIZE])];
    assert_eq!(maker.loan_timeout(&tensors, NO_TIME).map(drop), Err(WaitError::Timeout));
    let message = reader.receive().expect("a frame").expect("a message");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| send(&maker, 2));
        thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished());
        assert_eq!(message.to_owned("x").expect("x").as_slice::<u8>().expect("bytes")[0], 1);
        drop(message);
    });
    assert_eq!(reader.receive().expect("a frame").expect("a message").names().len(), 1);
    let too_large = maker.loan(&[("x", DType::U8, &[1 << 20])]).map(drop).expect_err("the limit");
    assert!(too_large.to_string().contains("the limit of the pool"), "{too_large}");
}

#[test]
fn one_message_goes_to_several_readers() {
    let pool = Pool::new(2 * SIZE as usize);
    let ends: Vec<_> = (0..3).map(|_| pair_with(&pool, usize::MAX)).collect();
    for value in 0..4_u8 {
        let mut loan = pool.loan(&[("x", DType::U8, &[SIZE])]).expect("memory");
        loan.tensor("x").expect("there").as_slice_mut::<u8>().expect("exclusive").fill(value);
        let ready = loan.ready().expect("no tensor is alive");
        ends.iter().for_each(|(maker, _)| maker.send(&ready).expect("a reader"));
        drop(ready);
        let receive = |(_, reader): &(_, Channel)| reader.receive().expect("a frame").expect("one");
        let messages: Vec<_> = ends.iter().map(receive).collect();
        for message in messages {
            // The slot is free when the last one has returned it.
            let more = pool.loan_timeout(&[("x", DType::U8, &[SIZE])], NO_TIME);
            assert_eq!(more.map(drop), Err(WaitError::Timeout));
            let x = message.to_owned("x").expect("x");
            assert!(x.as_slice::<u8>().expect("bytes").iter().all(|&byte| byte == value));
        }
    }
}

#[test]
fn a_reader_that_returns_nothing_reaches_its_quota_alone() {
    let pool = Pool::new(8 * SIZE as usize);
    let (slow, slow_reader) = pair_with(&pool, 2 * SIZE as usize);
    let (quick, quick_reader) = pair_with(&pool, usize::MAX);
    let mut refusals = 0;
    for value in 0..20 {
        let mut loan = pool.loan(&[("x", DType::U8, &[SIZE])]).expect("memory");
        loan.tensor("x").expect("there").as_slice_mut::<u8>().expect("exclusive").fill(value);
        let ready = loan.ready().expect("no tensor is alive");
        if let Err(error) = slow.send(&ready) {
            assert!(error.to_string().contains("found 1 messages"), "{error}");
            refusals += 1;
        }
        quick.send(&ready).expect("a reader");
        assert!(quick_reader.receive().expect("a frame").is_some());
    }
    assert_eq!(refusals, 19);
    drop(slow_reader);
    assert_eq!(slow.kept(), (0, 0));
}

#[test]
fn what_a_reader_has_returned_counts_for_no_quota() {
    let pool = Pool::new(8 * SIZE as usize);
    let (maker, reader) = pair_with(&pool, 2 * SIZE as usize);
    for value in 0..20 {
        // A free slot is loaned without a look at what came.
        let spare = maker.loan(&[("x", DType::U8, &[SIZE])]).expect("memory");
        send(&maker, value);
        drop((spare, reader.receive().expect("a frame").expect("a message")));
    }
    assert!(pool.nbytes() < 4 * SIZE as usize);
}

#[test]
fn what_came_before_the_other_end_closed_is_received_after_a_failed_send() {
    let (maker, reader) = Channel::pair().expect("sockets");
    send(&maker, 1);
    let loan = maker.loan(&[("x", DType::U8, &[SIZE])]).expect("memory");
    let message = reader.receive().expect("a frame").expect("a message");
    drop(message); // A frame that ends the lease is before the answer.
    send(&reader, 2);
    drop(reader);
    assert!(loan.send().is_err());
    let answer = maker.receive().expect("no error").expect("the answer");
    assert_eq!(answer.to_owned("x").expect("x").as_slice::<u8>().expect("exclusive")[0], 2);
    assert!(maker.receive().expect("the end").is_none());
}

#[test]
fn a_tensor_that_is_alive_prevents_sending() {
    let (maker, reader) = Channel::pair().expect("sockets");
    let mut loan = maker.loan(&[("x", DType::U8, &[SIZE])]).expect("memory");
    let mut alive = loan.tensor("x").expect("there");
    let again = loan.tensor("x").map(drop).expect_err("taken").to_string();
    assert!(again.contains("expected a tensor that is not taken out"), "{again}");
    assert_eq!(loan.alive(), 1);
    let error = loan.send().expect_err("a tensor is alive").to_string();
    assert!(error.contains("found 1 alive"), "{error}");
    // Its memory is used by no other loan.
    let mut other = maker.loan(&[("x", DType::U8, &[SIZE])]).expect("memory");
    assert_ne!(other.tensor("x").expect("there").data_ptr(), alive.data_ptr());
    alive.as_slice_mut::<u8>().expect("exclusive").fill(9);
    drop((maker, other));
    assert!(reader.receive().expect("the end").is_none());
    let twice = Channel::pair().expect("sockets").0;
    let twice = twice.loan(&[("x", DType::U8, &[1]), ("x", DType::U8, &[1])]);
    assert!(twice.map(drop).expect_err("twice").to_string().contains("used twice"));
}

#[test]
fn a_message_outlives_its_channel_and_keeps_its_values() {
    let pool = Pool::new(1 << 20);
    let (maker, reader) = pair_with(&pool, usize::MAX);
    send(&maker, 7);
    let message = reader.receive().expect("a frame").expect("a message");
    let tensor = message.tensor("x").expect("x");
    drop((maker, reader, message));
    let (maker, reader) = pair_with(&pool, usize::MAX);
    send(&maker, 8);
    assert!(reader.receive().expect("a frame").is_some());
    assert!(tensor.view::<u8>().expect("bytes").iter().all(|byte| byte == 7));
}

#[test]
fn both_ends_send_more_than_their_sockets_hold() {
    let (one, other) = Channel::pair().expect("sockets");
    let echo = |channel: Channel| {
        let x = Tensor::from(vec![1_u8; 10_000]);
        for _ in 0..200 {
            channel.send_copy(&[("x", &x)]).expect("a reader");
        }
        for _ in 0..200 {
            assert!(channel.receive().expect("a frame").is_some());
        }
    };
    thread::scope(|scope| {
        scope.spawn(move || echo(one));
        echo(other);
    });
}

#[test]
fn a_private_mapping_has_the_values_of_the_message_after_a_write() {
    let (one, other) = UnixStream::pair().expect("sockets");
    let (maker, reader) =
        (Channel::new(one), Channel::with_pool(other, &Pool::default(), usize::MAX, true));
    for value in 0..3 {
        send(&maker, value);
        let message = reader.receive().expect("a frame").expect("a message");
        let x = message.tensor("x").expect("x");
        assert!(x.view::<u8>().expect("bytes").iter().all(|byte| byte == value));
        // As a consumer does that ignores `READ_ONLY`.
        // SAFETY: the page is writable, and no other code of this process has it.
        #[allow(unsafe_code)]
        unsafe {
            x.data_ptr().cast::<u8>().write_volatile(99);
        }
    }
}

#[test]
fn a_message_is_sealed_by_one_copy() {
    let (maker, reader) = Channel::pair().expect("sockets");
    let (x, y) = (Tensor::from(vec![7_u8; SIZE as usize]), Tensor::from(vec![1_i64, 2, 3]));
    for tensors in [&[("y", &y), ("x", &x)][..], &[("y", &y)]] {
        maker.send_copy(tensors).expect("a reader");
        let sealed = reader.receive().expect("a frame").expect("a message").seal();
        let sealed = sealed.expect("memory");
        // The memory is free again, and the values stay.
        assert_eq!(maker.kept(), (0, 0));
        send(&maker, 8);
        assert!(reader.receive().expect("a frame").is_some());
        assert!(sealed.names().eq(tensors.iter().map(|(name, _)| *name)));
        let kept = sealed.tensor("y").expect("y");
        assert_eq!((kept.access(), kept.as_slice::<i64>()), (Access::Frozen, y.as_slice()));
    }
}

#[test]
fn texts_travel_beside_the_tensors_of_a_message() {
    let (maker, reader) = Channel::pair().expect("sockets");
    for size in [1, SIZE] {
        for texts in [vec![], vec![("id", "7")], vec![("", ""), ("ключ", "\0"), ("id", "8")]] {
            let mut loan = maker.loan(&[("x", DType::U8, &[size])]).expect("memory");
            texts.iter().for_each(|&(key, value)| loan.metadata(key, value));
            loan.send().expect("a reader");
            let message = reader.receive().expect("a frame").expect("a message");
            let found = message.metadata().iter().map(|(key, value)| (&**key, &**value));
            let mut wanted = texts;
            wanted.sort_unstable();
            assert_eq!(found.collect::<Vec<_>>(), wanted);
        }
    }
    // As much as fits, and one more.
    for (size, is_sent) in [((128 << 10) - 9, true), ((128 << 10) - 8, false)] {
        let mut loan = maker.loan(&[]).expect("memory");
        loan.metadata("k", "x".repeat(size));
        let sent = loan.send();
        assert_eq!(sent.is_ok(), is_sent, "{sent:?}");
    }
    let message = reader.receive().expect("a frame").expect("a message");
    assert_eq!(message.metadata()["k"].len(), (128 << 10) - 9);
}
