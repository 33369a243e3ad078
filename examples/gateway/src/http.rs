//! The front: `POST /scores` or `/labels`, with rows of `float32` as the body. hyper speaks HTTP.
//!
//! One thread serves all connections, so a silent client costs a descriptor and nothing else.

use std::convert::Infallible;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::Result;
use dlbridge::DType;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use crate::workers::{FEATURES, Job, OUTPUTS, Queue, ROW};

/// The largest body, and the rows that are held at once.
const LARGEST: usize = 64 << 20;
static ROOM: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new((256 << 20) / ROW));
/// How long a client may take for a head, for a body, and a worker for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait for a descriptor where none is left.
const PAUSE: Duration = Duration::from_millis(100);

/// A status and a text for a client.
type Refusal = (u16, String);

/// Answers requests until a signal, then those that were admitted.
pub(crate) fn serve(address: &str, queue: &Queue) -> Result<()> {
    // Connections end before this function does, or with the process.
    let queue = queue.clone();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let (mut term, mut int) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let listener = TcpListener::bind(address).await?;
        println!("listening on {}", listener.local_addr()?);
        let (connections, mut server) = (GracefulShutdown::new(), http1::Builder::new());
        server.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(16 << 10);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = term.recv() => break,
                _ = int.recv() => break,
            };
            let Ok((stream, _)) = accepted else {
                sleep(PAUSE).await;
                continue;
            };
            let _ = stream.set_nodelay(true);
            let queue = queue.clone();
            let service = service_fn(move |request| respond(request, queue.clone()));
            let connection =
                connections.watch(server.serve_connection(TokioIo::new(stream), service));
            tokio::spawn(async {
                connection.await.inspect_err(|error| eprintln!("a connection ends: {error}"))
            });
        }
        drop(listener);
        eprintln!("answering the requests that were admitted");
        let _ = timeout(PATIENCE, connections.shutdown()).await;
        Ok(())
    })
}

async fn respond(
    request: Request<Incoming>,
    queue: Queue,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, mut body) = request.into_parts();
    let (status, text) = match answer(&head, &mut body, queue).await {
        Ok(response) => return Ok(response),
        Err(refusal) => refusal,
    };
    // A socket that is closed before all is read resets the connection, and the text can be lost.
    if !head.headers.contains_key(EXPECT) {
        let _ = timeout(PATIENCE, discard(body)).await;
    }
    let response = Response::builder().status(status).header(CONNECTION, "close");
    Ok(response.body(text.into()).expect("a status and a word"))
}

async fn discard(mut body: Incoming) {
    let mut left = LARGEST;
    while let Some(Ok(frame)) = body.frame().await {
        match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

/// The parts of a body. hyper has checked that they are as long as the head says.
async fn read(body: &mut Incoming) -> hyper::Result<Vec<Bytes>> {
    let mut parts = Vec::new();
    while let Some(frame) = body.frame().await {
        parts.extend(frame?.into_data());
    }
    Ok(parts)
}

/// Answers one request, unless it is refused.
async fn answer(
    head: &Parts,
    body: &mut Incoming,
    queue: Queue,
) -> Result<Response<Full<Bytes>>, Refusal> {
    let (output, len) = check(head)?;
    // Before any byte of the body is read.
    let rows = u32::try_from(len / ROW).expect("less than the largest");
    let Ok(_room) = ROOM.try_acquire_many(rows) else {
        return Err((503, "expected a gateway with room, found a full one; try again".into()));
    };
    let late = |what| move |_| (504, format!("expected {what} in time, found none"));
    let parts = timeout(PATIENCE, read(body)).await.map_err(late("a body"))?;
    let parts = parts.map_err(|error| (400, error.to_string()))?;
    let (reply, answered) = oneshot::channel();
    queue.push(Job { parts, len, output, reply });
    let answered = timeout(PATIENCE, answered).await.map_err(late("an answer"))?;
    let answered = answered.map_err(|_| (503, "the gateway ends".into()))?;
    let (bytes, shape) = answered.map_err(|text| (502, text))?;
    let shape = shape.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let response = Response::builder().header("x-dtype", OUTPUTS[output].1.to_string());
    Ok(response.header("x-shape", shape).body(bytes.into()).expect("headers of digits"))
}

/// What a client asks for, and the size of the body.
fn check(head: &Parts) -> Result<(usize, usize), Refusal> {
    let (method, path) = (&head.method, head.uri.path());
    let output = OUTPUTS.iter().position(|output| path.strip_prefix('/') == Some(output.0));
    let output = output
        .filter(|_| *method == Method::POST)
        .ok_or_else(|| (404, format!("expected POST /scores or /labels, found {method} {path}")))?;
    if let Some(dtype) = head.headers.get("x-dtype") {
        let dtype = String::from_utf8_lossy(dtype.as_bytes());
        if dtype.parse() != Ok(DType::F32) {
            return Err((415, format!("dtype: expected float32, found {dtype}")));
        }
    }
    let len =
        head.headers.get(CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse::<usize>().ok());
    let len = len.filter(|_| !head.headers.contains_key(TRANSFER_ENCODING));
    match len {
        None => Err((411, "expected one Content-Length, found none".into())),
        Some(len) if len > LARGEST => {
            Err((413, format!("expected at most {LARGEST} bytes, found {len}")))
        }
        Some(len) if len == 0 || len % ROW != 0 => {
            let text =
                format!("expected rows of {FEATURES} float32 ({ROW} bytes), found {len} bytes");
            Err((400, text))
        }
        Some(len) => Ok((output, len)),
    }
}
