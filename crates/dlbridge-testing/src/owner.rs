//! An owner that counts its drops and misbehaves on request; a counter of deleter calls and drops that outlives what it
//! counts.
//! Invariant: the elements lie in one vector, which is never reallocated.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An owner of elements that counts how often it is dropped.
///
/// ```
/// use dlbridge::Tensor;
/// use dlbridge_testing::CountingOwner;
///
/// let owner = CountingOwner::new([1.0_f32, 2.0]);
/// let drops = owner.drops();
/// let tensor = Tensor::builder(owner).build::<f32>()?;
/// assert_eq!(drops.count(), 0);
/// drop(tensor);
/// assert_eq!(drops.count(), 1);
/// # Ok::<(), dlbridge::Error>(())
/// ```
#[derive(Debug)]
pub struct CountingOwner<T> {
    values: Vec<T>,
    drops: Releases,
    panics_on_drop: bool,
    panics_on_borrow: bool,
}

/// What a [`CountingOwner`] panics with when it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PanicOnDrop;

/// What a [`CountingOwner`] panics with when its elements are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PanicOnBorrow;

impl<T> CountingOwner<T> {
    /// Owns `values`.
    #[must_use]
    pub fn new(values: impl Into<Vec<T>>) -> Self {
        let values = values.into();
        Self { values, drops: Releases::default(), panics_on_drop: false, panics_on_borrow: false }
    }

    /// The count of drops; 0 while this owner lives.
    #[must_use]
    pub fn drops(&self) -> Releases {
        self.drops.clone()
    }

    /// Where the elements lie, as long as this owner lives.
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.values.as_ptr()
    }

    /// Panics with [`PanicOnDrop`] when it is dropped, after having counted. The panic hook stays
    /// silent.
    #[must_use]
    pub fn panic_on_drop(mut self) -> Self {
        self.panics_on_drop = true;
        self
    }

    /// Panics with [`PanicOnBorrow`] when its elements are asked for. The panic hook stays silent.
    #[must_use]
    pub fn panic_on_borrow(mut self) -> Self {
        self.panics_on_borrow = true;
        self
    }

    fn check(&self) {
        if self.panics_on_borrow {
            resume_unwind(Box::new(PanicOnBorrow));
        }
    }
}

impl<T> AsRef<[T]> for CountingOwner<T> {
    fn as_ref(&self) -> &[T] {
        self.check();
        &self.values
    }
}

impl<T> AsMut<[T]> for CountingOwner<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self.check();
        &mut self.values
    }
}

impl<T> Drop for CountingOwner<T> {
    fn drop(&mut self) {
        self.drops.record();
        if self.panics_on_drop {
            resume_unwind(Box::new(PanicOnDrop));
        }
    }
}

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
