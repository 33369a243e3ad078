//! `safetensors` 0.8: the tensors of files in memory, on disk and mapped, and tensors to write.
//! What is wrong with a file is for the crate to find; that it is told on is tested here.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use dlbridge::{Access, DType, Error, Flags, Parts, Tensor};
use dlbridge_sealed::safetensors_0_8::{Archive, save, view};
use dlbridge_testing::conformance::{self, Expected};
use dlbridge_testing::{CountingOwner, Foreign};
use safetensors::tensor::Dtype;

/// Imports a descriptor of DLPack 1.x.
#[allow(unsafe_code, reason = "importing a descriptor is unsafe by nature")]
fn import(foreign: Foreign) -> Tensor {
    // SAFETY: each test describes memory that is there, or does not read it.
    unsafe { foreign.import() }.expect("legal")
}

/// A file: a header of this text, padded to a number of bytes that leaves the data at `odd` bytes
/// from an address that is a multiple of 8, and the data.
fn file(header: &str, data: &[u8], odd: usize) -> Vec<u8> {
    let length = header.len().next_multiple_of(8) + odd;
    let mut file = (length as u64).to_le_bytes().to_vec();
    file.extend(format!("{header:length$}").bytes());
    file.extend(data);
    file
}

/// A file of one tensor, `x`.
fn one(dtype: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let size = data.len();
    let entry = format!(r#""x":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{size}]}}"#);
    file(&format!("{{{entry}}}"), data, 0)
}

fn floats() -> (Vec<u8>, [f32; 6]) {
    let values = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    (one("F32", "[2,3]", &values.map(f32::to_le_bytes).concat()), values)
}

/// A file on disk that is removed at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, content: &[u8]) -> Self {
        let name = format!("dlbridge-{}-{name}.safetensors", std::process::id());
        let path = std::env::temp_dir().join(name);
        File::create(&path)
            .and_then(|mut file| file.write_all(content))
            .expect("a folder to write");
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn tensors_of_a_file_conform() {
    let (bytes, values) = floats();
    let data = bytes.len() - size_of_val(&values);
    conformance::owner(|| {
        // whole words, so that the data is aligned
        let owner: Arc<[u8]> = Arc::from(&bytes[..]);
        let expected = Expected::new(&[2, 3], &values).at(owner[data..].as_ptr()).read_only();
        (Archive::new(owner).and_then(|file| file.tensor("x")).expect("a file"), expected)
    });
    conformance::owner(|| {
        let owner = CountingOwner::new(&bytes[..]);
        let place = owner.as_ptr().wrapping_add(data);
        let expected = Expected::new(&[2, 3], &values).at(place).releases(owner.drops());
        let expected = expected.access(Access::Shared);
        (Archive::mapped(owner).and_then(|file| file.tensor("x")).expect("a file"), expected)
    });
    conformance::owner(|| {
        let file = Archive::new(one("BOOL", "[]", &[2])).expect("a file");
        (file.tensor("x").expect("0-d"), Expected::new(&[], &[true]).read_only())
    });
    conformance::owner(|| {
        let file = Archive::new(one("I64", "[3,0]", &[])).expect("a file");
        (file.tensor("x").expect("empty"), Expected::<i64>::new(&[3, 0], &[]).read_only())
    });
}

#[test]
fn each_tensor_keeps_the_file_alive() {
    let header = r#"{"__metadata__":{"made by":"hand"},
        "b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
        "a":{"dtype":"I8","shape":[1],"data_offsets":[2,3]}}"#;
    let owner = CountingOwner::new(file(header, &[1, 2, 255], 0));
    let drops = owner.drops();
    let archive = Archive::new(owner).expect("a file");
    assert_eq!(archive.names().collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!(archive.metadata()["made by"], "hand");
    let (a, b) = (archive.tensor("a").expect("there"), archive.tensor("b").expect("there"));
    let wanted = Error::UnknownName { what: "tensor", name: "c".into() };
    assert_eq!(archive.tensor("c").map(|_| ()), Err(wanted));
    drop(archive);
    assert_eq!((a.as_slice::<i8>(), b.as_slice::<u8>()), (Ok(&[-1][..]), Ok(&[1, 2][..])));
    drop(a);
    drops.expect(0, "while a tensor is left");
    std::thread::spawn(move || drop(b)).join().expect("no panic");
    drops.expect(1, "after the last tensor");
}

#[test]
fn every_type_has_its_name_in_both_worlds() {
    for (name, dtype) in [
        ("BOOL", DType::BOOL),
        ("F4", DType::FLOAT4_E2M1FN),
        ("F6_E2M3", DType::FLOAT6_E2M3FN),
        ("F6_E3M2", DType::FLOAT6_E3M2FN),
        ("U8", DType::U8),
        ("I8", DType::I8),
        ("F8_E5M2", DType::FLOAT8_E5M2),
        ("F8_E4M3", DType::FLOAT8_E4M3FN),
        ("F8_E8M0", DType::FLOAT8_E8M0FNU),
        ("F8_E4M3FNUZ", DType::FLOAT8_E4M3FNUZ),
        ("F8_E5M2FNUZ", DType::FLOAT8_E5M2FNUZ),
        ("I16", DType::I16),
        ("U16", DType::U16),
        ("F16", DType::F16),
        ("BF16", DType::BF16),
        ("I32", DType::I32),
        ("U32", DType::U32),
        ("F32", DType::F32),
        ("C64", DType::COMPLEX64),
        ("F64", DType::F64),
        ("I64", DType::I64),
        ("U64", DType::U64),
    ] {
        let size = 4 * dtype.bits as usize / 8;
        let data: Vec<u8> = (1..=size as u8).collect();
        let archive = Archive::new(one(name, "[4]", &data)).expect("a file");
        let tensor = archive.tensor("x").expect("a known type");
        assert_eq!((tensor.dtype(), tensor.shape()), (dtype, &[4][..]), "{name}");
        assert_eq!(tensor.as_bytes(), Ok(&data[..]), "{name}");
        let again =
            safetensors::serialize([("x", view(&tensor).expect("a type of the format"))], None)
                .expect("the same name");
        let again = Archive::new(again).expect("a file").tensor("x").expect("a known type");
        assert_eq!((again.dtype(), again.as_bytes()), (dtype, Ok(&data[..])), "{name}");
    }
    for dtype in [DType::FLOAT8_E4M3, DType::I128, DType::COMPLEX128, DType::F32.with_lanes(2)] {
        let tensor = Tensor::zeros(dtype, [1]).expect("a byte size");
        let wanted = Error::Refused { by: "safetensors", reason: format!("no type for {dtype}") };
        assert_eq!(view(&tensor).map(|_| ()), Err(wanted));
    }
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "float64 is aligned to 4 bytes")]
fn data_at_an_odd_address_is_read_and_never_borrowed() {
    let values = [1.5_f64, -2.5];
    let header = r#"{"x":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}"#;
    for odd in 1..8 {
        let bytes = file(header, &values.map(f64::to_le_bytes).concat(), odd);
        let mut whole = Tensor::zeros(DType::U8, [bytes.len() as i64]).expect("a size");
        whole.as_slice_mut().expect("exclusive").copy_from_slice(&bytes);
        let archive = Archive::new(whole.into_bytes().expect("exclusive")).expect("a file");
        let tensor = archive.tensor("x").expect("carried");
        let (address, align) = (tensor.data_ptr().addr(), align_of::<f64>());
        assert_eq!(address % 8, odd);
        assert_eq!(tensor.view::<f64>().expect("f64").to_vec(), values);
        assert_eq!(tensor.as_slice::<f64>(), Err(Error::Misaligned { address, align }));
        assert_eq!(tensor.to_contiguous().expect("host").as_slice::<f64>(), Ok(&values[..]));
        assert_eq!(
            view(&tensor).expect("contiguous").data(),
            values.map(f64::to_le_bytes).concat()
        );
    }
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "its sizes are of 64 bits")]
fn a_broken_file_is_refused() {
    let reason = |bytes: &[u8]| match Archive::new(bytes.to_vec()) {
        Err(Error::Refused { by: "safetensors", reason }) => reason,
        other => panic!("{other:?}"),
    };
    for (header, data, wanted) in [
        (String::new(), 0, "EOF"),
        ("[]".into(), 0, "a map of tensors"),
        (r#"{"x":1}"#.into(), 0, "\"x\": "),
        (x("U8", "[2]", "[0,2]"), 1, "expected 2 bytes of tensors after the header, found 1"),
        (x("U8", "[1]", "[0,1]"), 2, "expected 1 bytes of tensors after the header, found 2"),
        (x("U8", "[1]", "[1,0]"), 1, "\"x\": expected bytes from 0 on, found 1..0"),
        (x("F32", "[9]", "[0,8]"), 8, "\"x\": expected 36 bytes for float32[9], found 8"),
        (x("F4", "[3]", "[0,1]"), 1, "\"x\": expected whole bytes"),
        (x("F33", "[1]", "[0,1]"), 1, "F33"),
        (x("U8", "[-1]", "[0,1]"), 1, "-1"),
        // Sizes near 2^64, which were added to the length of the header.
        (x("U8", &format!("[{}]", u64::MAX), &format!("[0,{}]", u64::MAX)), 0, "element count"),
        (x("I64", &format!("[{}]", 1_u64 << 61), &format!("[0,{}]", u64::MAX)), 0, "expected"),
        (x("U8", &format!("[{},0]", u64::MAX), "[0,0]"), 0, "element count"),
        (x("U8", &format!("[{}1]", "1,".repeat(64)), "[0,1]"), 1, "axes"),
        // Twice.
        (format!("{{{0},{0}}}", entry("x", "U8", "[0]", "[0,0]")), 0, "\"x\" twice"),
        (r#"{"__metadata__":{"a":"1","a":"2"}}"#.into(), 0, "\"a\" twice"),
        (r#"{"__metadata__":{},"__metadata__":{}}"#.into(), 0, "duplicate"),
        (r#"{"x":{"dtype":"U8","dtype":"I8"}}"#.into(), 0, "duplicate"),
        (r#"{"x":{"dtype":"U8","shape":[]}}"#.into(), 0, "missing field `data_offsets`"),
        (r#"{"__metadata__":{"a":1}}"#.into(), 0, "expected a string"),
    ] {
        let found = reason(&file(&header, &vec![0; data], 0));
        assert!(found.contains(wanted) && !found.contains('\n'), "{header}: {found}");
    }
    assert!(reason(&u64::MAX.to_le_bytes()).contains("at most"));
    // Each size is possible. The sum of them and of the header's length is not.
    let each = (1_u64 << 61) - 64;
    let ranges =
        (0..8).map(|i| i * each..(i + 1) * each).chain(std::iter::once(each * 8..u64::MAX));
    let entries = ranges.map(|Range { start, end }| {
        entry(&start.to_string(), "U8", &format!("[{}]", end - start), &format!("[{start},{end}]"))
    });
    let header = format!("{{{}}}", entries.collect::<Vec<_>>().join(","));
    assert!(reason(&file(&header, &[], 0)).contains("expected 18446744073709551615 bytes"));
    let (good, _) = floats();
    for length in 0..good.len() {
        let found = reason(&good[..length]);
        assert!(found.contains("expected") && !found.contains('\n'), "{length}: {found}");
    }
    // What the format allows.
    let fine =
        r#"{"__metadata__":null,"x":{"dtype":"U8","shape":[1],"more":[{}],"data_offsets":[0,1]}}"#;
    assert_eq!(Archive::new(file(fine, &[1], 0)).expect("a file").metadata().len(), 0);
}

/// A header of one tensor.
fn x(dtype: &str, shape: &str, offsets: &str) -> String {
    format!("{{{}}}", entry("x", dtype, shape, offsets))
}

fn entry(name: &str, dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
}

#[test]
fn a_file_is_read_or_mapped() {
    let (bytes, values) = floats();
    let path = Temporary::new("read", &bytes);
    let archive = Archive::read(&path.0).expect("a file");
    let tensor = archive.tensor("x").expect("there");
    assert_eq!((tensor.access(), tensor.is_read_only()), (Access::Frozen, true));
    assert_eq!(tensor.as_slice::<f32>(), Ok(&values[..]));
    for wrong in [path.0.with_extension("missing"), std::env::temp_dir()] {
        match Archive::read(wrong) {
            Err(Error::Refused { by: "file", .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri maps no files")]
#[cfg_attr(windows, ignore = "Windows replaces no file that is mapped")]
fn an_opened_file_is_shared_and_a_private_tensor_writable() {
    let (bytes, values) = floats();
    let path = Temporary::new("opened", &bytes);
    conformance::owner(|| {
        let tensor = Archive::open(&path.0).expect("a file").tensor("x").expect("there");
        let expected = Expected::new(&[2, 3], &values).at(tensor.data_ptr().cast::<f32>());
        (tensor, expected.read_only().access(Access::Shared))
    });
    let (one, two) =
        (Archive::open(&path.0).expect("a file"), Archive::open(&path.0).expect("a file"));
    let alive = one.tensor("x").expect("there");
    let error = one.into_private().expect_err("two tensors of one memory").to_string();
    assert!(error.contains("found one that is alive"), "{error}");
    drop(alive);
    let mut private = two.into_private().expect("no other");
    let (name, private) = private.pop().expect("one");
    assert_eq!(name, "x");
    assert_eq!((private.access(), private.is_read_only()), (Access::Shared, false));
    // Over the file that is open, of tensors of that file.
    let one = [("y", &private), ("z", &Tensor::from(vec![true]))];
    save(&path.0, one, &BTreeMap::from([("made by".into(), "us".into())]), true).expect("saved");
    assert_eq!(private.view::<f32>().expect("f32").to_vec(), values);
    let again = Archive::open(&path.0).expect("a file");
    assert_eq!(again.names().collect::<Vec<_>>(), ["y", "z"]);
    assert_eq!(again.metadata()["made by"], "us");
    assert_eq!(again.tensor("y").expect("there").view::<f32>().expect("f32").to_vec(), values);
    let read = std::fs::read(&path.0).expect("a file");
    let theirs = safetensors::SafeTensors::deserialize(&read).expect("the format");
    assert_eq!(theirs.tensor("z").expect("there").data(), [1]);
}

#[test]
#[cfg_attr(miri, ignore = "Miri maps no files")]
fn what_is_saved_can_be_opened() {
    let path = Temporary::new("saved", &[]);
    let zeros = |dtype, shape: &[i64]| Tensor::zeros(dtype, shape).expect("zeros");
    let save = |tensor: &Tensor| save(&path.0, [("x", tensor)], &BTreeMap::new(), false);
    for (shape, flip) in
        [(&[3, 2][..], true), (&[3, 0], false), (&[0, 1 << 20], false), (&[], false)]
    {
        let tensor = zeros(DType::I16, shape);
        let tensor = if flip {
            tensor.flip(0).and_then(|x| x.permute(&[1, 0])).expect("axes")
        } else {
            tensor
        };
        save(&tensor).expect("saved");
        let again = Archive::open(&path.0).expect("a file").tensor("x").expect("there");
        assert_eq!(again.shape(), tensor.shape());
    }
    let before = std::fs::read(&path.0).expect("a file");
    for wrong in [
        zeros(DType::FLOAT4_E2M1FN, &[3]),
        import(Foreign::of_bytes(DType::FLOAT4_E2M1FN, &[2], &[1, 2]).flags(Flags::SUBBYTE_PADDED)),
        import(Foreign::new(&[2], &[1, 2]).device("cuda:0".parse().expect("a name"))),
    ] {
        let error = save(&wrong).expect_err("no such file");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    }
    assert_eq!(std::fs::read(&path.0).expect("a file"), before);
}

#[test]
#[cfg(unix)]
#[cfg_attr(miri, ignore = "Miri makes no FIFO")]
fn a_fifo_is_refused_at_once() {
    let path = std::env::temp_dir().join(format!("dlbridge-{}-fifo", std::process::id()));
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("a command");
    assert!(made.success());
    let read = Archive::read(&path).map(drop).expect_err("no file").to_string();
    let opened = Archive::open(&path).map(drop).expect_err("no file").to_string();
    let saved = save(&path, [("x", &Tensor::from(vec![1]))], &BTreeMap::new(), false);
    let saved = saved.expect_err("no file").to_string();
    std::fs::remove_file(&path).expect("still there");
    for found in [read, opened, saved] {
        assert!(found.contains("expected a regular file, found a pipe"), "{found}");
    }
}

#[test]
#[cfg(unix)]
#[cfg_attr(miri, ignore = "Miri maps no files")]
#[allow(unsafe_code, reason = "mapping a file is unsafe by nature")]
fn the_tensors_of_a_mapped_file_are_shared() {
    let (bytes, values) = floats();
    let path = Temporary::new("mapped", &bytes);
    let file = File::open(&path.0).expect("just made");
    // SAFETY: only this test knows the file, and does not make it shorter.
    let map = unsafe { memmap2::Mmap::map(&file) }.expect("a map");
    let range = map.as_ptr_range();
    let archive = Archive::mapped(map).expect("a file");
    let mut tensor = archive.tensor("x").expect("there");
    drop((archive, file));
    assert!(range.contains(&tensor.data_ptr().cast_const().cast()), "the map's own memory");
    assert_eq!((tensor.access(), tensor.is_read_only()), (Access::Shared, true));
    assert_eq!(tensor.as_slice::<f32>(), Err(Error::SharedMemory));
    assert_eq!(tensor.view_mut::<f32>().map(|_| ()), Err(Error::SharedMemory));
    assert_eq!(view(&tensor).map(|_| ()), Err(Error::SharedMemory));
    assert_eq!(tensor.view::<f32>().expect("f32").to_vec(), values);
    // another process, or this one, writes to the file
    let patch = File::options().write(true).open(&path.0).expect("just made");
    let at = bytes.len() as u64 - 4;
    std::os::unix::fs::FileExt::write_all_at(&patch, &60.0_f32.to_le_bytes(), at).expect("written");
    assert_eq!(tensor.view::<f32>().expect("f32").get([1, 2]), Some(60.0));
    let legacy = tensor.into_raw_legacy().map(|_| ());
    assert_eq!(legacy, Err(Error::LegacyReadOnly));
}

#[test]
fn views_are_the_tensors_own_memory() {
    let values = [1_u16, 2, 3, 4, 5, 6];
    let tensor = Tensor::builder(values).shape([2, 3]).build::<u16>().expect("it fits");
    let view = view(&tensor).expect("contiguous");
    assert_eq!((view.dtype(), view.shape()), (Dtype::U16, &[2, 3][..]));
    assert_eq!(view.data().as_ptr(), tensor.data_ptr().cast_const().cast());
}

#[test]
fn views_take_what_lies_side_by_side() {
    let refused = conformance::reader(|tensor| {
        let view = view(tensor)?;
        let shape: Vec<i64> = view.shape().iter().map(|&extent| extent as i64).collect();
        assert_eq!(shape, tensor.shape());
        let elements = view.data().chunks_exact(4);
        Ok(elements
            .map(|bytes| u32::from_ne_bytes(bytes.try_into().expect("four")))
            .collect::<Vec<_>>())
    });
    for refusal in &refused {
        let gaps = matches!(refusal.error, Error::NotContiguous { .. });
        let shared = refusal.tensor == "contiguous, shared" && refusal.error == Error::SharedMemory;
        assert!(gaps || shared, "{}: {}", refusal.tensor, refusal.error);
        assert!(refusal.tensor != "odd address", "bytes need no alignment");
    }
    let device = "cuda:0".parse().expect("a name");
    let foreign = Foreign::new(&[2], &[1, 2]).device(device).class(Access::Exclusive);
    let wanted = Error::NotHostAccessible { device };
    let refused = view(&import(foreign)).map(|_| ());
    assert_eq!(refused, Err(wanted));
    let padded = Foreign::of_bytes(DType::FLOAT4_E2M1FN, &[2], &[1, 2]);
    let padded = padded.flags(Flags::SUBBYTE_PADDED).class(Access::Exclusive);
    match view(&import(padded)) {
        Err(Error::Refused { by: "safetensors", .. }) => {}
        other => panic!("a byte for each is not what the format has: {other:?}"),
    };
}

#[test]
#[allow(unsafe_code, reason = "importing a descriptor is unsafe by nature")]
fn an_exported_tensor_of_a_file_stays_read_only() {
    let (bytes, values) = floats();
    let tensor = Archive::new(bytes).and_then(|file| file.tensor("x")).expect("a file");
    // SAFETY: just made, and owned by the test.
    let tensor = unsafe { Tensor::from_raw(tensor.into_raw()) }.expect("an own export");
    assert!(tensor.is_read_only());
    assert_eq!(tensor.view::<f32>().expect("f32").to_vec(), values);
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "its sizes are of 64 bits")]
fn a_file_that_names_a_huge_empty_shape_is_refused() {
    let tensor = |shape: &str| {
        let header = format!(r#"{{"x":{{"dtype":"U8","shape":{shape},"data_offsets":[0,0]}}}}"#);
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.bytes());
        let tensor = Archive::new(file)?.tensor("x")?;
        Ok::<_, Error>(tensor.shape().to_vec())
    };
    assert_eq!(tensor("[0,4611686018427387904]"), Ok(vec![0, 1 << 62]));
    assert!(tensor("[0,18446744073709551615]").is_err());
    assert!(tensor("[0,4294967296,4294967296]").is_err());
}
