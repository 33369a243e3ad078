//! `cargo xtask fuzz`: hostile descriptors, layouts, views and builders, each against a model. The
//! targets are in `fuzz/`. libFuzzer drives them on a stable Rust, since the flags for coverage are
//! stable ones (cargo-fuzz needs a nightly); without a C++ compiler, the targets make random inputs.

use std::env;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use xshell::{Cmd, Shell, cmd};

use crate::shell::{each_error, files_in, root, shell, stem, succeeds, target};
use crate::steps::Steps;
use crate::workspace;

/// Lets libFuzzer see which code an input reaches, and what it is compared with.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// The longest input, in bytes: no target reads more.
const LONGEST: &str = "-max_len=256";
/// Prefixes of libFuzzer's lines that are not shown: progress, the input in other forms.
const QUIET: [&str; 7] = ["#", "INFO: ", "WARNING: ", "MS: ", "0x", "Base64: ", "artifact_prefix"];

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The targets to run; default: all
    #[arg(value_parser = target_name)]
    targets: Vec<String>,
    /// How long each target runs
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// The seed of the random inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Add inputs that reach new code to the corpus, and remove those that nothing needs
    #[arg(long)]
    keep: bool,
    /// Run under AddressSanitizer, with a nightly Rust
    #[arg(long)]
    asan: bool,
}

fn targets() -> Vec<String> {
    files_in("fuzz/targets", "rs").iter().map(|file| stem(file)).collect()
}

fn target_name(name: &str) -> Result<String, String> {
    let all = targets();
    let problem = || format!("expected one of {}", all.join(", "));
    all.iter().find(|known| *known == name).cloned().ok_or_else(problem)
}

/// Runs all targets, or the given ones.
pub(crate) fn run(options: &Options) -> Result<()> {
    Steps::run(|steps| each_target(options, steps))
}

/// A short run of every target, as steps of another command.
pub(crate) fn short(steps: &mut Steps) -> Result<()> {
    let (targets, asan) = (Vec::new(), false);
    each_target(&Options { targets, seconds: 15, seed: 1, keep: false, asan }, steps)
}

fn each_target(options: &Options, steps: &mut Steps) -> Result<()> {
    let fuzzer = Fuzzer::choose(options.asan)?;
    if steps.check("build the fuzz targets", || fuzzer.build()) {
        let all = if options.targets.is_empty() { targets() } else { options.targets.clone() };
        for target in all {
            steps.count(&format!("fuzz {target}"), |tally| {
                fuzzer.run(&target, options)?;
                tally.passed += 1;
                Ok(())
            });
        }
    }
    Ok(())
}

/// What makes the inputs: libFuzzer, or the targets themselves.
struct Fuzzer {
    sh: Shell,
    guided: bool,
    /// The nightly Rust to build with AddressSanitizer.
    nightly: Option<String>,
    /// Where cargo builds.
    folder: PathBuf,
    host: String,
}

impl Fuzzer {
    fn choose(asan: bool) -> Result<Self> {
        let (sh, host) = (shell(), workspace::host()?);
        let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
        let guided = cfg!(unix) && succeeds(cmd!(sh, "{compiler} --version"));
        let nightly = if asan {
            ensure!(
                guided,
                "AddressSanitizer needs libFuzzer, which needs a C++ compiler and Unix"
            );
            let nightly = workspace::toolchain("nightly");
            Some(nightly.context("no nightly Rust: rustup toolchain install nightly")?)
        } else {
            None
        };
        let folder = match (guided, asan) {
            (true, true) => target().join("fuzz-asan"),
            (true, false) => target().join("fuzz-coverage"),
            (false, _) => target(),
        };
        Ok(Self { sh, guided, nightly, folder, host })
    }

    fn build(&self) -> Result<()> {
        let Self { sh, host, folder, nightly, .. } = self;
        let words = "build --package dlbridge-fuzz --bins --profile fuzz";
        let build = workspace::cargo(sh, nightly.as_deref()).args(words.split(' '));
        if !self.guided {
            println!("random inputs: libFuzzer needs a C++ compiler and Unix");
            return Ok(build.run()?);
        }
        let sanitizer = if nightly.is_some() { " -Zsanitizer=address" } else { "" };
        // A target of its own keeps the flags from build scripts.
        let build = build.args(["--target", host, "--target-dir"]).arg(folder);
        let build = build.env("RUSTFLAGS", format!("{COVERAGE}{sanitizer}"));
        Ok(build.env_remove("CARGO_ENCODED_RUSTFLAGS").run()?)
    }

    fn program(&self, target: &str) -> PathBuf {
        let folder = if self.guided { self.folder.join(&self.host) } else { self.folder.clone() };
        folder.join("fuzz").join(target.to_owned() + env::consts::EXE_SUFFIX)
    }

    /// Runs one target, and prints how it went.
    fn run(&self, target: &str, options: &Options) -> Result<()> {
        let Options { seconds, seed, .. } = options;
        let (program, sh) = (self.program(target), &self.sh);
        let run = if self.guided {
            self.guide(target, options)?
        } else {
            let (seconds, seed) = (seconds.to_string(), seed.to_string());
            cmd!(sh, "{program} --seconds {seconds} --seed {seed}")
        };
        let (mut shown, mut finding) = (Instant::now(), None);
        let result = each_error(run, |line| {
            if let Some((_, input)) = line.split_once("Test unit written to ") {
                finding = Some(input.trim().to_owned());
            }
            // How many inputs, and how much code they reach.
            let is_progress = line.starts_with('#') && shown.elapsed() > Duration::from_secs(5);
            if is_progress || !QUIET.iter().any(|start| line.starts_with(start)) {
                shown = Instant::now();
                println!("{target}: {line}");
            }
        });
        if let Some(input) = finding {
            bail!("replay it by `{}`", self.replay(target, &input));
        }
        result.with_context(|| format!("again by `cargo xtask fuzz {target} --seed {seed}`"))?;
        if options.keep { self.keep(target) } else { Ok(()) }
    }

    /// libFuzzer's arguments. Inputs that reach new code go into the first folder.
    fn guide(&self, target: &str, options: &Options) -> Result<Cmd<'_>> {
        let new = self.sh.create_dir(inputs("new", target))?;
        let artifacts = self.sh.create_dir(root().join("fuzz/artifacts").join(target))?;
        // Inputs that reach different code, and those that once found something.
        let mut kept =
            ["fuzz/corpus", "fuzz/regressions"].map(|one| root().join(one).join(target)).to_vec();
        kept.retain(|folder| folder.is_dir());
        let program = self.sh.cmd(self.program(target));
        Ok(program
            .arg(format!("-max_total_time={}", options.seconds))
            .arg(format!("-seed={}", options.seed))
            // Inputs may be long from the start: most of a short one is read as zeros.
            .args([LONGEST, "-len_control=0", "-timeout=20", "-print_funcs=0"])
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .arg(new)
            .args(kept)
            .env("ASAN_OPTIONS", "detect_leaks=1"))
    }

    /// The command that runs one input again, without libFuzzer; what only AddressSanitizer finds
    /// needs its program.
    fn replay(&self, target: &str, input: &str) -> String {
        let below = |path: &Path| path.strip_prefix(root()).unwrap_or(path).display().to_string();
        let input = below(Path::new(input));
        match self.nightly {
            Some(_) => format!("{} {input}", below(&self.program(target))),
            None => format!("cargo run --package dlbridge-fuzz --bin {target} -- {input}"),
        }
    }

    /// Replaces the corpus by the fewest inputs that reach all that it and the new ones reach.
    fn keep(&self, target: &str) -> Result<()> {
        ensure!(self.guided, "only libFuzzer knows which inputs reach new code");
        let (program, sh) = (self.program(target), &self.sh);
        let (new, merged) = (inputs("new", target), inputs("merged", target));
        let corpus = sh.create_dir(root().join("fuzz/corpus").join(target))?;
        sh.remove_path(&merged)?;
        sh.create_dir(&merged)?;
        // Whether code is reached counts, not how often.
        let merge = cmd!(
            sh,
            "{program} -set_cover_merge=1 -use_counters=0 {LONGEST} {merged} {corpus} {new}"
        );
        each_error(merge, |_| {})?;
        sh.remove_path(&corpus)?;
        Ok(std::fs::rename(&merged, &corpus)?)
    }
}

fn inputs(kind: &str, target: &str) -> PathBuf {
    crate::shell::target().join("fuzz-inputs").join(kind).join(target)
}
