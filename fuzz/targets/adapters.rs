//! Fuzz target `adapters`; what it checks is in `src/adapters.rs`.
#![cfg_attr(fuzzing, no_main)]

dlbridge_fuzz::program!("adapters");
