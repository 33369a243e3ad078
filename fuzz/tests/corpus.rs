//! Replays every stored input: the corpus, and the inputs that once found a defect; then inputs of a fixed seed. `cargo
//! xtask fuzz` finds new ones.

use std::panic::catch_unwind;

use dlbridge_fuzz::driver::{inputs, list, seeded};
use dlbridge_fuzz::{TARGETS, Target, target};

/// Runs the inputs of a kind, and returns their number.
fn replay(kind: &str, target: Target) -> usize {
    let file = list(kind, target);
    // Only some targets have regressions.
    let inputs = if file.exists() { inputs(&file).unwrap() } else { Vec::new() };
    // Each input is slow under Miri.
    let step = if cfg!(miri) { 16 } else { 1 };
    for (index, data) in inputs.iter().enumerate().step_by(step) {
        let replayed = catch_unwind(|| (target.run)(data));
        assert!(replayed.is_ok(), "{}:{}", file.display(), index + 1);
    }
    inputs.len()
}

/// Replays the corpus of a target, which must exist, and its regressions.
fn replay_all(name: &str) {
    let target = target(name).unwrap();
    let kept = replay("corpus", target);
    assert!(kept > 10, "{name} has {kept} inputs");
    replay("regressions", target);
}

/// The number of inputs for each target that has no files to make.
const SEEDED: usize = if cfg!(miri) { 50 } else { 20_000 };

#[test]
fn inputs_of_a_fixed_seed() {
    for name in ["gate", "layout", "view", "builder", "adapters", "borrowed"] {
        let target = target(name).unwrap();
        for (index, data) in seeded(target, 7).unwrap().take(SEEDED).enumerate() {
            let result = catch_unwind(|| (target.run)(&data));
            assert!(result.is_ok(), "{name}: input {index} of seed 7, {data:02x?}");
        }
    }
}

#[test]
fn gate() {
    replay_all("gate");
}

#[test]
fn layout() {
    replay_all("layout");
}

#[test]
fn view() {
    replay_all("view");
}

#[test]
fn builder() {
    replay_all("builder");
}

#[test]
fn adapters() {
    replay_all("adapters");
}

#[test]
fn borrowed() {
    replay_all("borrowed");
}

#[test]
fn rights() {
    replay_all("rights");
}

#[test]
#[cfg_attr(miri, ignore = "Miri makes no memory files")]
fn sealed() {
    replay_all("sealed");
}

#[test]
#[cfg_attr(miri, ignore = "Miri makes no memory files")]
fn channel() {
    replay_all("channel");
}

#[test]
fn any_bytes_are_an_input() {
    // Miri makes no memory files.
    let needs_files = |target: &Target| ["sealed", "channel"].contains(&target.name);
    for target in TARGETS.iter().filter(|target| !cfg!(miri) || !needs_files(target)) {
        for byte in [0, 1, 0x55, 0x80, 0xff] {
            for len in [0, 1, 7, 64, 300] {
                (target.run)(&vec![byte; len]);
            }
        }
    }
}
