//! Sends requests to a gateway as fast as it answers, and prints how many it answered in a second. The arguments are its
//! address, the bytes of a request, how many clients there are, and for how many seconds.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, numbers @ ..] = &words[..] else { return Err("expected an address".into()) };
    let numbers: Vec<usize> = numbers.iter().map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [size, clients, seconds] = numbers[..] else { return Err("expected 3 numbers".into()) };
    let head = format!("POST /labels HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n");
    let request = [head.into_bytes(), vec![0; size]].concat();
    let (start, time) = (Instant::now(), Duration::from_secs(seconds as u64));
    let answered = thread::scope(|scope| {
        let client = || ask(address, &request, start + time);
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().expect("no panic")).sum::<Result<f64, _>>()
    })?;
    println!("{:.1} requests/s", answered / start.elapsed().as_secs_f64());
    Ok(())
}

/// How many requests were answered until the end.
fn ask(address: &str, request: &[u8], end: Instant) -> std::io::Result<f64> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    let mut answers = BufReader::new(socket.try_clone()?);
    let mut answered = 0.0;
    while Instant::now() < end {
        socket.write_all(request)?;
        let (mut line, mut len) = (String::new(), 0);
        while answers.read_line(&mut line)? > 2 {
            assert!(!line.starts_with("HTTP/1.1 ") || line.contains(" 200 "), "{line}");
            if let Some(found) = line.to_lowercase().strip_prefix("content-length:") {
                len = found.trim().parse().expect("a number");
            }
            line.clear();
        }
        answers.read_exact(&mut vec![0; len])?;
        answered += 1.0;
    }
    Ok(answered)
}
