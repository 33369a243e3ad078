//! The HTTP that the gateway speaks: `POST /scores` or `/labels`, with rows of `float32` as the body.
//!
//! Nothing that a client sends makes the gateway hold more than its queue admits, or wait for longer
//! than a request may take.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dlbridge::{DType, Tensor};

use super::batch::Rows;
use super::model::{FEATURES, OUTPUTS, Output, ROW};
use super::queue::{Queue, Request};

/// The largest body.
const LARGEST: usize = 64 << 20;
/// The largest head: the first line and the headers.
const HEAD: u64 = 8 << 10;
/// How long a client may take for a request, and then for reading the answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The head of a request or an answer.
#[derive(Default)]
pub(super) struct Head {
    /// Method and path of a request, version and status of an answer.
    pub first: [String; 2],
    headers: Vec<(String, String)>,
}

/// A status and a text for a client.
type Refusal = (u16, String);

/// Answers the requests of a connection, one after the other.
pub(super) fn serve(stream: TcpStream, queue: &Queue, may_seal: bool) -> Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut client = BufReader::new(Until { stream, end: Instant::now() });
    loop {
        client.get_mut().end = Instant::now() + PATIENCE;
        let head = match Head::read(&mut client, true) {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(()),
            Err(error) if error.is::<io::Error>() => return Err(error),
            Err(error) => return refuse(client.get_mut(), 400, &format!("{error:#}")),
        };
        match answer(&head, &mut client, queue, may_seal)? {
            Ok(()) if head.header("connection").eq_ignore_ascii_case("close") => return Ok(()),
            Ok(()) => {}
            Err((status, text)) => return refuse(client.get_mut(), status, &text),
        }
    }
}

/// Answers one request, unless it is refused.
fn answer(
    head: &Head,
    client: &mut BufReader<Until>,
    queue: &Queue,
    may_seal: bool,
) -> Result<Result<(), Refusal>> {
    let (output, len) = match check(head) {
        Ok(request) => request,
        Err(refusal) => return Ok(Err(refusal)),
    };
    // Before any byte of the body is read, and until the answer is written.
    let Some(permit) = queue.admit(len) else {
        return Ok(Err((503, "expected a gateway with room, found a full one; try again".into())));
    };
    if head.header("expect").eq_ignore_ascii_case("100-continue") {
        client.get_mut().stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let rows = match Rows::read(&mut *client, len, may_seal) {
        Ok(rows) => rows,
        // The client is gone, or late.
        Err(error) if error.is::<io::Error>() => return Err(error),
        Err(error) => return Ok(Err((503, format!("{error:#}")))),
    };
    let (reply, answered) = sync_channel(1);
    queue.push(Request { rows, output, reply }, &permit);
    let left = client.get_ref().end.saturating_duration_since(Instant::now());
    match answered.recv_timeout(left) {
        Ok(Ok(tensor)) => send(&client.get_ref().stream, &tensor).map(Ok),
        Ok(Err(text)) => Ok(Err((502, text))),
        Err(_) => Ok(Err((504, "expected an answer in time, found none".into()))),
    }
}

/// What a client asks for, and the size of the body.
fn check(head: &Head) -> Result<(&'static Output, usize), Refusal> {
    let [method, path] = &head.first;
    let output = OUTPUTS.iter().find(|output| path.strip_prefix('/') == Some(output.name));
    let Some(output) = output.filter(|_| method == "POST") else {
        return Err((404, format!("expected POST /scores or /labels, found {method} {path}")));
    };
    let dtype = match head.header("x-dtype") {
        "" => DType::F32,
        name => name.parse().map_err(|error: dlbridge::Error| (415, error.to_string()))?,
    };
    if dtype != DType::F32 {
        return Err((415, format!("expected float32, found {dtype}")));
    }
    let lengths: Vec<_> = head.all("content-length").collect();
    let is_number = |text: &&&str| text.bytes().all(|byte| byte.is_ascii_digit());
    let len = match lengths[..] {
        [text] if head.header("transfer-encoding").is_empty() => {
            Some(text).filter(|text| is_number(&text)).and_then(|text| text.parse().ok())
        }
        _ => None,
    };
    let Some(len) = len else {
        return Err((411, format!("expected one Content-Length, found {lengths:?}")));
    };
    if len > LARGEST {
        return Err((413, format!("expected at most {LARGEST} bytes, found {len}")));
    }
    if len == 0 || len % ROW != 0 {
        let text = format!("expected rows of {FEATURES} float32 ({ROW} bytes), found {len} bytes");
        return Err((400, text));
    }
    Ok((output, len))
}

/// Writes a tensor. The bytes go from the memory that the worker sealed to the client.
fn send(mut client: &TcpStream, tensor: &Tensor) -> Result<()> {
    let body = tensor.as_bytes()?;
    let shape = tensor.shape().iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n\
         X-Dtype: {}\r\nX-Shape: {shape}\r\n\r\n",
        body.len(),
        tensor.dtype()
    );
    client.write_all(head.as_bytes())?;
    Ok(client.write_all(body)?)
}

/// Writes an error and ends the connection, of which a body may be left.
fn refuse(client: &mut Until, status: u16, text: &str) -> Result<()> {
    let len = text.len();
    let answer = format!(
        "HTTP/1.1 {status} Refused\r\nContent-Type: text/plain\r\nContent-Length: {len}\r\n\
         Connection: close\r\n\r\n{text}"
    );
    client.stream.write_all(answer.as_bytes())?;
    client.stream.shutdown(Shutdown::Write)?;
    // A socket that is closed before all is read resets the connection, and the text can be lost.
    io::copy(&mut client.take(LARGEST as u64), &mut io::sink())?;
    Ok(())
}

impl Head {
    /// Reads a head; none where the connection ends before one.
    pub(super) fn read(stream: &mut impl BufRead, is_request: bool) -> Result<Option<Self>> {
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            let room = HEAD - text.len() as u64;
            let read = stream.take(room).read_until(b'\n', &mut text)?;
            if read == 0 && text.is_empty() {
                return Ok(None);
            }
            ensure!(read != 0, "expected a head of at most {HEAD} bytes, found more or a part");
        }
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let (first, headers) = if is_request {
            let mut head = httparse::Request::new(&mut headers);
            head.parse(&text).context("a request")?;
            ([head.method, head.path].map(|word| word.unwrap_or_default().to_owned()), head.headers)
        } else {
            let mut head = httparse::Response::new(&mut headers);
            head.parse(&text).context("an answer")?;
            let status = head.code.unwrap_or_default().to_string();
            (["HTTP".to_owned(), status], head.headers)
        };
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let headers = headers.iter().map(|one| (one.name.to_owned(), text(one.value))).collect();
        Ok(Some(Self { first, headers }))
    }

    /// All values of a header.
    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.headers.iter().filter(move |one| one.0.eq_ignore_ascii_case(name));
        named.map(|one| &one.1[..])
    }

    /// The value of a header, empty where there is none.
    pub(super) fn header(&self, name: &str) -> &str {
        self.all(name).next().unwrap_or_default()
    }
}

/// A connection that is read until a point in time, however slowly bytes arrive.
struct Until {
    stream: TcpStream,
    end: Instant,
}

impl Read for Until {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}
