//! The commands. A request goes from `http.rs` through `queue.rs` and `batch.rs` to `worker.rs`, and
//! its answer back.

mod batch;
mod bytes;
mod http;
mod load;
mod model;
mod processes;
mod queue;
mod worker;

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use anyhow::Result;
use clap::Parser;
use queue::Queue;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The most connections; each has a thread.
const CONNECTIONS: usize = 256;
/// The worker beside this program's manifest.
const WORKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/worker.py");

#[derive(Debug, Parser)]
#[command(about = "An inference gateway in front of Python workers")]
enum Command {
    /// Answer requests until SIGTERM or SIGINT
    Serve(Options),
    /// Measure the gateway, with sealed files and with bytes
    Load(load::Options),
}

/// What a gateway is started with.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Where to listen; port 0 means any that is free
    #[arg(long, default_value = "127.0.0.1:8000")]
    address: String,
    /// How many processes run the model
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// The Python that runs them
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Their program
    #[arg(long, default_value = WORKER)]
    worker: PathBuf,
    /// How many seconds a worker may take to load the model, and to answer
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    patience: u64,
    /// Send them bytes in place of sealed files, to compare
    #[arg(long)]
    bytes: bool,
}

/// Runs the command line.
pub(super) fn main() -> Result<()> {
    match Command::parse() {
        Command::Serve(options) => serve(&options),
        Command::Load(options) => load::run(&options),
    }
}

fn serve(options: &Options) -> Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let listener = TcpListener::bind(&options.address)?;
    // One for the whole program: connections can outlive this function.
    let queue: &Queue = Box::leak(Box::default());
    let may_seal = !options.bytes;
    thread::scope(|scope| {
        let (failed, failures) = channel();
        for _ in 0..options.workers {
            let failed = failed.clone();
            scope.spawn(move || worker::supervise(queue, options, failed));
        }
        drop(failed);
        // Ends when each worker has started or failed to.
        if let Some(error) = failures.iter().next() {
            queue.close();
            return Err(error.context("a worker could not be started"));
        }
        println!("listening on {}", listener.local_addr()?);
        thread::spawn(move || accept(&listener, queue, may_seal));
        // A second signal is not waited for: then the default, which is to end at once, is as clean.
        signals.forever().next();
        queue.close();
        eprintln!("answering the requests that were admitted");
        Ok(())
    })
}

/// Gives each connection a thread.
fn accept(listener: &TcpListener, queue: &'static Queue, may_seal: bool) {
    static OPEN: AtomicUsize = AtomicUsize::new(0);
    let serve = move |stream: TcpStream| {
        if let Err(error) = http::serve(stream, queue, may_seal) {
            eprintln!("a connection ends: {error:#}");
        }
        OPEN.fetch_sub(1, Ordering::Relaxed);
    };
    for stream in listener.incoming() {
        // Of the client's making, or of a lack of descriptors: others are tried.
        let Ok(stream) = stream else { continue };
        if OPEN.fetch_add(1, Ordering::Relaxed) < CONNECTIONS {
            thread::spawn(move || serve(stream));
        } else {
            OPEN.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
