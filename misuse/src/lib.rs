//! Programs that misuse dlbridge: see `tests/ui.rs`.
