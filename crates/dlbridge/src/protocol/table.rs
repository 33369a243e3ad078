//! Which exchange table may be called in place of a type's `__dlpack__`.

use std::ffi::CStr;

use dlbridge_sys::{DLPACK_MAJOR_VERSION, DLPackExchangeAPIHeader};

use crate::TypeCode;

/// The attribute of a type that holds the capsule of its table.
pub const ATTRIBUTE: &str = "__dlpack_c_exchange_api__";

/// The name of that capsule.
pub const CAPSULE: &CStr = c"dlpack_exchange_api";

/// The methods that a type shares with the class whose table it inherits.
pub const METHODS: [&str; 2] = ["__dlpack__", "__getattribute__"];

/// PyTorch's hook, which comes before any method. A type may also have switched it off.
pub const HOOK: &str = "__torch_function__";

/// The most tables of a chain that are read: a circular chain has no end.
const MOST_TABLES: usize = 16;

/// Whether a type does what the class does whose table it inherits. Then the table serves it.
///
/// `inherits` tells whether the type and that class have the same attribute, or both have none;
/// `is_hook_off` whether the type has switched [`HOOK`] off. What a single object has does not count,
/// as with Python's own special methods.
///
/// # Errors
///
/// Those of the two functions.
pub fn serves<E>(
    mut inherits: impl FnMut(&'static str) -> Result<bool, E>,
    is_hook_off: impl FnOnce() -> Result<bool, E>,
) -> Result<bool, E> {
    for method in METHODS {
        if !inherits(method)? {
            return Ok(false);
        }
    }
    Ok(inherits(HOOK)? || is_hook_off()?)
}

/// The newest table of our major version in a chain, from the first table to older ones.
pub fn usable<'a>(
    mut found: Option<&'a DLPackExchangeAPIHeader>,
    older: impl Fn(&'a DLPackExchangeAPIHeader) -> Option<&'a DLPackExchangeAPIHeader>,
) -> Option<&'a DLPackExchangeAPIHeader> {
    for _ in 0..MOST_TABLES {
        let header = found?;
        if header.version.major == DLPACK_MAJOR_VERSION {
            return Some(header);
        }
        found = older(header);
    }
    None
}

/// Whether the object of a tensor from a table must be asked whether its memory holds its values:
/// PyTorch conjugates lazily, and its table exports the numbers before conjugation.
#[must_use]
#[inline]
pub fn may_be_conjugated(code: TypeCode) -> bool {
    // One comparison for integers and floats, whose codes are lower.
    code >= TypeCode::COMPLEX && matches!(code, TypeCode::COMPLEX | TypeCode::BCOMPLEX)
}

/// PyTorch's hook behind all methods. Objects of a type that has one may have no memory.
pub const DISPATCH: &str = "__torch_dispatch__";

/// The message for a tensor that is conjugated lazily.
pub const CONJUGATED: &str = "object: expected a tensor whose memory holds its values, found one \
                              that is conjugated lazily; call resolve_conj() first";

/// The message for a tensor that is negated lazily.
pub const NEGATED: &str = "object: expected a tensor whose memory holds its values, found one that \
                           is negated lazily; call resolve_neg() first";

/// The message for a tensor of zeros that has no memory.
pub const ZEROS: &str = "object: expected a tensor whose memory holds its values, found zeros \
                         without memory; call clone() first";

/// The message for a tensor of a type that has elements and no memory.
#[must_use]
pub fn no_memory(kind: &str) -> String {
    format!(
        "object: expected a tensor with memory, found {kind} without; a fake tensor (FakeTensorMode, \
         torch.compile) has a shape only: make the function an operator with the crate dlbridge-operators; \
         a wrapper has the memory of what it wraps"
    )
}
