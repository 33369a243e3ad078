//! Values that are made once, and published to all threads without a lock.
//! Making them does not belong here.
//! Invariant: F6: a published value is never partially initialised, and never freed.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A place for one value: the first that is published.
pub(crate) struct Place<T>(AtomicPtr<T>);

impl<T> Place<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
}

impl<T: Sync> Place<T> {
    /// The published value.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or leaked by `publish`, which released what it wrote (F6).
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Publishes a value; returns the published one, with this one back if another was first.
    pub(crate) fn publish(&self, value: Box<T>) -> Result<&'static T, (&'static T, Box<T>)> {
        let made = Box::into_raw(value);
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let outcome = self.0.compare_exchange(ptr::null_mut(), made, order.0, order.1);
        let place = outcome.map_or_else(|kept| kept, |_| made);
        // SAFETY: one of the two, and either is never freed once it is published (F6).
        let kept = unsafe { &*place };
        match outcome {
            Ok(_) => Ok(kept),
            // SAFETY: made above of a box, and not published (R7).
            Err(_) => Err((kept, unsafe { Box::from_raw(made) })),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::Place;

    /// Miri runs this under many schedules, ThreadSanitizer with more threads and rounds.
    const ROUNDS: usize = if cfg!(miri) { 4 } else { 500 };
    const THREADS: usize = if cfg!(miri) { 3 } else { 8 };

    #[test]
    fn every_thread_sees_one_value_and_sees_it_whole() {
        for _ in 0..ROUNDS {
            let place: &'static Place<Vec<usize>> = Box::leak(Box::new(Place::new()));
            let start = Barrier::new(THREADS);
            let seen: Vec<_> = thread::scope(|scope| {
                let run = |number: usize| {
                    start.wait();
                    if let Some(seen) = place.get() {
                        assert_eq!(seen.len(), 4);
                    }
                    match place.publish(Box::new(vec![number; 4])) {
                        Ok(kept) => kept,
                        Err((kept, mine)) => {
                            assert_eq!(*mine, [number; 4]);
                            kept
                        }
                    }
                };
                let threads: Vec<_> =
                    (0..THREADS).map(|number| scope.spawn(move || run(number))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let first = place.get().expect("one was published");
            assert!(seen.iter().all(|seen| std::ptr::eq(*seen, first)));
            assert_eq!(*first, [first[0]; 4]);
        }
    }
}
