//! Runs a target without libFuzzer and its coverage guidance: over files, or over inputs generated
//! from a seed. The output follows libFuzzer's format.
//! Invariant: with the same corpus, a seed gives the same inputs.

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, fs, io};

use crate::Target;

/// The longest input.
const LONGEST: usize = 512;
/// The interval at which the number of inputs is printed.
const NEWS: Duration = Duration::from_secs(5);

/// The program of a target: `gate FILE...` replays inputs, `gate --seconds N [--seed S]` generates
/// them.
#[must_use]
pub fn main(target: Target) -> ExitCode {
    match parse(env::args().skip(1)) {
        Ok(Task::Replay(files)) if !files.is_empty() => replay(target, &files),
        Ok(Task::Make { seconds, seed }) => make(target, seconds, seed),
        _ => {
            eprintln!("usage: {} FILE... | --seconds N [--seed S]", target.name);
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
        match fs::read(file) {
            // A finding ends the program here, with its message.
            Ok(data) => (target.run)(&data),
            Err(error) => {
                eprintln!("cannot read {}: {error}", file.display());
                return ExitCode::from(2);
            }
        }
        println!("{}: {} is fine", target.name, file.display());
    }
    ExitCode::SUCCESS
}

fn make(target: Target, seconds: u64, seed: u64) -> ExitCode {
    let corpus = inputs(&folder("corpus", target)).unwrap_or_default();
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

/// Writes a failing input to the folder that libFuzzer uses.
fn keep(target: Target, data: &[u8]) -> ExitCode {
    let sum = data.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let file = folder("artifacts", target).join(format!("crash-{sum:016x}"));
    let written = fs::create_dir_all(file.parent().expect("a file in a folder"))
        .and_then(|()| fs::write(&file, data));
    match written {
        Ok(()) => eprintln!("Test unit written to {}", file.display()),
        Err(error) => eprintln!("cannot write {}: {error}", file.display()),
    }
    ExitCode::FAILURE
}

/// A target's folder of `corpus`, `regressions` or `artifacts`.
#[must_use]
pub fn folder(kind: &str, target: Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(kind).join(target.name)
}

/// The inputs in a folder with their names, sorted by name.
///
/// # Errors
///
/// If the folder or a file cannot be read.
pub fn inputs(folder: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut inputs = fs::read_dir(folder)?
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?))
        })
        .collect::<io::Result<Vec<_>>>()?;
    inputs.sort();
    Ok(inputs)
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
    fn input(&mut self, corpus: &[(String, Vec<u8>)]) -> Vec<u8> {
        if corpus.is_empty() || self.next() & 1 == 0 {
            let len = self.below(LONGEST);
            return self.bytes(len);
        }
        let mut data = corpus[self.below(corpus.len())].1.clone();
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
