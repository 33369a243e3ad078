//! What the checks of files print.

use anyhow::{Result, bail};

/// Prints the findings, and fails if there are any.
pub(crate) fn report(findings: &[String]) -> Result<()> {
    for finding in findings {
        println!("{finding}");
    }
    if findings.is_empty() { Ok(()) } else { bail!("{} findings", findings.len()) }
}

/// The number of the line that a place in a text is in.
pub(crate) fn line_of(text: &str, place: usize) -> usize {
    1 + text[..place].matches('\n').count()
}
