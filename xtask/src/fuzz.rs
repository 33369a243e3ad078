//! `cargo xtask fuzz`: hostile descriptors, layouts, views and builders, each against a model. The
//! targets are in `fuzz/`. libFuzzer drives them on a stable Rust, since the flags for coverage are
//! stable ones (cargo-fuzz needs a nightly).

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use xshell::{Cmd, Shell, cmd};

use crate::shell::{files_in, root, shell, stem, succeeds, target};
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
            let way = "cargo run --package dlbridge-fuzz --bin gate -- --seconds 20";
            return skip(format!("libFuzzer needs Unix and a C++ compiler; random inputs: {way}"));
        }
        let (nightly, flags, folder) = if asan {
            let nightly = workspace::toolchain("nightly");
            let nightly = nightly.context("no nightly Rust: rustup toolchain install nightly")?;
            (Some(nightly), format!("{COVERAGE} -Zsanitizer=address"), "fuzz-asan")
        } else {
            (None, COVERAGE.to_owned(), "fuzz-coverage")
        };
        let (folder, words) = (target().join(folder), "build --package dlbridge-fuzz --bins");
        let build = workspace::cargo(&sh, nightly.as_deref()).args(words.split(' '));
        // A target of its own keeps the flags from build scripts.
        let build = build.args(["--profile", "fuzz", "--target", &host, "--target-dir"]);
        let build = build.arg(&folder).env("RUSTFLAGS", flags);
        build.env_remove("CARGO_ENCODED_RUSTFLAGS").run()?;
        Ok(Self { sh, nightly, folder, host })
    }

    fn program(&self, target: &str) -> PathBuf {
        self.folder.join(&self.host).join("fuzz").join(target)
    }

    /// Runs one target. libFuzzer prints what it finds, and the file that it writes the input to.
    fn run(&self, target: &str, options: &Options) -> Result<()> {
        // What only AddressSanitizer finds needs its program, other findings no libFuzzer.
        let program = match self.nightly {
            Some(_) => self.program(target).display().to_string(),
            None => format!("cargo run --package dlbridge-fuzz --bin {target} --"),
        };
        let seed = options.seed;
        self.guided(target, options)?.run().with_context(|| {
            format!(
                "replay its input by `{program} FILE`, or `cargo xtask fuzz {target} --seed {seed}`"
            )
        })?;
        if options.keep { self.keep(target) } else { Ok(()) }
    }

    /// libFuzzer's arguments. Inputs that reach new code go into the first folder.
    fn guided(&self, target: &str, options: &Options) -> Result<Cmd<'_>> {
        let new = self.sh.create_dir(inputs("new", target))?;
        let artifacts = self.sh.create_dir(root().join("fuzz/artifacts").join(target))?;
        // Inputs that reach different code, and those that once found something.
        let kept = ["fuzz/corpus", "fuzz/regressions"].map(|one| root().join(one).join(target));
        let kept = kept.into_iter().filter(|folder| folder.is_dir());
        let program = self.sh.cmd(self.program(target));
        Ok(program
            .arg(format!("-max_total_time={}", options.seconds))
            .arg(format!("-seed={}", options.seed))
            // Inputs may be long from the start: most of a short one is read as zeros.
            .args([LONGEST, "-len_control=0", "-timeout=20", "-verbosity=0"])
            .arg("-print_final_stats=1")
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .arg(new)
            .args(kept)
            .env("ASAN_OPTIONS", "detect_leaks=1"))
    }

    /// Replaces the corpus by the fewest inputs that reach all that it and the new ones reach.
    fn keep(&self, target: &str) -> Result<()> {
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
        merge.run()?;
        sh.remove_path(&corpus)?;
        Ok(std::fs::rename(&merged, &corpus)?)
    }
}

fn inputs(kind: &str, target: &str) -> PathBuf {
    crate::shell::target().join("fuzz-inputs").join(kind).join(target)
}
