//! Target `channel`, second half: two honest ends, which send, receive, drop, close and go in any order, in calls that must not wait.
//! The model is two queues.
//! Invariant: the model shares no code with the channel, and each call ends.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dlbridge::DType;
use dlbridge_sealed::{Channel, Loan, Message, Pool, WaitError};

use crate::input::Input;

const NO_TIME: Duration = Duration::ZERO;
/// How long a call may take that must not wait, on a busy machine.
const LONG: Duration = Duration::from_secs(20);
/// Inline, and as a lease.
const SIZES: [i64; 2] = [10, 20_000];
/// More messages than an inbox holds, and than a stream has before anything may change.
const BURSTS: [usize; 3] = [1, 20, 300];
const STEPS: usize = 24;
/// Memory for some leases.
const LIMIT: usize = 100_000;

/// A call, made by one of the ends.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Sends so many messages, as long as the time of none is over.
    Send(i64, usize),
    Receive(usize),
    /// Drops a message, the first or the last.
    Drop(bool),
    Look,
    Close,
    /// Drops the end, as its process does that is killed.
    Go,
}

/// What an end sent that was not received, and what was received of it and not dropped: the numbers and sizes of messages.
#[derive(Default)]
struct Stream {
    waiting: VecDeque<(u64, i64)>,
    held: VecDeque<(Message, i64)>,
    sent: u64,
}

/// An end as the model knows it.
struct End {
    channel: Option<Channel>,
    /// What the other end sends to this one.
    incoming: Stream,
    /// Whether this end has closed the stream.
    is_closed: bool,
    is_used: bool,
}

impl End {
    /// Whether the socket is closed: messages that are held do not keep it.
    fn is_gone(&self) -> bool {
        self.is_closed || self.channel.is_none()
    }
}

pub(crate) fn run(input: &mut Input<'_>) {
    let steps: Vec<(usize, Step)> = (0..=input.below(STEPS))
        .map(|_| {
            let step = match input.below(12) {
                0..4 => Step::Send(input.one_of(&SIZES), input.one_of(&BURSTS)),
                4..7 => Step::Receive(input.one_of(&BURSTS)),
                7 | 8 => Step::Drop(input.any()),
                9 => Step::Look,
                10 => Step::Close,
                _ => Step::Go,
            };
            (input.below(2), step)
        })
        .collect();
    let (sender, receiver) = mpsc::channel();
    let told = steps.clone();
    let thread = thread::spawn(move || {
        play(&steps);
        sender.send(())
    });
    match receiver.recv_timeout(LONG) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a call does not end: {told:?}"),
        _ => assert!(thread.join().is_ok(), "the ends and the model differ: {told:?}"),
    }
}

fn play(steps: &[(usize, Step)]) {
    let (one, other) = UnixStream::pair().expect("sockets");
    let mut ends = [one, other].map(|socket| End {
        channel: Some(Channel::with_pool(socket, &Pool::new(LIMIT), usize::MAX, false)),
        incoming: Stream::default(),
        is_closed: false,
        is_used: false,
    });
    for &(who, step) in steps {
        let [first, second] = &mut ends;
        let (end, other) = if who == 0 { (first, second) } else { (second, first) };
        match step {
            Step::Send(size, count) => {
                let _ = (0..count).all(|_| send(end, other, size));
            }
            Step::Receive(count) => {
                let _ = (0..count).all(|_| receive(end, other));
            }
            Step::Drop(is_last) => {
                let held = &mut end.incoming.held;
                drop(if is_last { held.pop_back() } else { held.pop_front() });
            }
            Step::Look => look(end, other),
            Step::Close => {
                if let Some(channel) = &end.channel {
                    channel.close();
                    end.is_closed |= end.is_used;
                }
            }
            Step::Go => {
                end.channel = None;
                end.incoming.waiting.clear();
            }
        }
    }
}

/// Sends a message. Whether it was sent.
fn send(end: &mut End, other: &mut End, size: i64) -> bool {
    let Some(channel) = &end.channel else { return false };
    let x: [(&str, DType, &[i64]); 1] = [("x", DType::U8, &[size])];
    let mut loan = match channel.loan_timeout(&x, NO_TIME) {
        Ok(loan) => loan,
        Err(WaitError::Timeout) => return false,
        Err(error) => {
            // Returns of leases are behind messages that wait.
            assert!(error.to_string().contains("messages to be received"), "{error}");
            return false;
        }
    };
    let number = other.incoming.sent;
    fill(&mut loan, number);
    end.is_used = true;
    let is_gone = end.is_gone() || other.is_gone();
    // An end that is gone is found without a timeout.
    let time = if is_gone { Duration::MAX } else { NO_TIME };
    match channel.send_timeout(&loan.ready().expect("filled"), time) {
        Ok(()) => assert!(!is_gone, "sent to an end that is gone"),
        Err(WaitError::Timeout) => {
            assert!(!is_gone && !other.incoming.waiting.is_empty());
            return false;
        }
        Err(error) => {
            assert!(is_gone, "{error}");
            return false;
        }
    }
    other.incoming.sent += 1;
    if other.channel.is_some() {
        other.incoming.waiting.push_back((number, size));
    }
    true
}

fn fill(loan: &mut Loan, number: u64) {
    let mut x = loan.tensor("x").expect("there");
    x.as_slice_mut::<u8>().expect("exclusive").fill(number as u8);
    loan.metadata("number", number.to_string());
}

/// Receives a message. Whether there was one.
fn receive(end: &mut End, other: &End) -> bool {
    let Some(channel) = &end.channel else { return false };
    end.is_used = true;
    let is_over = end.is_closed || other.is_gone();
    match (channel.receive_timeout(NO_TIME), end.incoming.waiting.pop_front()) {
        (Ok(Some(message)), Some((number, size))) => {
            assert_eq!(message.metadata()["number"], number.to_string());
            let x = message.tensor("x").expect("there");
            assert_eq!(x.shape(), [size]);
            assert!(x.view::<u8>().expect("bytes").iter().all(|byte| byte == number as u8));
            end.incoming.held.push_back((message, size));
            true
        }
        (Ok(None), None) if is_over => false,
        (Err(WaitError::Timeout), None) if !is_over => false,
        (found, wanted) => panic!("expected {wanted:?}, over: {is_over}, found {found:?}"),
    }
}

/// The leases of the other end are those that the model knows, unless this end cannot read what was returned.
fn look(end: &End, other: &mut End) {
    let Some(channel) = &end.channel else { return };
    // What the other end returned while the socket was full goes with its next call.
    if let Some(idle) = &other.channel {
        let _ = idle.flush_timeout(NO_TIME);
        other.is_used = true;
    }
    let incoming = &other.incoming;
    let waiting = incoming.waiting.iter().filter(|(_, size)| *size == SIZES[1]).count();
    let held = incoming.held.iter().filter(|(_, size)| *size == SIZES[1]).count();
    let kept = channel.kept().0;
    if !(end.is_gone() || other.is_gone()) {
        assert!(kept >= held, "{kept} of {held}");
        if end.incoming.waiting.is_empty() && other.channel.is_some() {
            assert_eq!(kept, waiting + held);
        }
    }
}
