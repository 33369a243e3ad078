//! Fuzz target `sealed`; what it checks is in `src/sealed.rs`.
#![cfg_attr(fuzzing, no_main)]

dlbridge_fuzz::program!("sealed");
