//! Tensors whose owner lends an array, such as the guard of a lock.
//! Invariant: the owner is borrowed once, at its final address, until it is dropped.

use std::ops::{Deref, DerefMut};

use crate::layout::{Layout, Lists};
use crate::raw::Handle;
use crate::raw::checked::{Checked, Memory};
use crate::raw::handle::header::Owns;
use crate::{Error, Flags, Tensor, TensorMut, TensorRef, TypeCode};

/// The layout and the memory of a borrowed tensor, for the header that keeps its lender: with the rights
/// of the borrow. A copy was made for the lender, and is no consumer's.
fn lent<'l>(checked: Checked<'_>, lists: Lists<'l>) -> (Layout<'l>, Memory) {
    let flags = checked.flags - Flags::IS_COPIED;
    (lists.copy(checked.layout()), Memory { flags, ..checked.memory() })
}

impl Tensor {
    /// A read-only tensor over an array behind a lock, which stays locked for reading until the last consumer
    /// drops the memory. No call waits: taking the lock, and failing where it is taken, is the caller's.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use dlbridge::Tensor;
    /// use parking_lot::RwLock;
    ///
    /// let lock = Arc::new(RwLock::new(vec![1.0_f32, 2.0]));
    /// let tensor = Tensor::from_guard(lock.try_read_arc().expect("nobody writes"));
    /// assert_eq!(tensor.as_slice::<f32>()?, [1.0, 2.0]);
    /// assert!(lock.try_write_arc().is_none(), "as long as the tensor lives");
    /// drop(tensor);
    /// assert!(lock.try_write_arc().is_some());
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// The guard owns its lock (`Arc`), and may be dropped on any thread: those of `parking_lot` with the features
    /// `arc_lock` and `send_guard`, and the owned guards of `tokio`. One of the standard library does neither, and
    /// does not compile. Any other owner of an array will do, such as an `Arc<Array>`.
    ///
    /// # Panics
    ///
    /// If no tensor can describe the array, as with `TensorRef::from`.
    #[must_use]
    pub fn from_guard<G>(guard: G) -> Self
    where
        G: Deref<Target: 'static> + Send + 'static,
        for<'a> TensorRef<'a>: From<&'a G::Target>,
    {
        let rank = TensorRef::from(&*guard).rank();
        // SAFETY: borrowed from the owner at its final address, which is not used again before it is dropped.
        // The conversion holds for a borrow of any lifetime, so also for this one (R2). Others may borrow the
        // same array: a `TensorRef` is frozen at most (R4).
        let handle = unsafe {
            Handle::export(guard, Owns::Anything, rank, |guard, lists| {
                Ok(lent(TensorRef::from(&**guard).checked(), lists))
            })
        };
        Self(handle.expect("a tensor described it"))
    }

    /// A writable tensor over an array behind a lock, which stays locked for writing until the last consumer
    /// drops the memory. See [`from_guard`](Self::from_guard).
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use dlbridge::Tensor;
    /// use parking_lot::RwLock;
    ///
    /// let lock = Arc::new(RwLock::new(vec![1.0_f32, 2.0]));
    /// let mut tensor = Tensor::from_guard_mut(lock.try_write_arc().expect("nobody reads"))?;
    /// tensor.as_slice_mut::<f32>()?[0] = 7.0;
    /// assert!(lock.try_read_arc().is_none(), "as long as the tensor lives");
    /// drop(tensor);
    /// assert_eq!(*lock.read(), [7.0, 2.0]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotConvertible`] for elements of type `bool`: a consumer could write another byte than 0 and 1,
    /// which the owner of the lock would read as a `bool`.
    ///
    /// # Panics
    ///
    /// If no tensor can describe the array, as with `TensorMut::from`.
    pub fn from_guard_mut<G>(mut guard: G) -> Result<Self, Error>
    where
        G: DerefMut<Target: 'static> + Send + 'static,
        for<'a> TensorMut<'a>: From<&'a mut G::Target>,
    {
        let rank = TensorMut::from(&mut *guard).rank();
        // SAFETY: as in `from_guard`, of a unique borrow (R2, R4).
        let handle = unsafe {
            Handle::export(guard, Owns::Anything, rank, |guard, lists| {
                let borrowed = TensorMut::from(&mut **guard);
                // Of this borrow, since `deref_mut` of a guard may return another array each time.
                if borrowed.dtype().code == TypeCode::BOOL {
                    return Err(Error::NotConvertible {
                        what: "dtype",
                        found: "bool".to_owned(),
                        expected: "elements that may have any bits; lock an array of u8, or share it \
                                   read-only with from_guard()",
                    });
                }
                Ok(lent(borrowed.checked(), lists))
            })
        };
        handle.map(Self)
    }
}
