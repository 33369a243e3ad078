//! The load test: the gateway with sealed files and with bytes, in turns, and a table of both.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::http::Head;
use super::processes::{Processes, machine};

/// The sizes of a request in KiB, which is a row.
const SIZES: [usize; 3] = [1, 1 << 10, 16 << 10];
/// The ways, with the option that chooses them.
const WAYS: [(&str, Option<&str>); 2] = [("sealed files", None), ("bytes", Some("--bytes"))];
/// The table is written between these lines.
const MARKS: [&str; 2] = ["<!-- measured -->\n", "<!-- end -->\n"];

/// How the gateway is measured.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Clients that send one request after the other
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// Processes that run the model
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Rounds in which both ways take turns
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds of a way in a round
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// The Python that runs the workers
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Write the table to a page, between its marks
    #[arg(long)]
    write: Option<PathBuf>,
}

/// Measures all sizes and ways, and prints a table.
pub(super) fn run(options: &Options) -> Result<()> {
    let mut table = String::from(
        "| request | way | requests | per s | p50 ms | p95 ms | p99 ms | p99.9 ms | CPU ms each | MiB idle | MiB |\n\
         | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let (mut total, mut others) = (0.0, 0.0);
    for size in SIZES {
        let mut ways = Vec::new();
        for (name, option) in WAYS {
            ways.push(Way::start(name, option, options)?);
        }
        let message = message(size);
        let answers = ways.iter().map(|way| Client::connect(&way.address)?.ask(&message));
        let answers: Vec<_> = answers.collect::<Result<_>>()?;
        ensure!(answers[0] == answers[1], "expected equal answers, found different ones");
        for _ in 0..options.rounds {
            for way in &mut ways {
                let (before, ours) = (machine()?, way.processes.cpu()? + Processes::own().cpu()?);
                way.round(&message, options)?;
                let ours = way.processes.cpu()? + Processes::own().cpu()? - ours;
                let after = machine()?;
                total += after.total - before.total;
                others += (after.busy - before.busy - ours).max(0.0);
            }
        }
        for way in &mut ways {
            let row = way.row(size);
            print!("{row}");
            table += &row;
        }
    }
    let cores = thread::available_parallelism()?;
    let note = format!(
        "\n{} clients, {} workers, {} rounds of {} s for each way, in turns, on {cores} cores of which other programs \
         used {:.0} %. Below 1000 requests, no p99.9 is printed.\n",
        options.clients,
        options.workers,
        options.rounds,
        options.seconds,
        100.0 * others / total
    );
    print!("\n{table}{note}");
    let Some(page) = &options.write else { return Ok(()) };
    let text = fs::read_to_string(page).with_context(|| page.display().to_string())?;
    let parts = text.split_once(MARKS[0]).and_then(|(head, rest)| {
        rest.split_once(MARKS[1]).map(|(_, tail)| [head, MARKS[0], &table, &note, MARKS[1], tail])
    });
    Ok(fs::write(page, parts.context("expected marks for the table, found none")?.concat())?)
}

/// A gateway, and what it was measured to do.
struct Way {
    name: &'static str,
    gateway: Child,
    address: String,
    processes: Processes,
    latencies: Vec<Duration>,
    elapsed: Duration,
    /// Seconds of CPU time of its processes.
    cpu: f64,
    /// Before the first request, and the most, in bytes.
    memory: [u64; 2],
}

impl Way {
    fn start(name: &'static str, option: Option<&str>, options: &Options) -> Result<Self> {
        let mut gateway = Command::new(std::env::current_exe()?)
            .args(["serve", "--address", "127.0.0.1:0", "--workers", &options.workers.to_string()])
            .arg("--python")
            .arg(&options.python)
            .args(option)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(gateway.stdout.take().context("a pipe")?).read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening on ").context("a gateway that starts")?;
        let processes = Processes::of(gateway.id())?;
        let memory = [processes.memory()?; 2];
        let (latencies, elapsed, cpu) = (Vec::new(), Duration::ZERO, 0.0);
        let address = address.to_owned();
        Ok(Self { name, gateway, address, processes, latencies, elapsed, cpu, memory })
    }

    fn round(&mut self, message: &[u8], options: &Options) -> Result<()> {
        let (start, cpu) = (Instant::now(), self.processes.cpu()?);
        let end = start + Duration::from_secs_f64(options.seconds);
        let (address, processes, is_over) =
            (&self.address, &self.processes, AtomicBool::new(false));
        let (latencies, most) = thread::scope(|scope| {
            let clients: Vec<_> = (0..options.clients)
                .map(|_| scope.spawn(|| Client::connect(address)?.repeat(message, end)))
                .collect();
            let meter = scope.spawn(|| -> Result<u64> {
                let mut most = 0;
                while !is_over.load(Ordering::Relaxed) {
                    most = most.max(processes.memory()?);
                    thread::sleep(Duration::from_millis(50));
                }
                Ok(most)
            });
            let mut latencies = Vec::new();
            let mut result = Ok(());
            for client in clients {
                match client.join().expect("a client does not panic") {
                    Ok(more) => latencies.extend(more),
                    Err(error) => result = Err(error),
                }
            }
            is_over.store(true, Ordering::Relaxed);
            let most = meter.join().expect("a meter does not panic")?;
            result.map(|()| (latencies, most))
        })?;
        self.latencies.extend(latencies);
        self.memory[1] = self.memory[1].max(most);
        self.elapsed += start.elapsed();
        self.cpu += self.processes.cpu()? - cpu;
        Ok(())
    }

    /// A row of the table.
    fn row(&mut self, size: usize) -> String {
        self.latencies.sort();
        let count = self.latencies.len();
        let [p50, p95, p99, p999] = [0.5, 0.95, 0.99, 0.999].map(|part| {
            let place = ((count as f64 * part) as usize).min(count.saturating_sub(1));
            let latency = self.latencies.get(place).map_or(0.0, Duration::as_secs_f64);
            format!("{:.2}", latency * 1e3)
        });
        let p999 = if count < 1000 { String::new() } else { p999 };
        let size = if size < 1024 { format!("{size} KiB") } else { format!("{} MiB", size >> 10) };
        let [idle, most] = self.memory.map(|bytes| bytes >> 20);
        format!(
            "| {size} | {} | {count} | {:.0} | {p50} | {p95} | {p99} | {p999} | {:.2} | {idle} | {most} |\n",
            self.name,
            count as f64 / self.elapsed.as_secs_f64(),
            self.cpu / count as f64 * 1e3,
        )
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        // Workers end when the other end of their socket is closed.
        let _ = self.gateway.kill();
        let _ = self.gateway.wait();
    }
}

/// A connection to the gateway.
struct Client {
    stream: BufReader<TcpStream>,
    answer: Vec<u8>,
}

impl Client {
    fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), answer: Vec::new() })
    }

    fn ask(mut self, message: &[u8]) -> Result<Vec<u8>> {
        self.exchange(message)?;
        Ok(self.answer)
    }

    fn repeat(mut self, message: &[u8], end: Instant) -> Result<Vec<Duration>> {
        let mut latencies = Vec::new();
        while Instant::now() < end {
            let start = Instant::now();
            self.exchange(message)?;
            latencies.push(start.elapsed());
        }
        Ok(latencies)
    }

    fn exchange(&mut self, message: &[u8]) -> Result<()> {
        self.stream.get_mut().write_all(message)?;
        let head = Head::read(&mut self.stream, false)?.context("a gateway that answers")?;
        self.answer.resize(head.header("content-length").parse()?, 0);
        self.stream.read_exact(&mut self.answer)?;
        if head.first[1] != "200" {
            bail!("expected 200, found {}: {}", head.first[1], self.answer.escape_ascii());
        }
        Ok(())
    }
}

/// A request of some KiB: rows of numbers from -1 to 1.
fn message(size: usize) -> Vec<u8> {
    let len = size << 10;
    let head = format!("POST /scores HTTP/1.1\r\nHost: gateway\r\nContent-Length: {len}\r\n\r\n");
    let numbers = (0..len / 4).flat_map(|i| ((i as f32 * 0.7).sin()).to_le_bytes());
    head.into_bytes().into_iter().chain(numbers).collect()
}
