//! Reads that the compiler cannot see, as multiples of a `View`'s: a table.
//! What is read, and how, is decided in `benches/rust/src/reads.rs`.
//! Invariant: each line has a cell for each word of the first, tabs between.

use crate::bench::report::Section;

const INTRODUCTION: &str = "\
Without T6 of SAFETY.md, memory that another language may write is read by inline assembly or relaxed atomics.
A number is how many times as long a loop takes as over a `View` (the quickest of 201 rounds, of 21 for 64 MiB): over blocks
of 4 KiB that are copied to the stack, or of 128 bytes that are loaded into registers.

";

/// The section of what the program printed.
pub(super) fn section(output: &str) -> Section {
    let mut lines = output.lines().map(|line| format!("| {} |\n", line.replace('\t', " | ")));
    let head = lines.next().unwrap_or_default();
    let rule = " ---: |".repeat(head.matches(" | ").count().saturating_sub(2));
    let body =
        format!("{INTRODUCTION}{head}| --- | --- | --- |{rule}\n{}", lines.collect::<String>());
    Section::without_chart("Rust: reads", body)
}

#[cfg(test)]
mod tests {
    use super::section;

    #[test]
    fn a_line_is_a_row() {
        let table = "| loop | elements | size | ns | asm |\n| --- | --- | --- | ---: | ---: |\n\
                     | sum | uint8 | 16 KiB | 150 | 1.96 |\n";
        let output = "loop\telements\tsize\tns\tasm\nsum\tuint8\t16 KiB\t150\t1.96\n";
        assert!(section(output).body.ends_with(table), "{}", section(output).body);
    }
}
