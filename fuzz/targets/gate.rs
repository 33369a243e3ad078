//! Fuzz target `gate`; what it checks is in `src/gate.rs`.
#![cfg_attr(fuzzing, no_main)]

dlbridge_fuzz::program!("gate");
