//! Fuzz target `borrowed`; what it checks is in `src/borrowed.rs`.
#![cfg_attr(fuzzing, no_main)]

dlbridge_fuzz::program!("borrowed");
