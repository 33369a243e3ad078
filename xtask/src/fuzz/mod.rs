//! Running the fuzz targets: what drives them, and what it says on the way.

mod engine;
mod progress;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use crate::command;
use crate::failure::{Failure, Result};
use crate::project;
pub(crate) use engine::Engine;
use progress::Progress;

/// The programs of the targets.
const TARGETS: &str = "fuzz/targets";
/// Where inputs that find something are written.
const ARTIFACTS: &str = "fuzz/artifacts";
/// The inputs that are kept in the repository: those that reach something new, and those that once
/// found something.
const KEPT: [&str; 2] = ["fuzz/corpus", "fuzz/regressions"];
/// The longest input, in bytes: no target reads more.
const LONGEST: &str = "-max_len=256";

/// How a target is run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// For so long.
    pub(crate) seconds: u64,
    /// What inputs begin with.
    pub(crate) seed: u64,
    /// Whether inputs that reach something new go into the repository.
    pub(crate) keep: bool,
}

/// The names of all targets.
pub(crate) fn targets() -> Vec<String> {
    project::files_in(&project::path(TARGETS), "rs")
        .iter()
        .map(|file| project::stem(file))
        .collect()
}

/// Runs one target, which was built, and says how it went.
pub(crate) fn run(engine: &Engine, target: &str, plan: Plan) -> Result {
    let mut program = command::program(engine.built(target)?);
    match engine {
        Engine::Random { .. } => {
            program.args(["--seconds", &plan.seconds.to_string()]);
            program.args(["--seed", &plan.seed.to_string()]);
        }
        Engine::LibFuzzer { .. } => guided(&mut program, target, plan)?,
    }
    let (started, mut progress) = (Instant::now(), Progress::new(target));
    let result = command::watch_errors(&mut program, |line| progress.read(line))?;
    let seconds = started.elapsed().as_secs_f32();
    println!("{target}: {} in {seconds:.0} s, {}", progress.sum(), progress.findings());
    if let Some(input) = progress.finding() {
        let replay = engine.replay(target, input)?;
        return Err(Failure::new(format!("{target}: found something; replay it by `{replay}`")));
    }
    result.map_err(|failure| {
        let again = format!("cargo xtask fuzz {target} --seed {}", plan.seed);
        Failure::new(format!("{}; again by `{again}`", failure.message()))
    })?;
    if plan.keep { keep(engine, target) } else { Ok(()) }
}

/// The arguments of libFuzzer. Inputs that reach something new go into the first folder.
fn guided(program: &mut Command, target: &str, plan: Plan) -> Result {
    let found = scratch("new", target)?;
    let artifacts = project::path(ARTIFACTS).join(target);
    for folder in [&found, &artifacts] {
        project::make_folder(folder)?;
    }
    program
        .arg(format!("-max_total_time={}", plan.seconds))
        .arg(format!("-seed={}", plan.seed))
        // Inputs may be long from the start: most of a short one is read as zeros.
        .args([LONGEST, "-len_control=0", "-timeout=20", "-print_final_stats=1", "-print_funcs=0"])
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(found)
        .args(kept(target))
        .env("ASAN_OPTIONS", "detect_leaks=1");
    Ok(())
}

/// The folders of a target's inputs that there are.
fn kept(target: &str) -> impl Iterator<Item = PathBuf> {
    let target = target.to_owned();
    KEPT.into_iter()
        .map(move |kind| project::path(kind).join(&target))
        .filter(|folder| folder.is_dir())
}

fn scratch(kind: &str, target: &str) -> Result<PathBuf> {
    Ok(project::target_folder()?.join("fuzz-inputs").join(kind).join(target))
}

/// Puts the fewest inputs into the corpus that reach all that the corpus and the new ones reach.
fn keep(engine: &Engine, target: &str) -> Result {
    if matches!(engine, Engine::Random { .. }) {
        return Err(Failure::new("only libFuzzer knows which inputs reach something new"));
    }
    let (corpus, new) = (project::path(KEPT[0]).join(target), scratch("new", target)?);
    let merged = scratch("merged", target)?;
    project::make_folder(&corpus)?;
    let _ = fs::remove_dir_all(&merged);
    project::make_folder(&merged)?;
    let mut program = command::program(engine.built(target)?);
    // Whether code is reached counts, not how often; the fewest inputs that cover it are kept.
    program.args(["-set_cover_merge=1", "-use_counters=0", LONGEST]);
    program.args([&merged, &corpus, &new]);
    command::watch_errors(&mut program, |_| {})??;
    let moved = fs::remove_dir_all(&corpus).and_then(|()| fs::rename(&merged, &corpus));
    moved.map_err(|error| Failure::new(format!("cannot write {}: {error}", corpus.display())))
}
