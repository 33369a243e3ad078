//! Values that are made once, with Python's help.
//! Invariant: no Python code runs while other code waits for a value.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// A value that is made at its first use.
///
/// Making it may run Python code: an import hook, a signal handler, a finaliser. That code may need the
/// same value. Inside `get_or_init` of PyO3 or of the standard library it would wait for itself.
pub(crate) struct Once<T>(PyOnceLock<T>);

impl<T> Once<T> {
    pub(crate) const fn new() -> Self {
        Self(PyOnceLock::new())
    }

    /// The value, if it was made.
    #[inline]
    pub(crate) fn get(&self, py: Python<'_>) -> Option<&T> {
        self.0.get(py)
    }

    /// The value. Where several threads, or nested calls, make it at the same time, the first stays.
    #[inline]
    pub(crate) fn get_or_make<E>(
        &self,
        py: Python<'_>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&T, E> {
        match self.0.get(py) {
            Some(value) => Ok(value),
            None => self.make(py, make),
        }
    }

    #[cold]
    fn make<E>(&self, py: Python<'_>, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let value = make()?;
        // Dropping a second value may run Python code as well.
        drop(self.0.set(py, value));
        Ok(self.0.get(py).expect("it was set"))
    }
}
