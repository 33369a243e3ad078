//! Target `gate`: hostile descriptors of both ABIs, through every import function and every export.
//! `facts` computes the expected result.
//! Invariant: elements are read only if they are in the producer's memory (T3).

use std::ptr::NonNull;

use dlbridge::ffi;
use dlbridge::sys::{DLManagedTensorVersioned, DLTensor};
use dlbridge::{Access, DescriptorError, Error, Flags, Plain, Tensor, TensorRef};
use dlbridge_testing::{Foreign, Releases};

use crate::elements;
use crate::facts::{Facts, Said, assert_named, assert_ref_says, assert_says};
use crate::given::Given;
use crate::input::Input;
use crate::model;
use crate::release::{delete, delete_legacy};
use crate::value::{ForType, Value, bits, for_type};

/// Imports one descriptor.
///
/// # Panics
///
/// If it is accepted or rejected contrary to the model, if the tensor's metadata or elements differ
/// from the descriptor's, or if the deleter is not called exactly once.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let way = input.below(8);
    let given = Given::new(&mut input);
    match way {
        0 | 1 => versioned(&given, &mut input),
        2 => legacy(&given, &mut input),
        3 => kept_on_failure(&given, &mut input),
        4 => legacy_kept_on_failure(&given, &mut input),
        5 => borrowed_as_argument(&given, &mut input),
        6 => borrowed(&given, &mut input),
        _ => owned(&given, &mut input),
    }
}

/// A legacy descriptor: it has no flags, so its memory counts as read-only.
const LEGACY: Said = Said { flags: Flags::READ_ONLY, version: None };

/// A plain descriptor: no version, no flags.
const NOTHING: Said = Said { flags: Flags::NONE, version: None };

fn said(given: &Given) -> Said {
    Said { flags: given.flags, version: Some((given.major, given.minor)) }
}

fn versioned(given: &Given, input: &mut Input<'_>) {
    let null = std::ptr::null_mut::<DLManagedTensorVersioned>();
    // SAFETY: null is allowed.
    let rejected = unsafe { Tensor::from_raw(null) }.expect_err("null");
    assert_eq!(rejected, DescriptorError::NullTensor.into());
    let mut foreign = given.foreign();
    let (start, releases) = (foreign.memory().addr(), foreign.releases());
    let wanted = Facts::of(given, said(given), start);
    // SAFETY: elements are read where the model finds them in the producer's memory; lists are
    // as long as an ndim that is allowed says.
    let found = unsafe { foreign.import() };
    taken(given, found, wanted, &releases, input);
}

fn legacy(given: &Given, input: &mut Input<'_>) {
    let mut foreign = given.foreign();
    let (start, releases) = (foreign.memory().addr(), foreign.releases());
    let wanted = Facts::of(given, LEGACY, start);
    // SAFETY: as above.
    let found = unsafe { foreign.import_legacy() };
    taken(given, found, wanted, &releases, input);
}

fn kept_on_failure(given: &Given, input: &mut Input<'_>) {
    let mut foreign = given.foreign();
    let (start, releases) = (foreign.memory().addr(), foreign.releases());
    let wanted = Facts::of(given, said(given), start);
    let managed = foreign.into_versioned();
    // SAFETY: as above.
    let found = unsafe { Tensor::from_raw(managed) }.inspect_err(|_| {
        releases.expect(0, "refused, and still the caller's");
        delete(managed);
    });
    taken(given, found, wanted, &releases, input);
}

fn legacy_kept_on_failure(given: &Given, input: &mut Input<'_>) {
    let mut foreign = given.foreign();
    let (start, releases) = (foreign.memory().addr(), foreign.releases());
    let wanted = Facts::of(given, LEGACY, start);
    let managed = foreign.into_legacy();
    // SAFETY: as above.
    let found = unsafe { Tensor::from_raw(managed) }.inspect_err(|_| {
        releases.expect(0, "refused, and still the caller's");
        delete_legacy(managed);
    });
    taken(given, found, wanted, &releases, input);
}

/// Borrows an ordinary descriptor as a tensor, as an argument is.
fn borrowed_as_argument(given: &Given, input: &mut Input<'_>) {
    let mut foreign = given.foreign();
    let start = foreign.memory().addr();
    // A borrowed tensor keeps only the flags that have names.
    let flags = Flags(given.flags.0 & 7);
    let wanted = Facts::of(given, Said { flags, version: None }, start);
    foreign.with_raw(|tensor| {
        let tensor = NonNull::new(tensor).expect("a descriptor");
        // SAFETY: the producer lives until this function returns, as long as the tensor is used.
        let Some(tensor) = (unsafe { ffi::borrowed(tensor, given.flags) }) else { return };
        match &wanted {
            Ok(facts) => {
                assert_says(&tensor, facts);
                elements::check(&tensor, facts, input);
            }
            Err(faults) => panic!("let through, although {faults:?}"),
        }
    });
    foreign.releases().expect(0, "borrowed");
}

/// Borrows a plain descriptor.
fn borrowed(given: &Given, input: &mut Input<'_>) {
    // SAFETY: null is allowed.
    let null = unsafe { TensorRef::from_raw(std::ptr::null()) };
    assert_eq!(null.err(), Some(DescriptorError::NullTensor.into()));
    let mut foreign = given.foreign();
    let start = foreign.memory().addr();
    let wanted = Facts::of(given, NOTHING, start);
    foreign.with_raw(|tensor| {
        // SAFETY: as above; the producer lives longer than what is made here.
        let found = unsafe { TensorRef::from_raw(tensor) };
        match (&wanted, found) {
            (Ok(facts), Ok(tensor)) => {
                assert_ref_says(&tensor, &facts.borrowed());
                elements::check_ref(&tensor, facts, input);
                tensor.with_raw(|raw| {
                    // SAFETY: valid until this function returns.
                    let again = unsafe { TensorRef::from_raw(raw) }.expect("let through before");
                    assert_eq!(again.shape(), tensor.shape());
                    assert_eq!(again.data_ptr(), tensor.data_ptr());
                });
            }
            (wanted, found) => refused(found, wanted.as_ref().err().map(|faults| &faults[..])),
        }
    });
}

/// Counts the drops of an owner.
struct Owner {
    _memory: Foreign,
    drops: Releases,
}

// SAFETY: its pointers are numbers or lead to memory that it owns.
unsafe impl Send for Owner {}

impl Drop for Owner {
    fn drop(&mut self) {
        self.drops.record();
    }
}

/// Imports a plain descriptor with an owner of its memory; shape and strides are copied.
fn owned(given: &Given, input: &mut Input<'_>) {
    let mut foreign = given.foreign();
    let start = foreign.memory().addr();
    let wanted = Facts::of(given, Said { flags: given.flags, version: None }, start);
    let drops = Releases::default();
    // SAFETY: the descriptor is valid here, and its lists as long as the producer lives.
    let descriptor: DLTensor = foreign.with_raw(|tensor| unsafe { *tensor });
    let owner = Owner { _memory: foreign, drops: drops.clone() };
    // SAFETY: as above; the owner has the memory.
    let found = unsafe { ffi::from_owner_raw(owner, &descriptor, given.flags) };
    taken(&Given { has_deleter: true, ..given.clone() }, found, wanted, &drops, input);
}

/// Asserts that the rejection is expected, and its reason correct.
fn refused<T>(found: Result<T, Error>, faults: Option<&[Error]>) {
    match (found, faults) {
        (Ok(_), None) => {}
        (Err(error), Some(faults)) => assert_named(&error, faults),
        (Err(error), None) => panic!("refused for {error:?}, although nothing is wrong"),
        (Ok(_), Some(faults)) => panic!("let through, although {faults:?}"),
    }
}

/// Uses an imported tensor in every way, up to its only release.
fn taken(
    given: &Given,
    found: Result<Tensor, Error>,
    wanted: Result<Facts, Vec<Error>>,
    releases: &Releases,
    input: &mut Input<'_>,
) {
    let once = usize::from(given.has_deleter);
    let (tensor, facts) = match (found, wanted) {
        (Ok(tensor), Ok(facts)) => (tensor, facts),
        (found, wanted) => {
            refused(found, wanted.err().as_deref());
            return releases.expect(once, "refused");
        }
    };
    assert_says(&tensor, &facts);
    elements::check(&tensor, &facts, input);
    let (tensor, facts) =
        if input.below(2) == 0 { (tensor, facts) } else { promised(tensor, facts) };
    assert_says(&tensor, &facts);
    assert_says_ref(&tensor, &facts);
    releases.expect(0, "alive");
    let tensor = for_type(facts.dtype, Write { tensor, facts: &facts });
    let tensor = tensor.into_owner::<Vec<u8>>().expect_err("there is no vector");
    match input.below(5) {
        0 => drop(tensor),
        1 => exported(tensor, &facts, releases, input),
        2 => exported_legacy(tensor, &facts),
        3 => shared(tensor, &facts, releases, input),
        _ => {
            let tensor = Tensor::from(tensor.into_shared());
            let wanted = demoted(&facts);
            assert_says(&tensor, &wanted);
            exported(tensor, &wanted, releases, input);
        }
    }
    releases.expect(once, "dropped");
}

/// Gives the memory the class that it has in this target, which alone can reach it.
fn promised(tensor: Tensor, facts: Facts) -> (Tensor, Facts) {
    let access = if tensor.is_read_only() { Access::Frozen } else { Access::Exclusive };
    // SAFETY: no other code has the producer's memory; other addresses are not read.
    (unsafe { ffi::assume_class(tensor, access) }, Facts { access, ..facts })
}

fn assert_says_ref(tensor: &Tensor, facts: &Facts) {
    assert_ref_says(&tensor.as_tensor_ref(), &facts.borrowed());
}

/// The expected facts after `into_shared`: no copy made for one consumer, and an exclusive tensor
/// becomes `Shared`.
fn demoted(facts: &Facts) -> Facts {
    let access = if facts.access == Access::Exclusive { Access::Shared } else { facts.access };
    Facts { access, flags: facts.flags - Flags::IS_COPIED, ..facts.clone() }
}

/// Exports a versioned descriptor, reads it as C does, and imports it again.
fn exported(tensor: Tensor, facts: &Facts, releases: &Releases, input: &mut Input<'_>) {
    let managed = tensor.into_raw();
    releases.expect(0, "exported");
    {
        // SAFETY: alive until its deleter is called.
        let managed = unsafe { &*managed };
        assert_eq!((managed.version.major, managed.flags), (1, facts.flags.0));
        assert!(managed.deleter.is_some());
        let raw = &managed.dl_tensor;
        assert_eq!((raw.data.addr(), raw.byte_offset), (facts.data, facts.byte_offset));
        assert!(raw.ndim == 0 || !raw.strides.is_null(), "strides");
    }
    // SAFETY: made just now, and owned here.
    let tensor = unsafe { Tensor::from_raw(managed) }.expect("its own export is valid");
    let facts = Facts { access: Access::Shared, ..facts.clone() };
    assert_says(&tensor, &facts);
    elements::check(&tensor, &facts, input);
}

fn exported_legacy(tensor: Tensor, facts: &Facts) {
    let padded = facts.dtype.bits < 8 && facts.flags.contains(Flags::SUBBYTE_PADDED);
    let wanted = match () {
        () if facts.flags.contains(Flags::READ_ONLY) && !tensor.is_legacy_read_only() => {
            Some(Error::LegacyReadOnly)
        }
        () if padded => Some(Error::LegacyPadded { dtype: facts.dtype }),
        () => None,
    };
    match tensor.into_raw_legacy() {
        Ok(managed) => {
            assert_eq!(wanted, None);
            delete_legacy(managed);
        }
        Err(error) => assert_eq!(Some(error), wanted),
    }
}

/// Shares the tensor twice, and drops the first share first.
fn shared(tensor: Tensor, facts: &Facts, releases: &Releases, input: &mut Input<'_>) {
    let mut wanted = Facts { flags: facts.flags - Flags::IS_COPIED, ..facts.clone() };
    wanted.flags |= Flags::READ_ONLY;
    if facts.access != Access::Shared {
        wanted.access = Access::Frozen;
    }
    let tensor = tensor.into_frozen();
    let again = Tensor::from(tensor.clone());
    let third = Tensor::from(tensor.clone());
    drop(tensor);
    assert_says(&again, &wanted);
    drop(again);
    releases.expect(0, "shared");
    elements::check(&third, &wanted, input);
}

/// Writes all elements, if the access class permits that in safe code.
struct Write<'f> {
    tensor: Tensor,
    facts: &'f Facts,
}

impl ForType for Write<'_> {
    type Output = Tensor;

    fn plain<T: Value + Plain + Default>(self) -> Tensor {
        let Self { mut tensor, facts } = self;
        let exclusive = facts.access == Access::Exclusive && model::is_host(facts.device.kind.0);
        assert_eq!(tensor.view_mut::<T>().is_ok(), exclusive, "view_mut");
        let aligned = facts.is_aligned(align_of::<T>());
        let whole = exclusive && facts.is_contiguous() && aligned;
        if whole && facts.elements.is_none() {
            // No reference to elements that do not exist may be created.
            return tensor;
        }
        assert_eq!(tensor.as_slice_mut::<T>().is_ok(), whole, "as_slice_mut");
        let (true, Some(_)) = (exclusive, &facts.elements) else { return tensor };
        let values = tensor.view::<T>().expect("as before").to_vec();
        let mut view = tensor.view_mut::<T>().expect("asked above");
        view.copy_from_slice(&values).expect("as long");
        view.map_inplace(|value| value);
        assert_eq!(bits(tensor.view::<T>().expect("as before")), bits(values), "written back");
        tensor
    }

    fn bool(self) -> Tensor {
        self.tensor
    }

    fn none(self) -> Tensor {
        self.tensor
    }
}
