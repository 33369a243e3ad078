//! The bytes of a channel: frames of a head, a description of tensors, metadata, and the values of small messages.
//! Invariant: decoded tensors fit the size of their message, for bytes of any sender.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use dlbridge::{DType, Error, TypeCode};

use crate::header::{Entry, place};
use crate::{ALIGN, refused};

/// The size of the head of a frame in bytes.
pub(super) const HEAD: usize = 32;
/// Where the number of a lease is in it.
const LEASE: usize = 24;
/// The most bytes of a description, and of metadata.
const LONGEST: usize = 128 << 10;
/// The most tensors of a message. Those without elements need memory as well.
const MOST_TENSORS: usize = 4096;
/// The bytes of a tensor's description beside its name and its shape.
const FIXED: usize = 17;
/// The most bytes of values in a frame. Larger messages travel as a lease of a slot.
pub(super) const INLINE: usize = 16 << 10;

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
}

/// The head of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) kind: Kind,
    /// The sizes of the description, of the metadata and of the values that follow.
    pub(super) described: usize,
    pub(super) texts: usize,
    pub(super) values: usize,
    pub(super) slot: u32,
    pub(super) lease: u64,
}

impl Head {
    pub(super) fn new(kind: Kind, slot: u32, lease: u64) -> Self {
        Self { kind, described: 0, texts: 0, values: 0, slot, lease }
    }

    pub(super) fn encode(self) -> [u8; HEAD] {
        let numbers = [
            self.kind as u32,
            self.described as u32,
            self.texts as u32,
            self.values as u32,
            self.slot,
        ];
        let mut bytes = [0; HEAD];
        for (place, number) in bytes.chunks_exact_mut(size_of::<u32>()).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes[LEASE..].copy_from_slice(&self.lease.to_ne_bytes());
        bytes
    }

    fn decode(mut bytes: &[u8]) -> Result<Self, Error> {
        let mut number = || take(&mut bytes).map_or(0, u32::from_ne_bytes);
        let [kind, described, texts, values, slot, _] = std::array::from_fn(|_| number());
        let kinds = [Kind::Inline, Kind::Lease, Kind::LeaseNew, Kind::Return, Kind::Forget];
        let found = kinds.into_iter().find(|&known| known as u32 == kind);
        let kind = found.ok_or_else(|| broken(format!("a frame of kind {kind}")))?;
        let sizes = [(described, LONGEST), (texts, LONGEST), (values, INLINE)];
        let [described, texts, values] = sizes.map(|(size, most)| {
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            if size <= most {
                Ok(size)
            } else {
                Err(broken(format!("{size} bytes of at most {most}")))
            }
        });
        let lease = take(&mut bytes).map_or(0, u64::from_ne_bytes);
        Ok(Self { kind, described: described?, texts: texts?, values: values?, slot, lease })
    }
}

/// A frame that came whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub(super) head: Head,
    pub(super) description: &'a [u8],
    pub(super) texts: &'a [u8],
    pub(super) values: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The first frame of bytes, and the bytes after it; `None` if it is not whole.
    pub(super) fn split(bytes: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, Error> {
        let Some((head, bytes)) = bytes.split_at_checked(HEAD) else { return Ok(None) };
        let head = Head::decode(head)?;
        let split = || {
            let (description, bytes) = bytes.split_at_checked(head.described)?;
            let (texts, bytes) = bytes.split_at_checked(head.texts)?;
            let (values, bytes) = bytes.split_at_checked(head.values)?;
            Some((Self { head, description, texts, values }, bytes))
        };
        Ok(split())
    }
}

/// The metadata of a message: strings by their keys.
pub(super) type Texts = BTreeMap<String, String>;

/// The bytes of texts.
pub(super) fn encode_texts(texts: &Texts) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    for text in texts.iter().flat_map(|(key, value)| [key, value]) {
        if bytes.len() + size_of::<u32>() + text.len() > LONGEST {
            return Err(refused(format!(
                "expected metadata of at most {LONGEST} bytes, found more"
            )));
        }
        bytes.extend((text.len() as u32).to_ne_bytes());
        bytes.extend(text.bytes());
    }
    Ok(bytes)
}

pub(super) fn decode_texts(mut bytes: &[u8]) -> Result<Texts, Error> {
    let mut texts = Texts::new();
    while !bytes.is_empty() {
        let [key, value] = [text(&mut bytes)?, text(&mut bytes)?];
        texts.insert(key, value);
    }
    Ok(texts)
}

/// The next text, after its length.
fn text(bytes: &mut &[u8]) -> Result<String, Error> {
    let length = take(bytes).map_or(usize::MAX, |length| u32::from_ne_bytes(length) as usize);
    let split = bytes.split_at_checked(length);
    let (text, rest) = split.ok_or_else(|| broken("a text that ends early".into()))?;
    *bytes = rest;
    let text = std::str::from_utf8(text).map_err(|_| broken("a text that is no UTF-8".into()))?;
    Ok(text.to_owned())
}

/// Places tensors one after the other; their description, and the size of all.
pub(super) fn plan(
    declared: &[(&str, DType, &[i64])],
) -> Result<(Vec<Entry>, Vec<u8>, usize), Error> {
    let found = declared.len();
    if found > MOST_TENSORS {
        return Err(refused(format!("expected at most {MOST_TENSORS} tensors, found {found}")));
    }
    let mut names = HashSet::new();
    if let Some((name, ..)) = declared.iter().find(|(name, ..)| !names.insert(*name)) {
        return Err(refused(format!("expected a name that is not used twice, found {name:?}")));
    }
    let size = |(name, _, shape): &(&str, DType, &[i64])| FIXED + name.len() + size_of_val(*shape);
    let found = declared.iter().map(size).fold(0, usize::saturating_add);
    if found > LONGEST {
        return Err(refused(format!(
            "expected names and shapes of at most {LONGEST} bytes, found {found}"
        )));
    }
    let (mut entries, mut end) = (Vec::with_capacity(declared.len()), 0_usize);
    let mut bytes = Vec::with_capacity(found);
    for &(name, dtype, shape) in declared {
        let range = place(end, dtype, shape)?;
        end = range.end;
        bytes.extend((name.len() as u32).to_ne_bytes());
        bytes.extend(name.bytes());
        bytes.extend([dtype.code.0, dtype.bits]);
        bytes.extend(dtype.lanes.to_ne_bytes());
        bytes.push(shape.len() as u8);
        bytes.extend(shape.iter().flat_map(|extent| extent.to_ne_bytes()));
        bytes.extend((range.start as u64).to_ne_bytes());
        entries.push(Entry { name: name.into(), dtype, shape: shape.into(), range, file: 0 });
    }
    Ok((entries, bytes, end))
}

/// Reads a description of tensors in `size` bytes, one after the other, as [`plan`] places them: together they are not
/// larger than the message.
pub(super) fn describe(mut bytes: &[u8], size: usize) -> Result<Vec<Entry>, Error> {
    let (mut entries, mut end) = (Vec::new(), 0);
    while !bytes.is_empty() {
        let entry = entry(&mut bytes, end..size)?;
        let entry = entry.ok_or_else(|| broken("a description that ends early".into()))?;
        end = entry.range.end;
        entries.push(entry);
        if entries.len() > MOST_TENSORS {
            return Err(broken(format!("a message of more than {MOST_TENSORS} tensors")));
        }
    }
    Ok(entries)
}

/// The next tensor, in a range of the message; `None` if the bytes end before it does.
fn entry(bytes: &mut &[u8], place: Range<usize>) -> Result<Option<Entry>, Error> {
    let mut parse = || {
        let length = u32::from_ne_bytes(take(bytes)?) as usize;
        let (name, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        let [code, bits] = take(bytes)?;
        let lanes = u16::from_ne_bytes(take(bytes)?);
        let [ndim] = take(bytes)?;
        let shape: Option<Vec<i64>> =
            (0..ndim).map(|_| take(bytes).map(i64::from_ne_bytes)).collect();
        let offset = u64::from_ne_bytes(take(bytes)?);
        Some((name, DType { code: TypeCode(code), bits, lanes }, shape?, offset))
    };
    let Some((name, dtype, shape, offset)) = parse() else { return Ok(None) };
    let name = std::str::from_utf8(name).map_err(|_| broken("a name that is no UTF-8".into()))?;
    let len = dtype.contiguous_nbytes(&shape)?;
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let Range { start, end } = place;
    if offset % ALIGN != 0 || offset < start || offset > end || len > end - offset {
        return Err(broken(format!("a tensor of {len} bytes at {offset} in {start}..{end}")));
    }
    Ok(Some(Entry { name: name.into(), dtype, shape, range: offset..offset + len, file: 0 }))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

/// The error for a message that is larger than the limit of its end.
pub(super) fn too_large(limit: usize, found: usize) -> Error {
    refused(format!(
        "expected at most {limit} bytes, the limit of the pool, found {found}; make a larger pool"
    ))
}

/// The error for a peer that violates the protocol.
pub(super) fn broken(found: String) -> Error {
    Error::Refused {
        by: "channel",
        reason: format!("expected a frame of dlbridge, found {found}; the channel is closed"),
    }
}
