//! Objects that are made once: names, the version that is asked for, our class.
//! Using them does not belong here.
//! Invariant: made whole, then never changed nor freed. Python is expected to start once.

use dlbridge::sys::{DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};

use super::api::Pointer;
use super::class::{self, Class};
use super::exception::Exception;
use super::object::{Object, Python};
use crate::publish::Place;

pub(super) struct Constants {
    /// `"__dlpack__"`.
    pub(super) dlpack: Pointer,
    /// `"__dlpack_c_exchange_api__"`.
    pub(super) exchange: Pointer,
    /// `"is_conj"`.
    pub(super) is_conj: Pointer,
    /// `(1, 3)`.
    pub(super) version: Pointer,
    /// `("max_version",)`.
    pub(super) keywords: Pointer,
    /// What an exported tensor becomes.
    pub(super) class: Class,
}

// SAFETY: addresses of objects, which are used where a thread is attached (F1, R9).
unsafe impl Sync for Constants {}

static CONSTANTS: Place<Constants> = Place::new();

impl Constants {
    #[inline]
    pub(super) fn get(python: Python) -> Result<&'static Self, Exception> {
        match CONSTANTS.get() {
            Some(constants) => Ok(constants),
            None => Self::make(python),
        }
    }

    /// Two threads may get here, since Python may let its lock go meanwhile. The second one's
    /// objects are leaked, which happens at most once a thread.
    #[cold]
    fn make(python: Python) -> Result<&'static Self, Exception> {
        let name = |name| python.intern(name).map(Object::into_raw);
        let number = |number: u32| python.integer(number as i32);
        let version = [number(DLPACK_MAJOR_VERSION)?, number(DLPACK_MINOR_VERSION)?];
        let made = Box::new(Self {
            dlpack: name(c"__dlpack__")?,
            exchange: name(c"__dlpack_c_exchange_api__")?,
            is_conj: name(c"is_conj")?,
            version: python.tuple(version)?.into_raw(),
            keywords: python.tuple([python.intern(c"max_version")?])?.into_raw(),
            class: class::make(python)?,
        });
        Ok(CONSTANTS.publish(made).unwrap_or_else(|(kept, _)| kept))
    }

    /// What was made before; for callbacks of our class, which exists only then.
    pub(super) fn existing() -> Option<&'static Self> {
        CONSTANTS.get()
    }
}
