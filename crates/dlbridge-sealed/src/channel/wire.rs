//! The bytes of a channel: frames of a head, a description of tensors, and the values of small messages.
//! Invariant: what is decoded fits the size that it is decoded for, whoever sent it.

use dlbridge::layout::contiguous_nbytes;
use dlbridge::{DType, DescriptorError, Error, TypeCode};

use crate::{ALIGN, refused};

/// The size of the head of a frame in bytes.
pub(super) const HEAD: usize = 32;
/// The most bytes of a description.
pub(super) const LONGEST: usize = 128 << 10;
/// The bytes of a tensor's description beside its name and its shape.
const FIXED: usize = 17;
/// The most bytes of values in a frame. Larger messages travel as a lease of a slot.
pub(super) const INLINE: usize = 16 << 10;

/// Where values begin in a slot: before them is room for the header of a sealed file, which the slot becomes if its
/// message is kept.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) const START: usize = 4096;

/// What a frame is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum Kind {
    /// A message with its values.
    Inline = 1,
    /// A message whose values are in a slot that the receiver has.
    Lease = 2,
    /// The same in a new slot, whose descriptor travels with the frame.
    LeaseNew = 3,
    /// The receiver has dropped the tensors of a lease.
    Return = 4,
    /// The sender has freed a slot.
    Forget = 5,
    /// The receiver asks that the slot of a lease becomes a sealed file.
    Keep = 6,
    /// The answer: it is one, whose descriptor travels with the frame.
    Kept = 7,
    /// The answer: the receiver has to copy.
    NotKept = 8,
    /// A message with its values, of any size, between ends that send bytes.
    Bytes = 9,
    /// The sender has a ring, whose descriptor travels with the frame.
    Ring = 10,
    /// The sender has both rings: its next frame is in its own. After this one, the socket has descriptors, each beside a
    /// byte, and bytes that wake its reader.
    Switch = 11,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) kind: Kind,
    /// The sizes of the description and of the values that follow.
    pub(super) described: usize,
    pub(super) values: usize,
    pub(super) slot: u32,
    pub(super) lease: u64,
}

impl Head {
    pub(super) fn new(kind: Kind, slot: u32, lease: u64) -> Self {
        Self { kind, described: 0, values: 0, slot, lease }
    }

    pub(super) fn encode(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&(self.kind as u32).to_ne_bytes());
        bytes[4..8].copy_from_slice(&(self.described as u32).to_ne_bytes());
        // The size of any message does not fit: it has the place of a lease.
        let (values, lease) = if self.kind == Kind::Bytes {
            (0, self.values as u64)
        } else {
            (self.values as u32, self.lease)
        };
        bytes[8..12].copy_from_slice(&values.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.slot.to_ne_bytes());
        bytes[16..24].copy_from_slice(&lease.to_ne_bytes());
        bytes
    }

    /// Decodes the head of a frame for an end that sends bytes, or one that shares memory.
    pub(super) fn decode(bytes: &[u8; HEAD], is_by_bytes: bool) -> Result<Self, Error> {
        let number = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let kinds = [
            Kind::Inline,
            Kind::Lease,
            Kind::LeaseNew,
            Kind::Return,
            Kind::Forget,
            Kind::Keep,
            Kind::Kept,
            Kind::NotKept,
            Kind::Bytes,
            Kind::Ring,
            Kind::Switch,
        ];
        let find = |number| kinds.into_iter().find(|&kind| kind as u32 == number);
        let kind = find(number(0)).ok_or_else(|| match find(number(0).swap_bytes()) {
            Some(_) => {
                broken("one of a machine of the other byte order, which is not supported".into())
            }
            None => broken(format!("a frame of kind {}", number(0))),
        })?;
        if (kind == Kind::Bytes) != is_by_bytes {
            return Err(mixed(is_by_bytes));
        }
        let (described, values) = (number(4) as usize, number(8) as usize);
        if described > LONGEST || values > INLINE {
            return Err(broken(format!("a frame of {described} and {values} bytes")));
        }
        let mut lease = [0; 8];
        lease.copy_from_slice(&bytes[16..24]);
        let lease = u64::from_ne_bytes(lease);
        if kind == Kind::Bytes {
            let values = usize::try_from(lease).unwrap_or(usize::MAX);
            return Ok(Self { kind, described, values, slot: 0, lease: 0 });
        }
        Ok(Self { kind, described, values, slot: number(12), lease })
    }

    /// The size of the whole frame.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn len(self) -> usize {
        HEAD + self.described + self.values
    }
}

/// A tensor of a message.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Vec<i64>,
    /// Where its bytes are in the message.
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// Places tensors one after the other; their description, and the size of all.
pub(super) fn plan(
    declared: &[(&str, DType, &[i64])],
) -> Result<(Vec<Entry>, Vec<u8>, usize), Error> {
    let mut names: Vec<&str> = declared.iter().map(|(name, ..)| *name).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
        let name = twice[0];
        return Err(refused(format!("expected a name that is not used twice, found {name:?}")));
    }
    let (mut entries, mut end) = (Vec::with_capacity(declared.len()), 0_usize);
    let size = |(name, _, shape): &(&str, DType, &[i64])| FIXED + name.len() + size_of_val(*shape);
    let mut bytes = Vec::with_capacity(declared.iter().map(size).sum());
    for &(name, dtype, shape) in declared {
        let len = contiguous_nbytes(dtype, shape)?;
        let too_large = || Error::Descriptor(DescriptorError::SizeOverflow { what: "byte size" });
        let offset = end.checked_next_multiple_of(ALIGN).ok_or_else(too_large)?;
        end = offset.checked_add(len).ok_or_else(too_large)?;
        bytes.extend((name.len() as u32).to_ne_bytes());
        bytes.extend(name.bytes());
        bytes.extend([dtype.code.0, dtype.bits]);
        bytes.extend(dtype.lanes.to_ne_bytes());
        bytes.push(shape.len() as u8);
        bytes.extend(shape.iter().flat_map(|extent| extent.to_ne_bytes()));
        bytes.extend((offset as u64).to_ne_bytes());
        entries.push(Entry { name: name.into(), dtype, shape: shape.into(), offset, len });
    }
    if bytes.len() > LONGEST {
        let found = bytes.len();
        return Err(refused(format!(
            "expected names and shapes of at most {LONGEST} bytes, found {found}"
        )));
    }
    Ok((entries, bytes, end))
}

/// Reads a description of tensors in `size` bytes.
pub(super) fn describe(mut bytes: &[u8], size: usize) -> Result<Vec<Entry>, Error> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let entry = entry(&mut bytes, size)?;
        entries.push(entry.ok_or_else(|| broken("a description that ends early".into()))?);
    }
    Ok(entries)
}

/// The next tensor; `None` if the bytes end before it does.
fn entry(bytes: &mut &[u8], size: usize) -> Result<Option<Entry>, Error> {
    let mut parse = || {
        let length = u32::from_ne_bytes(take(bytes)?) as usize;
        let (name, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        let [code, bits] = take(bytes)?;
        let lanes = u16::from_ne_bytes(take(bytes)?);
        let [rank] = take(bytes)?;
        let shape: Option<Vec<i64>> =
            (0..rank).map(|_| take(bytes).map(i64::from_ne_bytes)).collect();
        let offset = u64::from_ne_bytes(take(bytes)?);
        Some((name, DType { code: TypeCode(code), bits, lanes }, shape?, offset))
    };
    let Some((name, dtype, shape, offset)) = parse() else { return Ok(None) };
    let name = std::str::from_utf8(name).map_err(|_| broken("a name that is no UTF-8".into()))?;
    let len = contiguous_nbytes(dtype, &shape)?;
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    if offset % ALIGN != 0 || offset > size || len > size - offset {
        return Err(broken(format!("a tensor of {len} bytes at {offset} in {size}")));
    }
    Ok(Some(Entry { name: name.into(), dtype, shape, offset, len }))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

/// The error for a message that is larger than what its end allocates.
pub(super) fn too_large(limit: usize, found: usize) -> Error {
    refused(format!(
        "expected at most {limit} bytes, the limit of the pool, found {found}; make a larger pool"
    ))
}

/// The error for a peer of the other kind.
pub(super) fn mixed(is_by_bytes: bool) -> Error {
    let (here, there) = ("sends bytes", "shares memory");
    let (here, there) = if is_by_bytes { (here, there) } else { (there, here) };
    broken(format!("one of an end that {there}, while this one {here}: make both the same way"))
}

/// The error for a peer that does not keep to the protocol.
pub(super) fn broken(found: String) -> Error {
    Error::Refused {
        by: "channel",
        reason: format!("expected a frame of dlbridge, found {found}; the channel is closed"),
    }
}
