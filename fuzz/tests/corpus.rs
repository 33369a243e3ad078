//! Replays every stored input: the corpus, and the inputs that once found a defect. `cargo xtask
//! fuzz` finds new ones.

use std::panic::catch_unwind;

use dlbridge_fuzz::driver::{folder, inputs};
use dlbridge_fuzz::{TARGETS, Target, target};

/// Runs the inputs of a kind; gives their number.
fn replay(kind: &str, target: Target) -> usize {
    let folder = folder(kind, target);
    let inputs = inputs(&folder).unwrap_or_default();
    // Each input is slow under Miri.
    let step = if cfg!(miri) { 16 } else { 1 };
    for (name, data) in inputs.iter().step_by(step) {
        let replayed = catch_unwind(|| (target.run)(data));
        assert!(replayed.is_ok(), "{}: {kind}/{}/{name}", target.name, target.name);
    }
    inputs.len()
}

/// The corpus of a target, which must be there, and what it once found.
fn replay_all(name: &str) {
    let target = target(name);
    let kept = replay("corpus", target);
    assert!(kept > 10, "{name} has {kept} inputs");
    replay("regressions", target);
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
#[cfg_attr(miri, ignore = "Miri makes no memory files")]
fn sealed() {
    replay_all("sealed");
}

#[test]
fn any_bytes_are_an_input() {
    // Miri makes no memory files.
    for target in TARGETS.iter().filter(|target| !cfg!(miri) || target.name != "sealed") {
        for byte in [0, 1, 0x55, 0x80, 0xff] {
            for len in [0, 1, 7, 64, 300] {
                (target.run)(&vec![byte; len]);
            }
        }
    }
}
