//! Target `sealed`: memory files, sealed or not, whose headers tell of tensors that fit the file, that
//! do not, or of anything. Each goes through the function that other processes' descriptors go through.
//! What a layout means is computed in `model`.
//! Invariant: sums and products are of 128 bits, and saturate.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};

use dlbridge::{Access, DType, Flags, MAX_NDIM};
use dlbridge_sealed::SealedTensors;
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fstat, memfd_create,
};

use crate::input::Input;
use crate::model;

/// Types that the format names.
const NAMES: [(&str, DType); 8] = [
    ("BOOL", DType::BOOL),
    ("F4", DType::FLOAT4_E2M1FN),
    ("F6_E2M3", DType::FLOAT6_E2M3FN),
    ("U8", DType::U8),
    ("BF16", DType::BF16),
    ("F32", DType::F32),
    ("C64", DType::COMPLEX64),
    ("I64", DType::I64),
];
const SEALS: [SealFlags; 4] =
    [SealFlags::SEAL, SealFlags::SHRINK, SealFlags::GROW, SealFlags::WRITE];
const ALIGN: usize = 64;
/// The smallest page.
const PAGE: u64 = 4096;

/// A tensor as a header tells of it.
#[derive(Debug)]
struct Told {
    name: String,
    /// In the format, and whether there is such a type.
    stored: (&'static str, Option<DType>),
    shape: Vec<u64>,
    begin: u64,
    end: u64,
    /// What the metadata says that the bytes are.
    typed: Option<(DType, Vec<i64>)>,
}

/// For each name the type, the shape and the place in the file.
type Wanted = BTreeMap<String, (DType, Vec<i64>, usize)>;

/// Opens one file.
///
/// # Panics
///
/// If a file is accepted or rejected otherwise than the model, or a tensor differs.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    if input.rarely(8) {
        // Any bytes: an error, or tensors that can be read.
        let size = input.below(200);
        let bytes: Vec<u8> = (0..size).map(|_| input.any()).collect();
        let Ok(sealed) = SealedTensors::try_from(sealed(file_of(&bytes), SealFlags::all(), false))
        else {
            return;
        };
        for name in sealed.names() {
            sealed.tensor(name).expect("one of the names");
        }
        return;
    }
    let told = told(&mut input);
    let end = told.last().map_or(0, |last| last.end);
    let size = if input.rarely(8) { input.below(300) } else { end.min(1 << 16) as usize };
    let odd = if input.rarely(16) { input.below(ALIGN) } else { 0 };
    let header = header(&told, odd);
    let (start, mut bytes) = (header.len(), header);
    bytes.extend((0..size).map(|i| i as u8));
    let seals = if input.rarely(8) { input.any::<u8>() } else { 0xff };
    let chosen = SEALS.iter().enumerate().filter(|(i, _)| seals >> i & 1 == 1);
    let seals = chosen.fold(SealFlags::empty(), |all, (_, &seal)| all | seal);
    let is_sealed = SEALS.iter().all(|&seal| seals.contains(seal));
    let pages = if input.rarely(8) { input.below(3) } else { 0 };
    let is_whole = pages != 1;
    let file = pages_of(file_of(&bytes), pages);
    let found = SealedTensors::try_from(sealed(file, seals, input.rarely(4)));
    let wanted = judge(&told, start, size).filter(|_| is_sealed && is_whole);
    match (found, wanted) {
        (Ok(sealed), Some(wanted)) => compare(&sealed, &wanted, &bytes),
        (Err(_), None) => {}
        (found, wanted) => panic!("{found:?}, expected {wanted:?}, of {told:?}"),
    }
}

fn told(input: &mut Input<'_>) -> Vec<Told> {
    let mut end = 0_u64;
    let count = input.below(6);
    let mut tell = |i: usize| {
        let stored = match input.below(20) {
            0 => ("F7", None),
            _ => {
                let (name, dtype) = input.one_of(&NAMES);
                (name, Some(dtype))
            }
        };
        let shape: Vec<u64> = match input.below(8) {
            0 => (0..input.below(4)).map(|_| input.number() as u64).collect(),
            1 => vec![1; MAX_NDIM - 1 + input.below(4)],
            2 => vec![input.below(200) as u64],
            _ => input.small_shape().iter().map(|&extent| extent as u64).collect(),
        };
        let bits = stored.1.map_or(8, |dtype| u64::from(dtype.bits));
        let count = shape.iter().fold(1_u64, |count, &extent| count.wrapping_mul(extent));
        let size =
            if input.rarely(16) { input.number() as u64 } else { count.wrapping_mul(bits) / 8 };
        let begin = if input.rarely(16) { input.number() as u64 } else { end };
        end = begin.wrapping_add(size);
        let name = if input.rarely(8) { format!("__pad_{i}") } else { i.to_string() };
        let typed = input.rarely(6).then(|| {
            let dtype = input.dtype();
            let bits = u128::from(dtype.bits) * u128::from(dtype.lanes);
            let exact = (u128::from(size) * 8).checked_div(bits).unwrap_or_default();
            let few = input.below(3);
            let shape = if input.rarely(2) { input.numbers(few) } else { vec![exact as i64] };
            (dtype, shape)
        });
        Told { name, stored, shape, begin, end, typed }
    };
    let mut told = Vec::new();
    for i in 0..count {
        told.push(tell(2 * i));
    }
    // Mostly what the format needs between tensors: others fill the gaps.
    if input.rarely(4) {
        return told;
    }
    let mut whole: Vec<Told> = Vec::new();
    let mut end = 0_u64;
    for mut one in told {
        let size = one.end.wrapping_sub(one.begin);
        let gap = end.wrapping_neg() % ALIGN as u64;
        if gap != 0 {
            whole.push(Told {
                name: format!("__pad_{}", whole.len() + 100),
                stored: ("U8", Some(DType::U8)),
                shape: vec![gap],
                begin: end,
                end: end.wrapping_add(gap),
                typed: None,
            });
        }
        one.begin = end.wrapping_add(gap);
        one.end = one.begin.wrapping_add(size);
        end = one.end;
        whole.push(one);
    }
    whole
}

fn header(told: &[Told], odd: usize) -> Vec<u8> {
    let entry = |one: &Told| {
        let Told { name, stored: (stored, _), shape, begin, end, .. } = one;
        let offsets = format!(r#""data_offsets":[{begin},{end}]"#);
        format!(r#""{name}":{{"dtype":"{stored}","shape":{shape:?},{offsets}}}"#)
    };
    let mut entries: Vec<String> = told.iter().map(entry).collect();
    let typed = told.iter().filter_map(|one| {
        let (dtype, shape) = one.typed.as_ref()?;
        let text = shape.iter().fold(dtype.to_string(), |text, extent| format!("{text} {extent}"));
        Some(format!(r#""dlbridge:{}":"{text}""#, one.name))
    });
    let typed: Vec<String> = typed.collect();
    entries.insert(0, format!(r#""__metadata__":{{{}}}"#, typed.join(",")));
    let json = format!("{{{}}}", entries.join(","));
    let start = (8 + json.len()).next_multiple_of(ALIGN) + odd;
    let mut header = (start as u64 - 8).to_le_bytes().to_vec();
    header.extend(json.bytes());
    header.resize(start, b' ');
    header
}

fn file_of(bytes: &[u8]) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("fuzz", flags).expect("a memory file"));
    file.write_all(bytes).expect("memory");
    file.into()
}

/// A file whose last page is only allocated (1), or that has pages beyond its end (2).
fn pages_of(file: OwnedFd, pages: usize) -> OwnedFd {
    let size = fstat(&file).expect("a file").st_size as u64;
    let keep = FallocateFlags::KEEP_SIZE;
    let last = size.saturating_sub(1) / PAGE * PAGE;
    match pages {
        1 => {
            fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, last, PAGE).expect("a hole");
            fallocate(&file, keep, last, PAGE).expect("memory");
        }
        2 => fallocate(&file, keep, last + PAGE, 4 * PAGE).expect("memory"),
        _ => {}
    }
    file
}

/// The file with these seals, by a descriptor that may be read-only.
fn sealed(file: OwnedFd, seals: SealFlags, read_only: bool) -> OwnedFd {
    let seals = SEALS.iter().fold(SealFlags::empty(), |all, &seal| all | (seal & seals));
    fcntl_add_seals(&file, seals).expect("no mapping");
    if !read_only {
        return file;
    }
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("the same file").into()
}

/// What the file holds; `None` for a file to reject.
fn judge(told: &[Told], start: usize, size: usize) -> Option<Wanted> {
    let mut ordered: Vec<&Told> = told.iter().collect();
    ordered.sort_by_key(|one| (one.begin, one.end));
    let mut end = 0;
    let mut wanted = BTreeMap::new();
    for one in ordered {
        let stored = one.stored.1?;
        if one.begin != end || one.end < one.begin {
            return None;
        }
        end = one.end;
        // The format multiplies extents in their order, whether or not one is 0.
        let count = one.shape.iter().try_fold(1_u64, |count, &extent| count.checked_mul(extent))?;
        let bits = count.checked_mul(stored.bits.into())?;
        if bits % 8 != 0 || bits / 8 != one.end - one.begin {
            return None;
        }
        let extents = one.shape.iter().map(|&extent| i64::try_from(extent).ok());
        let extents =
            extents.collect::<Option<Vec<_>>>().filter(|shape| shape.len() <= MAX_NDIM)?;
        if one.name.starts_with("__pad_") && one.typed.is_none() {
            continue;
        }
        let (dtype, shape) = match &one.typed {
            Some((dtype, shape)) => (*dtype, shape.clone()),
            None => (stored, extents),
        };
        let strides = vec![0; shape.len()];
        if model::is_impossible(dtype) || shape.len() > MAX_NDIM {
            return None;
        }
        let span = model::measure(&shape, &strides).ok()?;
        let nbytes = model::size(span.len, dtype, Flags::NONE)?;
        let begin = start as u128 + u128::from(one.begin);
        if nbytes != i128::from(one.end - one.begin) || begin % ALIGN as u128 != 0 {
            return None;
        }
        wanted.insert(one.name.clone(), (dtype, shape, begin as usize));
    }
    (end == size as u64).then_some(wanted)
}

fn compare(sealed: &SealedTensors, wanted: &Wanted, bytes: &[u8]) {
    assert_eq!(sealed.names().len(), wanted.len());
    assert_eq!(sealed.nbytes(), bytes.len());
    for (name, (dtype, shape, begin)) in wanted {
        let frozen = sealed.tensor(name).expect("there");
        let private = sealed.private(name).expect("there");
        assert_eq!((frozen.access(), private.access()), (Access::Frozen, Access::Exclusive));
        for tensor in [&frozen, &private] {
            assert_eq!((tensor.dtype(), tensor.shape()), (*dtype, &shape[..]));
            let data = &bytes[*begin..][..tensor.nbytes()];
            assert_eq!(tensor.as_bytes(), Ok(data), "{name}");
        }
    }
}
