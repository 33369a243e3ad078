//! The header of a sealed file: the safetensors layout, with every tensor at a multiple of 64 bytes.
//! Invariant: every range lies within the file, and ranges of two tensors do not overlap.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use dlbridge::layout::contiguous_nbytes as nbytes;
use dlbridge::{DType, DescriptorError, Error, ShapeField};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use crate::{ALIGN, refused};

/// The most bytes that a header may have, so that parsing a hostile one stays cheap.
const LARGEST: usize = 16 << 20;
/// The header is preceded by its size.
const SIZE: usize = size_of::<u64>();
/// Tensors of this prefix fill gaps: the safetensors format has none.
const PADDING: &str = "__pad_";
/// Metadata of this prefix names the type and shape of a tensor whose type safetensors lacks. Such a
/// tensor is stored as bytes.
const TYPED: &str = "dlbridge:";

/// A tensor in a file.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<i64>,
    /// Its bytes in the file.
    pub(crate) range: Range<usize>,
}

/// What a file contains.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    /// In the order of the file.
    pub(crate) entries: Vec<Entry>,
    index: HashMap<String, usize>,
    pub(crate) metadata: BTreeMap<String, String>,
    /// The size of the whole file in bytes.
    pub(crate) size: usize,
}

impl Contents {
    fn new(entries: Vec<Entry>, metadata: BTreeMap<String, String>, size: usize) -> Self {
        let index = entries.iter().enumerate().map(|(i, entry)| (entry.name.clone(), i)).collect();
        Self { entries, index, metadata, size }
    }

    /// The place of a tensor among the entries.
    pub(crate) fn find(&self, name: &str) -> Result<usize, Error> {
        let unknown = || Error::UnknownName { what: "tensor", name: name.into() };
        self.index.get(name).copied().ok_or_else(unknown)
    }

    pub(crate) fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }
}

/// Lays out a file of tensors: the bytes before the first tensor, and what the file contains. In a file that exists,
/// `room` says how many bytes there are for the header, and in all.
pub(crate) fn plan(
    declared: Vec<(String, DType, Vec<i64>)>,
    metadata: BTreeMap<String, String>,
    room: Option<(usize, usize)>,
) -> Result<(Vec<u8>, Contents), Error> {
    if let Some(key) = metadata.keys().find(|key| key.starts_with(TYPED)) {
        return Err(refused(format!("expected metadata keys without {TYPED:?}, found {key:?}")));
    }
    let mut words: HashMap<_, _> = metadata.clone().into_iter().collect();
    let (mut infos, mut entries, mut names) = (Vec::new(), Vec::new(), HashSet::new());
    let mut end = 0_usize;
    for (name, dtype, shape) in declared {
        if name.starts_with(PADDING) || name == "__metadata__" || !names.insert(name.clone()) {
            return Err(refused(format!(
                "expected a name that is neither reserved nor used twice, found {name:?}"
            )));
        }
        let too_large = || Error::Descriptor(DescriptorError::SizeOverflow { what: "byte size" });
        let start = end.checked_next_multiple_of(ALIGN).ok_or_else(too_large)?;
        if start != end {
            let padding = info(Dtype::U8, vec![start - end], end..start);
            infos.push((format!("{PADDING}{}", entries.len()), padding));
        }
        let size = nbytes(dtype, &shape)?;
        end = start.checked_add(size).ok_or_else(too_large)?;
        let stored = match Dtype::try_from(dtype) {
            Ok(stored) if fills_bytes(dtype, &shape, size) => {
                info(stored, shape.iter().map(|&extent| extent as usize).collect(), start..end)
            }
            _ => {
                words.insert(format!("{TYPED}{name}"), typed(dtype, &shape));
                info(Dtype::U8, vec![size], start..end)
            }
        };
        infos.push((name.clone(), stored));
        entries.push(Entry { name, dtype, shape, range: start..end });
    }
    if let Some(rest) = room.and_then(|(start, size)| size.checked_sub(start)?.checked_sub(end)) {
        infos.push((
            format!("{PADDING}{}", entries.len()),
            info(Dtype::U8, vec![rest], end..end + rest),
        ));
        end += rest;
    }
    let words = Some(words).filter(|words| !words.is_empty());
    let format = Metadata::new(words, infos).map_err(|error| refused(error.to_string()))?;
    let json = serde_json::to_string(&format).map_err(|error| refused(error.to_string()))?;
    let least = (SIZE + json.len()).next_multiple_of(ALIGN);
    let start = room.map_or(least, |(start, _)| start);
    check_length(least.max(start) - SIZE)?;
    if start < least {
        return Err(refused(format!("expected a header of at most {start} bytes, found {least}")));
    }
    let mut bytes = ((start - SIZE) as u64).to_le_bytes().to_vec();
    bytes.extend(json.bytes());
    // JSON may end in spaces.
    bytes.resize(start, b' ');
    let size = start.checked_add(end).filter(|&size| size <= isize::MAX as usize);
    let size = size.ok_or(DescriptorError::SizeOverflow { what: "byte size" })?;
    for entry in &mut entries {
        entry.range = start + entry.range.start..start + entry.range.end;
    }
    Ok((bytes, Contents::new(entries, metadata, size)))
}

/// Reads what any bytes say that they contain.
pub(crate) fn parse(file: &[u8]) -> Result<Contents, Error> {
    let (size, rest) = file.split_first_chunk::<SIZE>().ok_or_else(|| {
        refused(format!("expected a header with its size, found {} bytes", file.len()))
    })?;
    let length = usize::try_from(u64::from_le_bytes(*size)).unwrap_or(usize::MAX);
    check_length(length)?;
    let json = rest.get(..length).ok_or_else(|| {
        refused(format!("expected a header of {length} bytes, found {}", rest.len()))
    })?;
    let start = SIZE + length;
    // Not by `SafeTensors::read_metadata`: its sum of sizes can overflow.
    let format: Metadata = serde_json::from_slice(json)
        .map_err(|error| refused(format!("expected a header of safetensors, found: {error}")))?;
    if start.checked_add(format.data_len()) != Some(file.len()) {
        return Err(refused(format!(
            "expected {} bytes of tensors after the header, found {}",
            format.data_len(),
            file.len() - start
        )));
    }
    let no_words = HashMap::new();
    let words = format.metadata().as_ref().unwrap_or(&no_words);
    let mut entries = Vec::new();
    for (name, info) in format.tensors() {
        if name.starts_with(PADDING) {
            continue;
        }
        // Below the size of the file, which is a slice's.
        let range = start + info.data_offsets.0..start + info.data_offsets.1;
        if range.start % ALIGN != 0 {
            return Err(refused(format!(
                "expected tensors at multiples of {ALIGN} bytes, found {name:?} at byte {}",
                range.start
            )));
        }
        let (dtype, shape) = match words.get(&format!("{TYPED}{name}")) {
            Some(text) => untyped(text)?,
            None => (info.dtype.try_into()?, extents(&info.shape)?),
        };
        let expected = nbytes(dtype, &shape)?;
        if expected != range.len() {
            return Err(Error::ShapeMismatch {
                field: ShapeField::Size,
                expected,
                found: range.len(),
            });
        }
        entries.push(Entry { name, dtype, shape, range });
    }
    // Tensors without elements may begin where another one does.
    entries.sort_by(|a, b| {
        (a.range.start, a.range.end, &a.name).cmp(&(b.range.start, b.range.end, &b.name))
    });
    let metadata = words.iter().filter(|(key, _)| !key.starts_with(TYPED));
    let metadata = metadata.map(|(key, value)| (key.clone(), value.clone())).collect();
    Ok(Contents::new(entries, metadata, file.len()))
}

fn check_length(length: usize) -> Result<(), Error> {
    if length <= LARGEST {
        return Ok(());
    }
    Err(refused(format!("expected a header of at most {LARGEST} bytes, found {length}")))
}

/// Whether the last byte of a tensor is full: safetensors has no others.
fn fills_bytes(dtype: DType, shape: &[i64], size: usize) -> bool {
    let bits = u128::from(dtype.element_bits());
    shape.iter().fold(bits, |bits, &extent| bits * extent as u128) == size as u128 * 8
}

fn info(dtype: Dtype, shape: Vec<usize>, range: Range<usize>) -> TensorInfo {
    TensorInfo { dtype, shape, data_offsets: (range.start, range.end) }
}

fn extents(shape: &[usize]) -> Result<Vec<i64>, Error> {
    let too_large = |_| Error::Descriptor(DescriptorError::SizeOverflow { what: "element count" });
    shape.iter().map(|&extent| extent.try_into().map_err(too_large)).collect()
}

/// A type and a shape as text: `int4 3 5`.
fn typed(dtype: DType, shape: &[i64]) -> String {
    shape.iter().fold(dtype.to_string(), |text, extent| format!("{text} {extent}"))
}

fn untyped(text: &str) -> Result<(DType, Vec<i64>), Error> {
    let mut words = text.split(' ');
    let dtype = words.next().unwrap_or_default().parse()?;
    let extents = words.map(str::parse).collect::<Result<_, _>>();
    let shape =
        extents.map_err(|_| refused(format!("expected a type and extents, found {text:?}")))?;
    Ok((dtype, shape))
}
