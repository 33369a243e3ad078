//! Fuzz target `builder`; what it checks is in `src/builder.rs`.
#![cfg_attr(fuzzing, no_main)]

dlbridge_fuzz::program!("builder");
