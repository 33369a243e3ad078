//! Runs a target without libFuzzer and its coverage guidance: over files, or over inputs generated
//! from a seed. The output follows libFuzzer's format.
//! Invariant: with the same corpus, a seed gives the same inputs.

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, fs, io};

use crate::{Target, target};

/// The longest input.
const LONGEST: usize = 512;
/// The interval at which the number of inputs is printed.
const NEWS: Duration = Duration::from_secs(5);
const USAGE: &str = "usage: dlbridge-fuzz TARGET (FILE... | --seconds N [--seed S])";

/// The program: `gate FILE...` replays inputs, `gate --seconds N [--seed S]` generates them.
#[must_use]
pub fn main() -> ExitCode {
    let mut words = env::args().skip(1);
    let target = words.next().and_then(|name| target(&name));
    match (target, parse(words)) {
        (Some(target), Ok(Task::Replay(files))) if !files.is_empty() => replay(target, &files),
        (Some(target), Ok(Task::Make { seconds, seed })) => make(target, seconds, seed),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

enum Task {
    Replay(Vec<PathBuf>),
    Make { seconds: u64, seed: u64 },
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Task, std::num::ParseIntError> {
    let (mut files, mut seconds, mut seed) = (Vec::new(), None, 1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_default().parse();
        match &*word {
            "--seconds" => seconds = Some(value()?),
            "--seed" => seed = value()?,
            _ => files.push(word.into()),
        }
    }
    Ok(match seconds {
        Some(seconds) => Task::Make { seconds, seed },
        None => Task::Replay(files),
    })
}

fn replay(target: Target, files: &[PathBuf]) -> ExitCode {
    for file in files {
        let is_list = file.extension().is_some_and(|extension| extension == "txt");
        let read = if is_list { inputs(file) } else { fs::read(file).map(|data| vec![data]) };
        let inputs = match read {
            Ok(inputs) => inputs,
            Err(error) => {
                eprintln!("cannot read {}: {error}", file.display());
                return ExitCode::from(2);
            }
        };
        for data in inputs {
            // A finding ends the program here, with its message.
            (target.run)(&data);
            println!("passes: {}", line(&data));
        }
    }
    ExitCode::SUCCESS
}

fn make(target: Target, seconds: u64, seed: u64) -> ExitCode {
    let corpus = inputs(&corpus(target)).unwrap_or_default();
    let (mut numbers, mut made) = (Numbers(seed), 0_u64);
    let (started, mut told) = (Instant::now(), Instant::now());
    while started.elapsed() < Duration::from_secs(seconds) {
        let data = numbers.input(&corpus);
        if catch_unwind(|| (target.run)(&data)).is_err() {
            return keep(target, &data);
        }
        made += 1;
        if told.elapsed() > NEWS {
            told = Instant::now();
            eprintln!("#{made}");
        }
    }
    eprintln!("#{made}");
    ExitCode::SUCCESS
}

/// As many inputs of a target as one likes, the same for the same corpus and seed.
///
/// # Errors
///
/// If the corpus cannot be read.
pub fn seeded(target: Target, seed: u64) -> io::Result<impl Iterator<Item = Vec<u8>>> {
    let (corpus, mut numbers) = (inputs(&corpus(target))?, Numbers(seed));
    Ok(std::iter::repeat_with(move || numbers.input(&corpus)))
}

/// Writes a failing input to the folder that libFuzzer uses.
fn keep(target: Target, data: &[u8]) -> ExitCode {
    let sum = data.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts").join(target.name);
    let file = folder.join(format!("crash-{sum:016x}"));
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&file, data));
    match written {
        Ok(()) => eprintln!("Test unit written to {}", file.display()),
        Err(error) => eprintln!("cannot write {}: {error}", file.display()),
    }
    ExitCode::FAILURE
}

/// A target's file in `corpus`.
#[must_use]
pub fn corpus(target: Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name).with_extension("txt")
}

/// The inputs of such a file: one in each line, in hexadecimal digits, with an optional comment after `#`.
///
/// # Errors
///
/// If the file cannot be read, or if a line has anything else.
pub fn inputs(file: &Path) -> io::Result<Vec<Vec<u8>>> {
    let text = fs::read_to_string(file)?;
    let inputs = text.lines().enumerate().map(|(index, line)| {
        let digits = line.split('#').next().unwrap_or_default().trim();
        let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
        let bytes = pairs.map(|pair| u8::from_str_radix(pair.filter(|it| it.len() == 2)?, 16).ok());
        let problem = || format!("line {}: expected pairs of hexadecimal digits", index + 1);
        bytes.collect::<Option<_>>().ok_or_else(|| io::Error::other(problem()))
    });
    inputs.collect()
}

/// An input's line in such a file.
fn line(data: &[u8]) -> String {
    data.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SplitMix64: numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Random bytes, or an input of the corpus with a few bytes changed.
    fn input(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        if corpus.is_empty() || self.next() & 1 == 0 {
            let len = self.below(LONGEST);
            return self.bytes(len);
        }
        let mut data = corpus[self.below(corpus.len())].clone();
        for _ in 0..=self.below(8) {
            if data.is_empty() || self.below(4) == 0 {
                let at = self.below(data.len() + 1);
                data.insert(at, self.next() as u8);
            } else {
                let at = self.below(data.len());
                data[at] = self.next() as u8;
            }
        }
        data
    }
}
