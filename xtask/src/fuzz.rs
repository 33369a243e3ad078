//! `cargo xtask fuzz`: hostile descriptors, layouts, views and builders, each against a model. The
//! targets are in `fuzz/`. libFuzzer drives them on a stable Rust, since the flags for coverage are
//! stable ones (cargo-fuzz needs a nightly).

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};
use xshell::{Cmd, Shell, cmd};

use crate::arguments::{Fuzz as Options, targets};
use crate::shell::{root, shell, succeeds, target};
use crate::steps::{Steps, skip};
use crate::workspace;

/// Lets libFuzzer see which code an input reaches, and what it is compared with.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// The longest input, in bytes: no target reads more.
const LONGEST: &str = "-max_len=256";
/// Names the target, since libFuzzer reads the command line.
const TARGET: &str = "DLBRIDGE_FUZZ_TARGET";

/// Runs all targets, or the given ones.
pub(crate) fn run(options: &Options) -> Result<()> {
    Steps::run(|steps| some_targets(options, steps))
}

/// A run of every target, as steps of another command.
pub(crate) fn each_target(steps: &mut Steps) -> Result<()> {
    let (targets, asan) = (Vec::new(), false);
    some_targets(&Options { targets, seconds: 20, seed: 1, keep: false, asan }, steps)
}

fn some_targets(options: &Options, steps: &mut Steps) -> Result<()> {
    let mut fuzzer = None;
    steps.count("build the fuzz targets", |_| {
        fuzzer = Some(Fuzzer::build(options.asan)?);
        Ok(())
    });
    let Some(fuzzer) = fuzzer else { return Ok(()) };
    let all = if options.targets.is_empty() { targets() } else { options.targets.clone() };
    for target in &all {
        steps.count(&format!("fuzz {target}"), |tally| {
            fuzzer.run(target, options)?;
            tally.passed += 1;
            Ok(())
        });
    }
    Ok(())
}

/// libFuzzer, and the programs of the targets with it.
struct Fuzzer {
    sh: Shell,
    /// The nightly Rust to build with AddressSanitizer.
    nightly: Option<String>,
    /// Where cargo builds.
    folder: PathBuf,
    host: String,
}

impl Fuzzer {
    fn build(asan: bool) -> Result<Self> {
        let (sh, host) = (shell(), workspace::host()?);
        let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
        if !cfg!(unix) || !succeeds(cmd!(sh, "{compiler} --version")) {
            let way = "cargo run --package dlbridge-fuzz gate --seconds 20";
            return skip(format!("libFuzzer needs Unix and a C++ compiler; random inputs: {way}"));
        }
        let (nightly, flags, folder) = if asan {
            let nightly = workspace::toolchain("nightly");
            let nightly = nightly.context("no nightly Rust: rustup toolchain install nightly")?;
            (Some(nightly), format!("{COVERAGE} -Zsanitizer=address"), "fuzz-asan")
        } else {
            (None, COVERAGE.to_owned(), "fuzz-coverage")
        };
        let folder = target().join(folder);
        let words = "build --package dlbridge-fuzz --bin dlbridge-fuzz --profile fuzz --target";
        let build = workspace::cargo(&sh, nightly.as_deref()).args(words.split(' '));
        // A target of its own keeps the flags from build scripts.
        let build = build.args([&host, "--target-dir"]).arg(&folder).env("RUSTFLAGS", flags);
        build.env_remove("CARGO_ENCODED_RUSTFLAGS").run()?;
        Ok(Self { sh, nightly, folder, host })
    }

    fn program(&self) -> PathBuf {
        self.folder.join(&self.host).join("fuzz/dlbridge-fuzz")
    }

    /// libFuzzer's command for a target.
    fn command(&self, target: &str) -> Cmd<'_> {
        self.sh.cmd(self.program()).env(TARGET, target).arg(LONGEST)
    }

    /// Runs one target. libFuzzer prints what it finds, and the file that it writes the input to. Inputs
    /// that reach new code go into the first folder.
    fn run(&self, target: &str, options: &Options) -> Result<()> {
        // What only AddressSanitizer finds needs its program, other findings no libFuzzer.
        let program = match self.nightly {
            Some(_) => format!("{TARGET}={target} {}", self.program().display()),
            None => format!("cargo run --package dlbridge-fuzz {target}"),
        };
        let new = self.sh.create_dir(inputs("new", target))?;
        let artifacts = self.sh.create_dir(root().join("fuzz/artifacts").join(target))?;
        let Options { seconds, seed, .. } = options;
        self.command(target)
            .args([format!("-max_total_time={seconds}"), format!("-seed={seed}")])
            // Inputs may be long from the start: most of a short one is read as zeros.
            .args(["-len_control=0", "-timeout=20", "-verbosity=0", "-print_final_stats=1"])
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .arg(new)
            .arg(self.unpack(target)?)
            .env("ASAN_OPTIONS", "detect_leaks=1")
            .run()
            .with_context(|| format!("replay its input by `{program} FILE`"))?;
        if options.keep { self.keep(target) } else { Ok(()) }
    }

    /// Replaces the corpus by the fewest inputs that reach all that it and the new ones reach, behind
    /// those that once found a defect: lines with a comment.
    fn keep(&self, target: &str) -> Result<()> {
        let (corpus, new) = (self.unpack(target)?, inputs("new", target));
        let merged = self.empty("merged", target)?;
        // Whether code is reached counts, not how often.
        let merge = self.command(target).args(["-set_cover_merge=1", "-use_counters=0"]);
        merge.args([&merged, &corpus, &new]).run()?;
        let files = self.sh.read_dir(merged)?.into_iter();
        let lines = files.map(|file| Ok(line(&self.sh.read_binary_file(file)?)));
        let mut lines = lines.collect::<Result<Vec<_>>>()?;
        lines.sort_by_key(|line| (line.len(), line.clone()));
        let text = self.sh.read_file(list(target))?;
        let found = text.split_inclusive('\n').filter(|line| line.contains('#'));
        let text = found.chain(lines.iter().map(String::as_str)).collect::<String>();
        Ok(self.sh.write_file(list(target), text)?)
    }

    /// Writes each input of the corpus to a file of its own, as libFuzzer needs them; returns the folder.
    fn unpack(&self, target: &str) -> Result<PathBuf> {
        let (folder, list) = (self.empty("corpus", target)?, list(target));
        for (index, line) in self.sh.read_file(&list)?.lines().enumerate() {
            let data = data(line).with_context(|| format!("{}:{}", list.display(), index + 1))?;
            self.sh.write_file(folder.join(index.to_string()), data)?;
        }
        Ok(folder)
    }

    fn empty(&self, kind: &str, target: &str) -> Result<PathBuf> {
        self.sh.remove_path(inputs(kind, target))?;
        Ok(self.sh.create_dir(inputs(kind, target))?)
    }
}

/// A target's corpus in the repository: an input in each line.
fn list(target: &str) -> PathBuf {
    root().join("fuzz/corpus").join(target).with_extension("txt")
}

fn inputs(kind: &str, target: &str) -> PathBuf {
    crate::shell::target().join("fuzz-inputs").join(kind).join(target)
}

/// The input of a line: hexadecimal digits, with an optional comment after `#`.
fn data(line: &str) -> Result<Vec<u8>> {
    let digits = line.split('#').next().unwrap_or_default().trim();
    let starts = (0..digits.len()).step_by(2);
    let byte = |start| digits.get(start..start + 2).context("expected pairs of digits");
    starts.map(|start| Ok(u8::from_str_radix(byte(start)?, 16)?)).collect()
}

fn line(data: &[u8]) -> String {
    data.iter().map(|byte| format!("{byte:02x}")).chain(["\n".to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::{data, line};

    #[test]
    fn a_line_is_an_input() {
        assert_eq!(data("00ff10 # what was wrong").unwrap(), [0, 255, 16]);
        assert_eq!(data(&line(&[1, 171])).unwrap(), [1, 171]);
        assert!(data("0").is_err() && data("0x").is_err() && data("\u{e9}").is_err());
    }
}
