//! Fuzz target `layout`; what it checks is in `src/layout.rs`.
#![cfg_attr(fuzzing, no_main)]

dlbridge_fuzz::program!("layout");
