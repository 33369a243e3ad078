//! Channels in one process: what travels, when memory is used again, and limits. Peers that break the
//! protocol belong to `channel_hostile.rs`, other processes to `processes/`.

use std::fs;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use dlbridge::{Access, DType, Error, Tensor};
use dlbridge_sealed::{Channel, Message, Opens, Pool, SealedTensors, open_handle};

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

#[test]
fn every_size_type_and_shape_arrives_as_it_was_sent() {
    let (maker, reader) = Channel::pair().expect("sockets");
    for count in [0, 1, 1000, 4096, 4097, 1 << 18] {
        let x = Tensor::from((0..count).map(f64::from).collect::<Vec<_>>());
        let y = Tensor::builder(vec![1_i16, 2, 3, 4, 5, 6]).shape(&[3]).strides(&[-2]).offset(5);
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
    assert!(maker.loan_timeout(&tensors, NO_TIME).expect("no error").is_none());
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
            let mut more =
                pool.loan_timeout(&[("x", DType::U8, &[SIZE])], NO_TIME).expect("no error");
            assert!(more.take().is_none());
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
fn a_maker_of_small_messages_answers_who_keeps_a_large_one() {
    let (maker, reader) = Channel::pair().expect("sockets");
    send(&maker, 1);
    let message = reader.receive().expect("a frame").expect("a message");
    assert!(message.keep(NO_TIME).expect("no error").is_none());
    for _ in 0..20 {
        maker.send_copy(&[("y", &Tensor::from(vec![1_i64]))]).expect("a reader");
    }
    assert!(message.keep(NO_TIME).expect("no error").is_some());
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

/// Keeps a message while another thread looks at its maker.
fn keep(maker: &Channel, message: &Message) -> SealedTensors {
    assert!(message.keep(NO_TIME).expect("no error").is_none());
    thread::scope(|scope| {
        scope.spawn(|| maker.kept());
        message.keep(Duration::MAX).expect("no error").expect("an answer")
    })
}

#[test]
fn a_message_is_kept_as_sealed_tensors_over_the_same_memory() {
    let pool = Pool::new(1 << 20);
    let (maker, reader) = pair_with(&pool, usize::MAX);
    let x = Tensor::from(vec![7_u8; SIZE as usize]);
    let y = Tensor::from(vec![1_i64, 2, 3]);
    maker.send_copy(&[("y", &y), ("x", &x)]).expect("a reader");
    let message = reader.receive().expect("a frame").expect("a message");
    let file = |tensor: &Tensor| file_at(tensor.data_ptr().addr());
    let before = file(&message.tensor("x").expect("x"));
    let sealed = keep(&maker, &message);
    assert_eq!(sealed.names().collect::<Vec<_>>(), ["y", "x"]);
    let kept = sealed.tensor("x").expect("x");
    assert_eq!((kept.access(), kept.as_slice::<u8>()), (Access::Frozen, x.as_slice()));
    if is_linux_6_7() {
        assert_eq!(file(&kept), before);
    }
    // The memory has left the pool, and its values stay when the message is gone.
    drop(message);
    assert_eq!((maker.kept(), pool.nbytes()), ((0, 0), 0));
    send(&maker, 8);
    let next = reader.receive().expect("a frame").expect("a message");
    assert_eq!(next.to_owned("x").expect("x").as_slice::<u8>().expect("bytes")[0], 8);
    assert_eq!(kept.as_slice::<u8>(), x.as_slice());
    // Any reader of the file opens it.
    let handle = sealed.handle(Opens::Many).expect("a server");
    let opened = open_handle(&handle).expect("a sealed file");
    assert_eq!(opened.tensor("y").expect("y").as_slice::<i64>(), Ok(&[1, 2, 3][..]));
}

#[test]
fn a_message_that_cannot_be_kept_is_copied() {
    let pool = Pool::new(1 << 20);
    let (maker, reader) = pair_with(&pool, usize::MAX);
    // Inline, and of more names than there is room for.
    let names: Vec<String> = (0..200).map(|i| format!("x{i}")).collect();
    let x = Tensor::from(vec![7_u8; 1000]);
    let many: Vec<(&str, &Tensor)> = names.iter().map(|name| (&name[..], &x)).collect();
    maker.send_copy(&[("x0", &x)]).expect("a reader");
    maker.send_copy(&many).expect("a reader");
    send(&maker, 7);
    for _ in 0..2 {
        let message = reader.receive().expect("a frame").expect("a message");
        let sealed = if message.names().len() == 1 {
            message.keep(NO_TIME).expect("no error").expect("inline")
        } else {
            keep(&maker, &message)
        };
        assert_eq!(sealed.tensor("x0").expect("x0").as_slice::<u8>(), x.as_slice());
    }
    // The maker is gone.
    let message = reader.receive().expect("a frame").expect("a message");
    drop(maker);
    let sealed = message.keep(Duration::MAX).expect("no error").expect("the end");
    assert_eq!(sealed.tensor("x").expect("x").as_slice::<u8>(), Ok(&[7; SIZE as usize][..]));
}

/// The number of the file that is mapped at an address.
fn file_at(address: usize) -> String {
    let maps = fs::read_to_string("/proc/self/maps").expect("procfs");
    let is_there = |line: &&str| {
        let (start, rest) = line.split_once('-').expect("a range");
        let (end, _) = rest.split_once(' ').expect("a range");
        let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).expect("hex"));
        (start..end).contains(&address)
    };
    let line = maps.lines().find(is_there).expect("a mapping");
    line.split_whitespace().nth(4).expect("a number").to_owned()
}

fn is_linux_6_7() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("procfs");
    let mut numbers = release.split(['.', '-']).map_while(|word| word.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(7))
}
