//! A counter of deleter calls and drops that outlives what it counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts how often something was released. Clones share the count.
///
/// ```
/// use dlbridge_testing::Releases;
///
/// let releases = Releases::default();
/// let seen_elsewhere = releases.clone();
/// seen_elsewhere.record();
/// assert_eq!(releases.count(), 1);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Releases(Arc<AtomicUsize>);

impl Releases {
    /// How often so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Counts one more.
    pub fn record(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Asserts how often so far.
    ///
    /// # Panics
    ///
    /// If the count is another, saying when.
    #[track_caller]
    pub fn expect(&self, wanted: usize, when: &str) {
        let found = self.count();
        assert_eq!(found, wanted, "{when}: released {found} times, wanted {wanted}");
    }
}
