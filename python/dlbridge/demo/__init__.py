"""Shares arrays of the installed frameworks with Rust: `python -m dlbridge.demo`."""
