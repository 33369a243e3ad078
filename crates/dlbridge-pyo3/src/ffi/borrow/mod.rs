//! Borrows: a run-time check that memory which is written has no other user in Rust.
//!
//! An argument borrows its memory from the moment it is extracted until it is dropped: to read, or to
//! write ([`Writable`](crate::Writable)). Another tensor of Rust borrows it to read as long as Rust has a handle
//! to it, and an object of Python while Rust reads it. Two borrows of which one writes have no byte in common, on
//! whichever threads and in whichever extension modules of the process they live.
//!
//! | file | job |
//! | --- | --- |
//! | `borrowed` | a tensor and its borrow: of an argument, for a moment, or for as long as Rust keeps it; what an extension promises of its callers |
//! | `space` | ... in the call's own frame, without a header |
//! | `shared` | the table of the process, of which extension modules share the functions |
//! | `own` | ... of this module, with the lists of each thread |
//! | `table` | the bytes that are borrowed now: the protocol, and why it excludes |
//! | `list`, `slot` | ... by one thread, and one borrow of them |
//! | `ordered` | ... by tensors that Rust keeps, where a thread has many, in the order of their addresses |
//!
//! Invariant: a borrow to write excludes every other borrow of its bytes.

/// The slots of a segment.
const SLOTS: usize = 128;

/// What the table takes from `std`; `cargo xtask sanitize loom` compiles it with loom's.
mod sync {
    pub(super) use std::sync::atomic::{AtomicPtr, AtomicUsize, fence};
    pub(super) use std::sync::{Mutex, MutexGuard};
    use std::thread;
    use std::time::Duration;

    /// Lets another thread run, also one of a lower priority.
    pub(super) fn pause(tries: usize) {
        if tries < 64 { thread::yield_now() } else { thread::sleep(Duration::from_micros(50)) }
    }
}

mod borrowed;
mod list;
mod ordered;
mod own;
mod shared;
mod slot;
mod space;
mod table;

use dlbridge::Tensor;
use dlbridge::ffi::Bytes;
use pyo3::exceptions::PyTypeError;

use crate::Error;
use crate::error::error_of;

#[cfg(feature = "tensor-methods")]
pub(crate) use borrowed::read_at_once;
pub(crate) use borrowed::{Borrowed, Reading, copied, find_table, give, give_shared, kept, ready};
pub use borrowed::{Promised, StableArguments};

/// What the borrower does with the elements.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Read,
    Write,
}

/// Another borrow of some of the bytes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Other {
    kind: Kind,
    /// Whether it is of a tensor that Rust keeps, not of an argument.
    is_kept: bool,
    bytes: Bytes,
}

/// Why memory cannot be borrowed. PyO3 adds the name of the argument.
#[cold]
fn refusal(tensor: &Tensor, other: Other) -> Error {
    let found = format!("{}{:?} at {:p}", tensor.dtype(), tensor.shape(), tensor.data_ptr());
    let Other { kind, is_kept, bytes: Bytes { start, end, .. } } = other;
    let (expected, verb) = match kind {
        Kind::Write => ("memory that no other argument writes", "writes"),
        Kind::Read => ("memory to write that no other code in Rust uses", "reads"),
    };
    let (user, help) = match is_kept {
        true => ("a tensor that Rust keeps", "delete the object that keeps it, or "),
        false => ("another argument", ""),
    };
    Error::from(error_of::<PyTypeError>(format!(
        "expected {expected}, found {found}, of which {user}, {} bytes at {start:#x}, {verb} a part; \
         {help}pass a copy: np.array(x), in PyTorch x.clone()",
        end - start,
    )))
}
