//! The expected result of importing a descriptor: all its faults, or the tensor's metadata and
//! elements. `elements` compares the elements.
//! Invariant: the model uses nothing of the library but names.

use dlbridge::{Access, DType, DescriptorError, Device, Error, Flags, MAX_NDIM, Tensor, TensorRef};

use crate::given::{Data, Given};
use crate::model::{self, Span};

/// The largest element count that is enumerated; a broadcast axis can have any number.
pub(crate) const WALKED: usize = 512;

/// The metadata of a tensor, and the bytes of its elements.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) shape: Vec<i64>,
    pub(crate) strides: Vec<i64>,
    pub(crate) dtype: DType,
    pub(crate) device: Device,
    pub(crate) flags: Flags,
    pub(crate) access: Access,
    pub(crate) len: usize,
    pub(crate) data: usize,
    pub(crate) byte_offset: u64,
    /// The bytes of each element in row-major order, if elements are whole bytes, in existing
    /// memory and not too many.
    pub(crate) elements: Option<Vec<Vec<u8>>>,
}

/// What an import function adds to the plain descriptor.
#[derive(Clone, Copy)]
pub(crate) struct Said {
    pub(crate) flags: Flags,
    pub(crate) version: Option<(u32, u32)>,
}

impl Facts {
    /// The expected tensor of a descriptor whose memory starts at `start`, or the reasons to reject
    /// it, of which the error must name one.
    pub(crate) fn of(given: &Given, said: Said, start: usize) -> Result<Self, Vec<Error>> {
        if let Some((major, minor)) = said.version.filter(|&(major, _)| major != 1) {
            return Err(vec![DescriptorError::UnsupportedVersion { major, minor }.into()]);
        }
        let Said { flags, .. } = said;
        let mut faults = Vec::new();
        if model::is_impossible(given.dtype) {
            faults.push(DescriptorError::ImpossibleDType { dtype: given.dtype, reason: "" }.into());
        }
        let ndim = given.ndim;
        let axes = usize::try_from(ndim).ok().filter(|&axes| axes <= MAX_NDIM);
        let shape = match axes {
            None => {
                faults.push(DescriptorError::NdimOutOfRange { ndim }.into());
                return Err(faults);
            }
            Some(axes) if axes > 0 && !given.has_shape => {
                faults.push(DescriptorError::NullShape { ndim }.into());
                return Err(faults);
            }
            Some(axes) => given.shape[..axes].to_vec(),
        };
        let strides = match &given.strides {
            Some(strides) => strides[..shape.len()].to_vec(),
            // Strides that do not fit belong to shapes that are rejected or have no elements.
            None => model::contiguous(&shape).into_iter().map(Option::unwrap_or_default).collect(),
        };
        let span = match model::measure(&shape, &strides) {
            Ok(span) => span,
            Err(more) => {
                faults.extend(more);
                return Err(faults);
            }
        };
        let data = match given.data {
            Data::Own(at) => start + at,
            Data::At(address) => address,
        };
        let whole = Self {
            len: span.len as usize,
            // No flag makes foreign memory a better class: Python may have kept a copy (`IS_COPIED`).
            access: Access::Shared,
            data,
            byte_offset: 0,
            dtype: given.dtype,
            device: given.device,
            flags,
            elements: None,
            shape,
            strides,
        };
        if faults.is_empty() && span.len > 0 {
            return whole.with_elements(given, span, start);
        }
        if !faults.is_empty() {
            if span.len > 0 && Self::is_null(given, data) {
                faults.push(DescriptorError::NullData { len: whole.len }.into());
            }
            return Err(faults);
        }
        // The pointer is only carried.
        let (data, byte_offset) = if model::has_addresses(given.device.kind.0) {
            (data.wrapping_add(given.byte_offset as usize), 0)
        } else {
            (data, given.byte_offset)
        };
        Ok(Self { data, byte_offset, elements: Some(Vec::new()), ..whole })
    }

    /// Whether the data are at no address that the device's memory can have.
    fn is_null(given: &Given, data: usize) -> bool {
        let kind = given.device.kind.0;
        let origin = data as i128 + i128::from(given.byte_offset);
        data == 0 || model::has_addresses(kind) && origin < model::lowest_address(kind)
    }

    /// The byte range of the elements, if it is possible.
    fn with_elements(self, given: &Given, span: Span, start: usize) -> Result<Self, Vec<Error>> {
        let Self { dtype, flags, len, data, .. } = self;
        let mut faults = Vec::new();
        if Self::is_null(given, data) {
            faults.push(DescriptorError::NullData { len }.into());
        }
        if model::size(span.len, dtype, flags).is_none() {
            faults.push(DescriptorError::SizeOverflow { what: "byte size" }.into());
        }
        if model::size(span.high - span.low + 1, dtype, flags).is_none() {
            faults.push(DescriptorError::SizeOverflow { what: "strided span" }.into());
        }
        if !model::has_addresses(given.device.kind.0) {
            let byte_offset = given.byte_offset;
            let tensor = Self { byte_offset, ..self };
            return if faults.is_empty() { Ok(tensor) } else { Err(faults) };
        }
        let origin = data as i128 + i128::from(given.byte_offset);
        let low = origin - model::bytes(-span.low, dtype, flags);
        let high = origin + model::bytes(span.high + 1, dtype, flags);
        if low < model::lowest_address(given.device.kind.0) || high > usize::MAX as i128 {
            faults.push(DescriptorError::AddressOverflow { byte_offset: given.byte_offset }.into());
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let elements = self.elements_of(given, origin - start as i128);
        Ok(Self { data: origin as usize, elements, ..self })
    }

    /// The bytes of each element; the first starts `origin` bytes into the memory.
    fn elements_of(&self, given: &Given, origin: i128) -> Option<Vec<Vec<u8>>> {
        let Self { shape, strides, dtype, flags, len, .. } = self;
        let there = matches!(given.data, Data::Own(_)) && model::is_host(given.device.kind.0);
        if !there || *len > WALKED || model::is_packed(*dtype, *flags) {
            return None;
        }
        let size = model::bytes(1, *dtype, *flags);
        let element = |i| {
            let start = origin + model::offset_of_nth(i, shape, strides) * size;
            let (start, end) = (usize::try_from(start).ok()?, usize::try_from(start + size).ok()?);
            Some(given.memory.get(start..end)?.to_vec())
        };
        (0..*len).map(element).collect()
    }

    /// The facts of a borrow, which only reads.
    pub(crate) fn borrowed(&self) -> Self {
        let access = if self.access == Access::Shared { Access::Shared } else { Access::Frozen };
        let flags = (self.flags - Flags::IS_COPIED) | Flags::READ_ONLY;
        Self { access, flags, ..self.clone() }
    }

    pub(crate) fn is_contiguous(&self) -> bool {
        model::is_contiguous(&self.shape, &self.strides)
    }

    /// Whether the first element, if there is one, is aligned to `align`.
    pub(crate) fn is_aligned(&self, align: usize) -> bool {
        self.len == 0 || self.data % align == 0
    }
}

/// Asserts that an error is one of the reasons, apart from its wording.
pub(crate) fn assert_named(error: &Error, faults: &[Error]) {
    assert!(!error.to_string().is_empty());
    let named = faults.iter().any(|fault| match (error, fault) {
        (
            Error::Descriptor(DescriptorError::ImpossibleDType { dtype, reason }),
            Error::Descriptor(DescriptorError::ImpossibleDType { dtype: of, .. }),
        ) => dtype == of && !reason.is_empty(),
        _ => error == fault,
    });
    assert!(named, "refused for {error:?}, wanted one of {faults:?}");
}

macro_rules! assert_says {
    ($name:ident, $ty:ty) => {
        /// Asserts that a tensor has the expected metadata.
        pub(crate) fn $name(tensor: &$ty, facts: &Facts) {
            assert_eq!(tensor.shape(), facts.shape, "shape");
            assert_eq!(tensor.strides(), facts.strides, "strides");
            assert_eq!(tensor.ndim(), facts.shape.len(), "ndim");
            assert_eq!(tensor.dtype(), facts.dtype, "dtype");
            assert_eq!(tensor.device(), facts.device, "device");
            assert_eq!((tensor.len(), tensor.is_empty()), (facts.len, facts.len == 0), "length");
            let size = model::size(facts.len as i128, facts.dtype, facts.flags);
            assert_eq!(size, Some(tensor.nbytes() as i128), "size in bytes");
            assert_eq!(tensor.flags(), facts.flags, "flags");
            assert_eq!(tensor.is_read_only(), facts.flags.contains(Flags::READ_ONLY));
            assert_eq!(tensor.is_copied(), facts.flags.contains(Flags::IS_COPIED));
            assert_eq!(tensor.access(), facts.access, "access");
            assert_eq!(tensor.is_contiguous(), facts.is_contiguous(), "contiguity");
            assert_eq!(tensor.data_ptr().addr(), facts.data, "data");
            assert_eq!(tensor.byte_offset(), facts.byte_offset, "byte offset");
            assert!(!format!("{tensor:?}").is_empty());
        }
    };
}

assert_says!(assert_says, Tensor);
assert_says!(assert_ref_says, TensorRef<'_>);
