//! `cargo xtask fuzz`: hostile descriptors, layouts, views and builders, each against a model.
//! The targets are in `fuzz/`; which engine drives them is decided in `fuzz/engine.rs` beside this.
//! Invariant: what is found is named by the command that replays it.

use crate::args::Args;
use crate::counted::Counted;
use crate::failure::{Failure, Result};
use crate::fuzz::{self, Engine, Plan};
use crate::tally::Tally;

/// For each target, unless told another time.
const SECONDS: u64 = 20;
/// The same, as a part of `cargo xtask ci`.
const SHORT: u64 = 15;

/// Runs all targets, or the ones that are named.
pub(crate) fn run(mut args: Args) -> Result {
    let seconds = number(&mut args, "--seconds")?.unwrap_or(SECONDS);
    let seed = number(&mut args, "--seed")?.unwrap_or(1);
    let (keep, address_sanitizer) = (args.flag("--keep"), args.flag("--asan"));
    let (all, mut chosen) = (fuzz::targets(), args.rest());
    if let Some(unknown) = chosen.iter().find(|name| !all.contains(name)) {
        let names = all.join(", ");
        return Err(Failure::usage(format!("no fuzz target `{unknown}`, there are {names}")));
    }
    if chosen.is_empty() {
        chosen = all;
    }
    let mut steps = Counted::default();
    let engine = Engine::choose(address_sanitizer)?;
    fuzz_each(&engine, &chosen, Plan { seconds, seed, keep }, &mut steps);
    steps.finish()
}

/// A short run of every target, as steps of another command.
pub(crate) fn short(steps: &mut Counted) -> Result {
    let plan = Plan { seconds: SHORT, seed: 1, keep: false };
    fuzz_each(&Engine::choose(false)?, &fuzz::targets(), plan, steps);
    Ok(())
}

fn fuzz_each(engine: &Engine, targets: &[String], plan: Plan, steps: &mut Counted) {
    let mut built = false;
    steps.step("build the fuzz targets", |_| {
        engine.build()?;
        built = true;
        Ok(())
    });
    for target in targets.iter().filter(|_| built) {
        steps.step(&format!("fuzz {target}"), |tally| {
            fuzz::run(engine, target, plan)?;
            *tally += Tally::PASSED;
            Ok(())
        });
    }
}

/// The one number after a flag, if it is there.
fn number(args: &mut Args, flag: &str) -> Result<Option<u64>> {
    let values = args.list(flag)?;
    let [value] = &values[..] else {
        let several = || Failure::usage(format!("`{flag}` takes one number"));
        return if values.is_empty() { Ok(None) } else { Err(several()) };
    };
    let number = value.parse();
    number.map(Some).map_err(|_| Failure::usage(format!("`{flag} {value}` is no number")))
}

#[cfg(test)]
mod tests {
    use super::number;
    use crate::args::Args;

    fn args(line: &str) -> Args {
        Args::new(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_flag_takes_one_number() {
        assert_eq!(number(&mut args("gate"), "--seed").unwrap(), None);
        assert_eq!(number(&mut args("gate --seed 7"), "--seed").unwrap(), Some(7));
        assert!(number(&mut args("--seed x"), "--seed").is_err());
        assert!(number(&mut args("--seed 1,2"), "--seed").is_err());
    }
}
