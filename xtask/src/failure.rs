//! Why a command stopped, and the exit status that says so.
//! Printing on the way does not belong here: a failure is reported once, by `main`.

use std::fmt::Display;
use std::process::ExitCode;

/// What every fallible function here returns.
pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

/// A command that could not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    status: u8,
    message: String,
}

impl Failure {
    /// Something went wrong: exit status 1.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { status: 1, message: message.into() }
    }

    /// The command line asks for what there is not: exit status 2.
    pub(crate) fn usage(message: impl Display) -> Self {
        let message = format!("{message}\n       `cargo xtask help` lists what there is");
        Self { status: 2, message }
    }

    /// Everything has been said already: exit status 1 and no message.
    pub(crate) fn already_told() -> Self {
        Self::new("")
    }

    /// The message, for a summary.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Prints the message and gives the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        if !self.message.is_empty() {
            eprintln!("error: {}", self.message);
        }
        ExitCode::from(self.status)
    }
}
