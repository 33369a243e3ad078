//! Fuzz target `view`; what it checks is in `src/view.rs`.
#![cfg_attr(fuzzing, no_main)]

dlbridge_fuzz::program!("view");
