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
//! | `table`, `shared` | what is borrowed now, in the whole process |
//! | `range` | whether two tensors have a byte in common |
//!
//! Invariant: a borrow to write excludes every other borrow of its bytes.

mod borrowed;
mod range;
mod shared;
mod table;

use dlbridge::{DType, Tensor};
use pyo3::exceptions::PyTypeError;

use crate::Error;

pub(crate) use borrowed::{Borrowed, Reading, copied, give, give_shared, kept};
pub use borrowed::{Promised, StableArguments};
use shared::table;

/// What the borrower does with the elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Read,
    Write,
}

/// Another borrow of some of the bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Other {
    kind: Kind,
    /// Whether it is of a tensor that Rust keeps, not of an argument.
    is_kept: bool,
    dtype: DType,
    shape: Vec<i64>,
    /// The address of its lowest element.
    start: usize,
}

/// Why memory cannot be borrowed.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Conflict {
    /// Another borrow has the bytes.
    Borrowed(Other),
    /// There are more borrows than slots, so that not all are known.
    TooMany,
}

/// PyO3 adds the name of the argument.
#[cold]
fn refusal(tensor: &Tensor, conflict: Conflict) -> Error {
    let found = format!("{}{:?} at {:p}", tensor.dtype(), tensor.shape(), tensor.data_ptr());
    let (expected, user, help) = match conflict {
        Conflict::Borrowed(Other { kind, is_kept, dtype, shape, start }) => {
            let (expected, verb) = match kind {
                Kind::Write => ("memory that no other argument writes", "writes"),
                Kind::Read => ("memory to write that no other code in Rust uses", "reads"),
            };
            let (user, help) = match is_kept {
                true => ("a tensor that Rust keeps", "delete the object that keeps it, or "),
                false => ("another argument", ""),
            };
            (expected, format!("{user}, {dtype}{shape:?} at {start:#x}, {verb} a part"), help)
        }
        Conflict::TooMany => (
            "memory to write that no other code in Rust uses",
            "another argument or a tensor that Rust keeps may read a part".to_owned(),
            "delete some of the more than 32,768 tensors, or ",
        ),
    };
    Error::Python(PyTypeError::new_err(format!(
        "expected {expected}, found {found}, of which {user}; {help}pass a copy: \
         np.array(x), in PyTorch x.clone()"
    )))
}
