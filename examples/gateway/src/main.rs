//! An inference gateway: HTTP in front, Python workers behind, and tensors between them that no
//! process copies.

#[cfg(target_os = "linux")]
mod http;
#[cfg(target_os = "linux")]
mod workers;

use std::path::PathBuf;

use clap::Parser;

/// Answer requests until SIGTERM or SIGINT
#[derive(Debug, Parser)]
#[command(about = "An inference gateway in front of Python workers")]
struct Options {
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
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/worker.py"))]
    worker: PathBuf,
    /// How many seconds a worker may take to load the model, and to answer
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    patience: u64,
    /// Send batches to the workers as bytes, to compare
    #[arg(long)]
    bytes: bool,
}

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    use std::sync::mpsc::channel;
    use std::thread;

    let options = Options::parse();
    let queue = &workers::Queue::default();
    thread::scope(|scope| {
        let (failed, failures) = channel();
        for _ in 0..options.workers {
            let (failed, options) = (failed.clone(), &options);
            scope.spawn(move || workers::supervise(queue, options, failed));
        }
        drop(failed);
        // Ends when each worker has started or failed to.
        let started = match failures.iter().next() {
            Some(error) => Err(error.context("a worker could not be started")),
            None => http::serve(&options.address, queue),
        };
        queue.close();
        started
    })
}

#[cfg(not(target_os = "linux"))]
fn main() {
    let options = Options::parse();
    eprintln!("expected Linux, which shares memory, found {}: {options:?}", std::env::consts::OS);
    std::process::exit(1);
}
