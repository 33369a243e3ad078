//! Replays every input of the corpus, those that once found a defect among them; then inputs of a fixed seed. `cargo xtask
//! fuzz` finds new ones.

use std::panic::catch_unwind;

use dlbridge_fuzz::driver::{corpus, inputs, seeded};
use dlbridge_fuzz::{TARGETS, Target, target};

/// Replays the corpus of a target.
fn replay(name: &str) {
    let target = target(name).unwrap();
    let file = corpus(target);
    let inputs = inputs(&file).unwrap();
    assert!(inputs.len() > 10, "{name} has {} inputs", inputs.len());
    // Each input is slow under Miri. The first ones found a defect.
    let step = if cfg!(miri) { 16 } else { 1 };
    for (index, data) in inputs.iter().enumerate().step_by(step) {
        let replayed = catch_unwind(|| (target.run)(data));
        assert!(replayed.is_ok(), "{}:{}", file.display(), index + 1);
    }
}

/// The number of inputs for each target that has no files to make: more of them in the long tests.
fn seeded_inputs() -> usize {
    match std::env::var_os("DLBRIDGE_LONG") {
        _ if cfg!(miri) => 50,
        Some(_) => 100_000,
        None => 5_000,
    }
}

#[test]
fn inputs_of_a_fixed_seed() {
    for name in ["gate", "layout", "view", "builder", "adapters", "borrowed"] {
        let target = target(name).unwrap();
        for (index, data) in seeded(target, 7).unwrap().take(seeded_inputs()).enumerate() {
            let result = catch_unwind(|| (target.run)(&data));
            assert!(result.is_ok(), "{name}: input {index} of seed 7, {data:02x?}");
        }
    }
}

#[test]
fn gate() {
    replay("gate");
}

#[test]
fn layout() {
    replay("layout");
}

#[test]
fn view() {
    replay("view");
}

#[test]
fn builder() {
    replay("builder");
}

#[test]
fn adapters() {
    replay("adapters");
}

#[test]
fn borrowed() {
    replay("borrowed");
}

#[test]
fn rights() {
    replay("rights");
}

#[test]
#[cfg_attr(miri, ignore = "Miri makes no memory files")]
fn sealed() {
    replay("sealed");
}

#[test]
#[cfg_attr(miri, ignore = "Miri makes no memory files")]
fn channel() {
    replay("channel");
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
