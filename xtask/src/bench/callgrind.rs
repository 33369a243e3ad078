//! What callgrind writes: how many instructions ran between two marks, and how often memory was
//! asked for.
//! Running it does not belong here.

use std::collections::HashMap;

/// The functions of the C library that allocate; what else allocates calls one of them.
const ALLOCATORS: [&str; 6] =
    ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign"];

/// The counts of one dump.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dump {
    /// The label that the program gave it.
    pub(crate) label: String,
    /// Instructions that ran.
    pub(crate) instructions: u64,
    /// Calls of allocating functions.
    pub(crate) allocations: u64,
}

impl Dump {
    /// Reads a file; `None` for one that the program did not ask for, as at its end.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.split_once("desc: Trigger: Client Request: ")?;
        let label = rest.lines().next()?.to_owned();
        let instructions = total(text)?;
        Some(Self { label, instructions, allocations: allocations(text) })
    }
}

/// All instructions of a dump.
pub(crate) fn total(text: &str) -> Option<u64> {
    let totals = text.lines().rev().find_map(|line| line.strip_prefix("totals: "))?;
    totals.split_whitespace().next()?.parse().ok()
}

/// Sums `calls=` lines below a `cfn=` line that names an allocator. A name is spelled out where it
/// first appears, `cfn=(7) malloc`, and is a number from there on, `cfn=(7)`.
fn allocations(text: &str) -> u64 {
    let mut is_allocator = HashMap::new();
    let mut callee_allocates = false;
    let mut sum = 0;
    for line in text.lines() {
        let callee = line.strip_prefix("cfn=");
        if let Some(function) = callee.or_else(|| line.strip_prefix("fn=")) {
            let (number, name) = function.split_once(' ').unwrap_or((function, ""));
            let known = is_allocator.entry(number).or_insert_with(|| allocates(name));
            if callee.is_some() {
                callee_allocates = *known;
            }
        } else if let Some(calls) = line.strip_prefix("calls=").filter(|_| callee_allocates) {
            let number = calls.split(' ').next().unwrap_or_default();
            sum += number.parse::<u64>().unwrap_or(0);
        }
    }
    sum
}

/// Whether a name is an allocator's; callgrind marks a recursive call by `'2`.
fn allocates(name: &str) -> bool {
    ALLOCATORS.contains(&name.split('\'').next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::Dump;

    const TEXT: &str = "\
# callgrind format
version: 1
part: 3

desc: Timerange: Basic block 10 - 20
desc: Trigger: Client Request: numpy-in floor work
positions: line
events: Ir
summary: 900

ob=(1) libc.so.6
fn=(1) calloc
0 20
fn=(2) read
0 30
cfn=(3) malloc
calls=1000 0
0 400
cfn=(4) free
calls=1000 0
0 300
cfn=(1)
calls=5 0
0 10
fn=(5) make
cfn=(3)
calls=7 0
0 40

totals: 900
";

    #[test]
    fn a_labelled_dump_is_read() {
        let label = "numpy-in floor work".to_owned();
        let wanted = Dump { label, instructions: 900, allocations: 1012 };
        assert_eq!(Dump::parse(TEXT), Some(wanted));
    }

    #[test]
    fn only_what_the_program_asked_for_is_read() {
        assert_eq!(Dump::parse(&TEXT.replace("Client Request: ", "Program termination")), None);
        assert_eq!(Dump::parse(&TEXT.replace("totals: ", "totals:")), None);
    }

    #[test]
    fn a_recursive_allocator_is_one_too() {
        let text = TEXT.replace("(3) malloc", "(3) malloc'2").replace("calloc", "my_calloc");
        assert_eq!(Dump::parse(&text).unwrap().allocations, 1007);
    }
}
