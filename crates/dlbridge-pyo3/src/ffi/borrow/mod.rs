//! Borrows for the length of a call: a run-time check that memory which is written has no other user.
//!
//! An argument borrows its memory from the moment it is extracted until it is dropped: to read, or to
//! write ([`Writable`](crate::Writable)). Two borrows of which one writes have no byte in common, on
//! whichever threads and in whichever extension modules of the process they live.
//!
//! | file | job |
//! | --- | --- |
//! | `borrowed` | a tensor and its borrow; what an extension promises of its callers |
//! | `table`, `shared` | what is borrowed now, in the whole process |
//! | `range` | whether two tensors have a byte in common |
//!
//! Invariant: a borrow to write excludes every other borrow of its bytes.

mod borrowed;
mod range;
mod shared;
mod table;

use dlbridge::Tensor;
use pyo3::exceptions::PyTypeError;

use crate::Error;

pub(crate) use borrowed::Borrowed;
pub use borrowed::{Promised, StableArguments};
use shared::table;

/// What the borrower does with the elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Read,
    Write,
}

/// Why memory cannot be borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Conflict {
    /// Another borrow has the bytes.
    Borrowed(Kind),
    /// There are more borrows than slots, so that not all are known.
    TooMany,
}

/// PyO3 adds the name of the argument.
#[cold]
fn refusal(tensor: &Tensor, conflict: Conflict) -> Error {
    let (expected, use_of_it) = match conflict {
        Conflict::Borrowed(Kind::Write) => ("memory that no other argument writes", "writes"),
        Conflict::Borrowed(Kind::Read) => ("memory to write that no other argument uses", "reads"),
        Conflict::TooMany => ("memory to write that no other argument uses", "may read"),
    };
    let found = format!("{}{:?} at {:p}", tensor.dtype(), tensor.shape(), tensor.data_ptr());
    Error::Python(PyTypeError::new_err(format!(
        "expected {expected}, found {found}, of which another argument {use_of_it} a part; pass a copy: \
         np.array(x), in PyTorch x.clone()"
    )))
}
