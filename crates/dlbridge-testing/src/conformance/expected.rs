//! The properties that a tensor made by a conversion must have.

use std::fmt::Debug;

use dlbridge::{Access, Device, Element, Error, Flags, Tensor, TensorRef, layout};

use crate::Releases;

/// What a conversion has to make: an exact shape, and the elements in row-major order.
///
/// ```
/// use dlbridge_testing::conformance::Expected;
///
/// let column_major = [1.0_f32, 4.0, 2.0, 5.0, 3.0, 6.0];
/// let expected = Expected::new(&[2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0])
///     .strides(&[1, 2])
///     .at(column_major.as_ptr())
///     .read_only();
/// # let _ = expected;
/// ```
#[derive(Clone, Debug)]
pub struct Expected<T> {
    shape: Vec<i64>,
    strides: Vec<i64>,
    values: Vec<T>,
    data: Option<usize>,
    device: Device,
    pub(super) access: Access,
    pub(super) releases: Option<Releases>,
}

impl<T: Element + PartialEq + Debug> Expected<T> {
    /// A contiguous row-major tensor in host memory, of class [`Exclusive`](Access::Exclusive).
    ///
    /// # Panics
    ///
    /// If the shape has another number of elements than `values`.
    #[must_use]
    #[track_caller]
    pub fn new(shape: &[i64], values: &[T]) -> Self {
        let len: i64 = shape.iter().product();
        assert_eq!(usize::try_from(len), Ok(values.len()), "{shape:?} has as many values");
        Self { values: values.into(), ..Self::described(shape, Device::CPU, Access::Exclusive) }
    }

    /// A tensor on a device whose elements the host cannot read, of class
    /// [`Shared`](Access::Shared).
    ///
    /// # Panics
    ///
    /// If the host can read them.
    #[must_use]
    #[track_caller]
    pub fn on(device: Device, shape: &[i64]) -> Self {
        assert!(!device.is_host_accessible(), "{device} is host memory: say its values");
        Self::described(shape, device, Access::Shared)
    }

    fn described(shape: &[i64], device: Device, access: Access) -> Self {
        let mut strides = vec![0; shape.len()];
        layout::contiguous_strides(shape, &mut strides);
        let (values, data, releases) = (Vec::new(), None, None);
        Self { shape: shape.into(), strides, values, data, device, access, releases }
    }

    /// Strides other than those of a contiguous row-major tensor.
    #[must_use]
    pub fn strides(self, strides: &[i64]) -> Self {
        Self { strides: strides.into(), ..self }
    }

    /// The address of element `[0, 0, ...]`: the memory itself is shared, not a copy.
    #[must_use]
    pub fn at<P>(self, data: *const P) -> Self {
        Self { data: Some(data.addr()), ..self }
    }

    /// The class [`Frozen`](Access::Frozen): the owner is immutable.
    #[must_use]
    pub fn read_only(self) -> Self {
        self.access(Access::Frozen)
    }

    /// Another class.
    #[must_use]
    pub fn access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// What counts the releases of the owner, such as
    /// [`CountingOwner::drops`](crate::CountingOwner::drops).
    #[must_use]
    pub fn releases(self, releases: Releases) -> Self {
        Self { releases: Some(releases), ..self }
    }

    pub(super) fn is_host(&self) -> bool {
        self.device.is_host_accessible()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Whether the flags have to say read-only. A tensor that is `Shared` may be either.
    pub(super) fn is_read_only(&self) -> bool {
        self.access == Access::Frozen
    }

    #[track_caller]
    pub(super) fn expect_releases(&self, wanted: usize, when: &str) {
        if let Some(releases) = &self.releases {
            releases.expect(wanted, when);
        }
    }

    /// Checks what a tensor says of itself, its class, and its elements.
    #[track_caller]
    pub(super) fn check_tensor(&self, tensor: &Tensor, access: Access, when: &str) {
        assert_eq!(tensor.access(), access, "{when}: access class");
        self.check(&tensor.as_tensor_ref(), when);
    }

    /// Checks what a borrowed tensor says of itself, and its elements.
    #[track_caller]
    pub(super) fn check(&self, tensor: &TensorRef<'_>, when: &str) {
        assert_eq!(tensor.dtype(), T::DTYPE, "{when}: dtype");
        assert_eq!(tensor.shape(), self.shape, "{when}: shape");
        assert_eq!(tensor.ndim(), self.shape.len(), "{when}: ndim");
        assert_eq!(tensor.device(), self.device, "{when}: device");
        assert_eq!(tensor.byte_offset(), 0, "{when}: byte offset left over");
        assert_eq!(tensor.is_empty(), self.is_empty(), "{when}: is_empty");
        let len: i64 = self.shape.iter().product();
        assert_eq!(tensor.len() as i64, len, "{when}: len");
        let size = tensor.len() * size_of::<T>();
        assert_eq!(tensor.nbytes(), size, "{when}: nbytes");
        if !self.is_empty() {
            self.check_memory(tensor, when);
        }
        if self.is_host() {
            self.check_values(tensor, when);
        } else {
            let error = tensor.view::<T>().map(|_| ()).expect_err("no view of device memory");
            assert_eq!(error, Error::NotHostAccessible { device: self.device }, "{when}");
        }
    }

    #[track_caller]
    fn check_memory(&self, tensor: &TensorRef<'_>, when: &str) {
        let moving = |strides: &[i64]| -> Vec<i64> {
            let axes = strides.iter().zip(&self.shape).filter(|&(_, &extent)| extent != 1);
            axes.map(|(&stride, _)| stride).collect()
        };
        let (found, wanted) = (moving(tensor.strides()), moving(&self.strides));
        assert_eq!(found, wanted, "{when}: strides of the axes longer than 1");
        let contiguous = layout::is_contiguous(&self.shape, &self.strides);
        assert_eq!(tensor.is_contiguous(), contiguous, "{when}: is_contiguous");
        if let Some(data) = self.data {
            assert_eq!(tensor.data_ptr().addr(), data, "{when}: data pointer: not the same memory");
        }
    }

    #[track_caller]
    fn check_values(&self, tensor: &TensorRef<'_>, when: &str) {
        let view = tensor.view::<T>().expect("a view of its own type");
        assert_eq!(view.to_vec(), self.values, "{when}: elements in row-major order");
        assert_eq!(view.iter().len(), self.values.len(), "{when}: length of the iterator");
        assert!(view.iter().eq(self.values.iter().copied()), "{when}: iter and to_vec differ");
        if let Some(&first) = self.values.first() {
            let origin = vec![0; self.shape.len()];
            assert_eq!(view.get(&origin), Some(first), "{when}: first element");
        }
    }
}

/// Whether a tensor's flags say read-only where it has to be.
#[track_caller]
pub(super) fn check_read_only<T>(tensor: &Tensor, expected: &Expected<T>, when: &str) {
    match expected.access {
        Access::Frozen => assert!(tensor.is_read_only(), "{when}: an immutable owner is read-only"),
        Access::Exclusive => assert!(!tensor.is_read_only(), "{when}: an exclusive owner is not"),
        Access::Shared => {}
    }
    assert!(!tensor.flags().contains(Flags::IS_COPIED), "{when}: an owner that moved is no copy");
}
