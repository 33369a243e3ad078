//! The header of a sealed file: the safetensors layout, with every tensor at a multiple of 64 bytes.
//! Invariant: every range lies within the file, and ranges of two tensors do not overlap.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use crate::safetensors_0_8::header::{self, SIZE, check_length};
use crate::safetensors_0_8::{dtype_name, little_endian};
use dlbridge::{DType, DescriptorError, Error, ShapeField};
use safetensors::tensor::Dtype;

pub(crate) use crate::safetensors_0_8::header::{Contents, Entry};

use crate::{ALIGN, refused};

/// The prefix of padding tensors, because the safetensors format permits no gaps. A tensor with this prefix and metadata of
/// the prefix `TYPED` is the caller's.
const PADDING: &str = "__pad_";
/// The prefix of metadata with the type and shape of a tensor that is stored as bytes, because safetensors lacks its
/// type, or whose name begins like that of padding.
const TYPED: &str = "dlbridge:";
/// The prefix that is put before a key of the caller that begins with one of these prefixes.
const ESCAPED: &str = "dlbridge-metadata:";

/// Lays out a file of tensors: the bytes before the first tensor, and what the file contains.
pub(crate) fn plan(
    declared: Vec<(String, DType, Vec<i64>)>,
    metadata: BTreeMap<String, String>,
) -> Result<(Vec<u8>, Contents), Error> {
    let mut words = BTreeMap::new();
    for (key, value) in &metadata {
        let is_reserved = key.starts_with(TYPED) || key.starts_with(ESCAPED);
        words.insert(format!("{}{key}", if is_reserved { ESCAPED } else { "" }), value.clone());
    }
    let mut names = HashSet::from(["__metadata__".to_owned()]);
    if let Some((name, ..)) = declared.iter().find(|(name, ..)| !names.insert(name.clone())) {
        return Err(refused(format!(
            "expected a name that is neither reserved nor used twice, found {name:?}"
        )));
    }
    let mut paddings = (0..).map(|number| format!("{PADDING}{number}"));
    let mut padding = || paddings.find(|name| !names.contains(name)).unwrap_or_default();
    let (mut infos, mut entries) = (Vec::new(), Vec::new());
    let mut end = 0_usize;
    for (name, dtype, shape) in declared {
        let range = place(end, dtype, &shape)?;
        let (start, size) = (range.start, range.len());
        if start != end {
            infos.push((padding(), Dtype::U8, vec![(start - end) as i64], end..start));
        }
        end = range.end;
        let is_of_format = header::size(dtype, &shape).as_ref() == Ok(&size);
        let stored = dtype_name(dtype).ok().filter(|_| is_of_format);
        if stored.is_none() || name.starts_with(PADDING) {
            words.insert(format!("{TYPED}{name}"), typed(dtype, &shape));
        }
        infos.push(match stored {
            Some(stored) => (name.clone(), stored, shape.clone(), start..end),
            None => (name.clone(), Dtype::U8, vec![size as i64], start..end),
        });
        entries.push(Entry { name, dtype, shape, range: start..end, file: 0 });
    }
    let stored = infos.iter().map(|(name, dtype, shape, range)| {
        (name.as_str(), *dtype, shape.as_slice(), range.clone())
    });
    let json = header::write(&words, stored);
    let start = (SIZE + json.len()).next_multiple_of(ALIGN);
    check_length("header", start - SIZE).map_err(refused)?;
    let mut bytes = ((start - SIZE) as u64).to_le_bytes().to_vec();
    bytes.extend(json.bytes());
    // JSON may end in spaces.
    bytes.resize(start, b' ');
    let size = start.checked_add(end).filter(|&size| size <= isize::MAX as usize);
    let size = size.ok_or(DescriptorError::SizeOverflow { what: "byte size" })?;
    for entry in &mut entries {
        entry.range = start + entry.range.start..start + entry.range.end;
    }
    Ok((bytes, Contents::new(entries, metadata, size).map_err(refused)?))
}

/// The place of a tensor behind others, which end at `end`.
pub(crate) fn place(end: usize, dtype: DType, shape: &[i64]) -> Result<Range<usize>, Error> {
    let start = end.checked_next_multiple_of(ALIGN);
    let size = dtype.contiguous_nbytes(shape)?;
    let range = start.and_then(|start| Some(start..start.checked_add(size)?));
    range.ok_or(Error::Descriptor(DescriptorError::SizeOverflow { what: "byte size" }))
}

/// Parses the header of a file of any origin.
pub(crate) fn parse(file: &[u8]) -> Result<Contents, Error> {
    let Contents { entries: stored, metadata: words, size, .. } =
        header::parse(file).map_err(refused)?;
    let mut entries = Vec::with_capacity(stored.len());
    for mut entry in stored {
        let text = words.get(&format!("{TYPED}{}", entry.name));
        if entry.name.starts_with(PADDING) && text.is_none() {
            continue;
        }
        if entry.range.start % ALIGN != 0 {
            return Err(refused(format!(
                "expected tensors at multiples of {ALIGN} bytes, found {:?} at byte {}",
                entry.name, entry.range.start
            )));
        }
        match text {
            Some(text) => (entry.dtype, entry.shape) = untyped(text)?,
            None => drop(little_endian(entry.dtype)?),
        }
        let (expected, found) = (entry.dtype.contiguous_nbytes(&entry.shape)?, entry.range.len());
        if expected != found {
            return Err(Error::ShapeMismatch { field: ShapeField::Size, expected, found });
        }
        entries.push(entry);
    }
    let words = words.into_iter().filter(|(key, _)| !key.starts_with(TYPED));
    let metadata = words.map(|(key, value)| match key.strip_prefix(ESCAPED) {
        Some(key) => (key.to_owned(), value),
        None => (key, value),
    });
    Contents::new(entries, metadata.collect(), size).map_err(refused)
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
