//! The header of a safetensors file, for every reader and writer of this workspace.
//! Invariant: the tensors of parsed [`Contents`] fill the bytes behind the header, without a gap and
//! without an overlap, and each range has as many bytes as dtype and shape need.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;

use dlbridge::{DType, Error, MAX_NDIM};
use safetensors::tensor::Dtype;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::DTYPES;

/// The most bytes that a header or an index may have: as many as the format's own library accepts. The index of a mixture of
/// experts has 207,360 names in 22 MB. A hostile header of 1.5 million tensors takes 5 s of CPU and 500 MB of memory.
pub(crate) const LARGEST: usize = 100_000_000;
/// The header is preceded by its size.
pub(crate) const SIZE: usize = size_of::<u64>();

/// A tensor in a file.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Entry {
    /// Its name.
    pub(crate) name: String,
    /// The type of its elements.
    pub(crate) dtype: DType,
    /// Its shape.
    pub(crate) shape: Vec<i64>,
    /// Its bytes in the file.
    pub(crate) range: Range<usize>,
    /// The file, where there are several: its place in their list.
    pub(crate) file: usize,
}

/// What a file contains.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    /// In the order of the file.
    pub(crate) entries: Vec<Entry>,
    index: HashMap<String, usize>,
    /// The texts that travel with the tensors.
    pub(crate) metadata: BTreeMap<String, String>,
    /// The size of the whole file in bytes, or of all files.
    pub(crate) size: usize,
}

impl Contents {
    /// Lists these tensors.
    ///
    /// # Errors
    ///
    /// A message, where two have one name.
    pub(crate) fn new(
        entries: Vec<Entry>,
        metadata: BTreeMap<String, String>,
        size: usize,
    ) -> Result<Self, String> {
        let mut index = HashMap::with_capacity(entries.len());
        for (place, entry) in entries.iter().enumerate() {
            if index.insert(entry.name.clone(), place).is_some() {
                return Err(format!("expected each tensor once, found {:?} twice", entry.name));
            }
        }
        Ok(Self { entries, index, metadata, size })
    }

    /// The place of a tensor among the entries.
    ///
    /// # Errors
    ///
    /// [`UnknownName`](Error::UnknownName).
    pub(crate) fn find(&self, name: &str) -> Result<usize, Error> {
        let unknown = || Error::UnknownName { what: "tensor", name: name.into() };
        self.index.get(name).copied().ok_or_else(unknown)
    }

    /// The names of the tensors, in the order of the file.
    #[must_use]
    pub(crate) fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }
}

/// Reads the header of a file in memory.
///
/// # Errors
///
/// A message for anything but a file of the format.
pub(crate) fn parse(file: &[u8]) -> Result<Contents, String> {
    let (size, rest) = file.split_first_chunk::<SIZE>().ok_or_else(|| too_short(file.len()))?;
    let length = length(*size, rest.len())?;
    contents(&rest[..length], rest.len() - length)
}

/// The length of the header, from the first bytes of a file that has `rest` bytes behind them.
pub(super) fn length(size: [u8; SIZE], rest: usize) -> Result<usize, String> {
    let other = match &size {
        [b'P', b'K', 3, 4, ..] => "a zip archive, as .npz and .pt are",
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => "a .npy file",
        [0x89, b'H', b'D', b'F', ..] => "an HDF5 file",
        [b'G', b'G', b'U', b'F', ..] => "a GGUF file",
        _ => "",
    };
    if !other.is_empty() {
        return Err(format!("expected a safetensors file, found {other}"));
    }
    let length = usize::try_from(u64::from_le_bytes(size)).unwrap_or(usize::MAX);
    check_length("header", length)?;
    if length > rest {
        return Err(format!("expected a header of {length} bytes, found {rest}"));
    }
    Ok(length)
}

/// Whether readers accept a header or an index of this length.
///
/// # Errors
///
/// A message for one that is too long.
pub(crate) fn check_length(what: &str, length: usize) -> Result<(), String> {
    if length <= LARGEST {
        return Ok(());
    }
    Err(format!("{what}: expected at most {LARGEST} bytes, found {length}"))
}

pub(super) fn too_short(size: usize) -> String {
    format!("expected a header with its size, found {size} bytes")
}

/// Parses the header of a file with `data` bytes behind it.
pub(super) fn contents(json: &[u8], data: usize) -> Result<Contents, String> {
    let Header { mut tensors, metadata } = serde_json::from_slice(json)
        .map_err(|error| format!("expected a header of safetensors, found: {error}"))?;
    // Tensors without elements may begin where another one does.
    tensors.sort_by(|(a, x), (b, y)| (x.begin, x.end, a).cmp(&(y.begin, y.end, b)));
    let start = SIZE + json.len();
    let mut end = 0;
    let mut entries = Vec::with_capacity(tensors.len());
    for (name, Stored { dtype, shape, begin, end: next }) in tensors {
        if begin != end || next < begin {
            return Err(format!("{name:?}: expected bytes from {end} on, found {begin}..{next}"));
        }
        let dtype = dtype_of(dtype).map_err(|error| format!("{name:?}: {error}"))?;
        let extents = shape.into_iter().map(i64::try_from).collect::<Result<Vec<_>, _>>();
        let shape =
            extents.map_err(|_| format!("{name:?}: element count: expected extents below 2^63"))?;
        let size = size(dtype, &shape).map_err(|error| format!("{name:?}: {error}"))?;
        if size != next - begin {
            let found = next - begin;
            return Err(format!(
                "{name:?}: expected {size} bytes for {dtype}{shape:?}, found {found}"
            ));
        }
        end = next;
        // No overflow in files that pass the last check.
        let range = start.saturating_add(begin)..start.saturating_add(end);
        entries.push(Entry { name, dtype, shape, range, file: 0 });
    }
    if end != data {
        return Err(format!("expected {end} bytes of tensors after the header, found {data}"));
    }
    Contents::new(entries, metadata, start + data)
}

/// The dtype that the format's name stands for.
pub(super) fn dtype_of(dtype: Dtype) -> Result<DType, String> {
    let found = DTYPES.iter().find(|(theirs, _)| *theirs == dtype);
    found.map(|&(_, ours)| ours).ok_or_else(|| format!("no DLPack type for {dtype}"))
}

/// The shard of each tensor, from the text of an index.
pub(super) fn shards(json: &[u8]) -> Result<BTreeMap<String, String>, String> {
    let index = serde_json::from_slice(json);
    let Index(Texts(shards)) =
        index.map_err(|error| format!("expected the index of a sharded model, found: {error}"))?;
    Ok(shards)
}

/// The bytes of a tensor of the format.
///
/// # Errors
///
/// A message for a shape that the format cannot have, and for a last byte that is not full.
pub(crate) fn size(dtype: DType, shape: &[i64]) -> Result<usize, String> {
    if shape.len() > MAX_NDIM {
        return Err(format!("expected at most {MAX_NDIM} axes, found {}", shape.len()));
    }
    // In their order, whether or not one is 0, as the format's own library does it.
    let count = shape
        .iter()
        .try_fold(1_usize, |count, &extent| count.checked_mul(usize::try_from(extent).ok()?));
    let Some(count) = count else {
        return Err(format!("element count: expected one below 2^63, found shape {shape:?}"));
    };
    let bits = count as u128 * u128::from(dtype.bits);
    if bits % 8 != 0 {
        return Err(format!("expected whole bytes, found {bits} bits of {dtype}{shape:?}"));
    }
    // The strides as well: an extent of 0 hides the product of others.
    dtype.contiguous_nbytes(shape).map_err(|error| error.to_string())?;
    usize::try_from(bits / 8)
        .map_err(|_| format!("expected a size below 2^63, found shape {shape:?}"))
}

/// The text of a header, for tensors in the order of the file.
pub(crate) fn write<'t>(
    metadata: &BTreeMap<String, String>,
    tensors: impl Iterator<Item = (&'t str, Dtype, &'t [i64], Range<usize>)>,
) -> String {
    let mut json = String::from("{");
    let text = |text: &str| serde_json::Value::from(text).to_string();
    if !metadata.is_empty() {
        let words = metadata.iter().map(|(key, value)| format!("{}:{}", text(key), text(value)));
        json += &format!("\"__metadata__\":{{{}}},", words.collect::<Vec<_>>().join(","));
    }
    for (name, dtype, shape, Range { start, end }) in tensors {
        // Without spaces, as the format's own library writes it.
        let extents = shape.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        json += &format!(
            "{}:{{\"dtype\":\"{dtype}\",\"shape\":[{extents}],\"data_offsets\":[{start},{end}]}},",
            text(name)
        );
    }
    if json.ends_with(',') {
        json.pop();
    }
    json + "}"
}

/// A header as it is written.
struct Header {
    tensors: Vec<(String, Stored)>,
    metadata: BTreeMap<String, String>,
}

/// A tensor as it is written; offsets count from the end of the header.
struct Stored {
    dtype: Dtype,
    shape: Vec<u64>,
    begin: usize,
    end: usize,
}

/// Texts by their names, each of them once.
struct Texts(BTreeMap<String, String>);

/// The shards of a model, by the names of tensors.
struct Index(Texts);

/// Implements `Deserialize` for a type that a map is read into.
macro_rules! of_map {
    ($name:ty, $expected:literal, $map:ident => $read:expr) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Reads;
                impl<'de> Visitor<'de> for Reads {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_map<A: MapAccess<'de>>(
                        self,
                        mut $map: A,
                    ) -> Result<Self::Value, A::Error> {
                        $read
                    }
                }
                deserializer.deserialize_map(Reads)
            }
        }
    };
}

of_map!(Header, "a map of tensors", map => {
    let (mut tensors, mut metadata) = (Vec::new(), None);
    while let Some(name) = map.next_key::<String>()? {
        if name != "__metadata__" {
            let stored = map.next_value::<Stored>();
            let stored = stored.map_err(|error| A::Error::custom(format!("{name:?}: {error}")))?;
            tensors.push((name, stored));
        } else if metadata.replace(map.next_value::<Option<Texts>>()?).is_some() {
            return Err(A::Error::duplicate_field("__metadata__"));
        }
    }
    let metadata = metadata.flatten().map_or_else(BTreeMap::new, |Texts(texts)| texts);
    Ok(Header { tensors, metadata })
});

of_map!(Texts, "a map of texts", map => {
    let mut texts = BTreeMap::new();
    while let Some((key, value)) = map.next_entry::<String, String>()? {
        if texts.contains_key(&key) {
            return Err(A::Error::custom(format!("expected each key once, found {key:?} twice")));
        }
        texts.insert(key, value);
    }
    Ok(Texts(texts))
});

of_map!(Index, "a map with a weight_map", map => {
    let mut shards = None;
    while let Some(name) = map.next_key::<String>()? {
        if name != "weight_map" {
            map.next_value::<IgnoredAny>()?;
        } else if shards.replace(map.next_value()?).is_some() {
            return Err(A::Error::duplicate_field("weight_map"));
        }
    }
    shards.map(Index).ok_or_else(|| A::Error::missing_field("weight_map"))
});

of_map!(Stored, "a map of dtype, shape and data_offsets", map => {
    let (mut dtype, mut shape, mut offsets) = (None, None, None);
    while let Some(Field(field)) = map.next_key()? {
        let is_second = match field {
            Some("dtype") => dtype.replace(map.next_value()?).is_some(),
            Some("shape") => shape.replace(map.next_value()?).is_some(),
            Some("data_offsets") => offsets.replace(map.next_value()?).is_some(),
            _ => map.next_value::<IgnoredAny>().map(|_| false)?,
        };
        if let Some(field) = field.filter(|_| is_second) {
            return Err(A::Error::duplicate_field(field));
        }
    }
    let (begin, end) = offsets.ok_or_else(|| A::Error::missing_field("data_offsets"))?;
    Ok(Stored {
        dtype: dtype.ok_or_else(|| A::Error::missing_field("dtype"))?,
        shape: shape.ok_or_else(|| A::Error::missing_field("shape"))?,
        begin,
        end,
    })
});

/// The name of a field of [`Stored`]; `None` for any other, which the format allows.
struct Field(Option<&'static str>);

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reads;
        impl Visitor<'_> for Reads {
            type Value = Field;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E>(self, name: &str) -> Result<Field, E> {
                let known = ["dtype", "shape", "data_offsets"];
                Ok(Field(known.into_iter().find(|&known| known == name)))
            }
        }
        deserializer.deserialize_str(Reads)
    }
}
