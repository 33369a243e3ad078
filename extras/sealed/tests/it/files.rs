//! Sealed tensors in one process: what they hold, and in which order they are made.
//! Files to reject belong to `hostile.rs`, other processes to `processes/`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use dlbridge::{Access, DType, DescriptorError, Error, Tensor};
use dlbridge_sealed::safetensors_0_8::save;
use dlbridge_sealed::{Builder, Opens, SealedTensors, open_handle, seal, seal_file};
use dlbridge_testing::conformance::{self, Expected};
use rustix::fs::{SealFlags, fcntl_get_seals};
use safetensors::Dtype;

const ALL: SealFlags =
    SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::SEAL);

#[test]
fn a_sealed_tensor_is_frozen_and_a_private_one_exclusive() {
    let sealed = SealedTensors::try_from(&Tensor::from(vec![1.0_f32, 2.0, 3.0])).expect("a seal");
    conformance::owner(|| {
        let tensor = sealed.tensor("tensor").expect("there");
        let expected =
            Expected::new(&[3], &[1.0_f32, 2.0, 3.0]).at(tensor.data_ptr().cast::<f32>());
        (tensor, expected.read_only())
    });
    conformance::owner(|| {
        let tensor = sealed.private("tensor").expect("there");
        let expected =
            Expected::new(&[3], &[1.0_f32, 2.0, 3.0]).at(tensor.data_ptr().cast::<f32>());
        (tensor, expected)
    });
    let (frozen, mut private) = (sealed.tensor("tensor"), sealed.private("tensor").expect("there"));
    let frozen = frozen.expect("there");
    assert_eq!((frozen.access(), private.access()), (Access::Frozen, Access::Exclusive));
    private.as_slice_mut::<f32>().expect("exclusive").fill(9.0);
    let other = sealed.private("tensor").expect("there");
    drop(sealed);
    assert_eq!(frozen.as_slice::<f32>(), Ok(&[1.0, 2.0, 3.0][..]));
    assert_eq!(other.as_slice::<f32>(), Ok(&[1.0, 2.0, 3.0][..]));
    assert_eq!(private.as_slice::<f32>(), Ok(&[9.0; 3][..]));
}

#[test]
fn every_type_and_shape_is_sealed_as_it_is() {
    let shapes: [&[i64]; 5] = [&[], &[0], &[3], &[2, 3], &[5, 0, 7]];
    let vectors = [DType::F32.with_lanes(4), DType::new(dlbridge::TypeCode(200), 16)];
    let narrow = [DType::new(dlbridge::TypeCode::INT, 4), DType::new(dlbridge::TypeCode::UINT, 1)];
    for &dtype in DType::NAMED.iter().chain(&vectors).chain(&narrow) {
        let builder = shapes.iter().fold(Builder::new(), |builder, shape| {
            builder.tensor(format!("{shape:?} \u{e9}\"\\"), dtype, shape)
        });
        let mut filling = builder.metadata("made by", "a test").allocate().expect("memory");
        let mut wanted = Vec::new();
        for shape in shapes {
            let name = format!("{shape:?} \u{e9}\"\\");
            let zeros = Tensor::zeros(dtype, shape).expect("zeros");
            let bytes: Vec<u8> = (1..=zeros.nbytes() as u8).collect();
            let source = Tensor::from_bytes(dtype, shape, &bytes).expect("a source");
            filling.copy_from(&name, &source).expect("the same type and shape");
            wanted.push((name, shape, bytes));
        }
        let sealed = filling.seal().expect("a seal");
        let found: Vec<_> = sealed.names().map(String::from).collect();
        assert_eq!(found.len(), wanted.len());
        assert_eq!(sealed.metadata().iter().collect::<Vec<_>>().len(), 1);
        for (name, shape, bytes) in wanted {
            for tensor in [sealed.tensor(&name), sealed.private(&name)] {
                let tensor = tensor.expect("there");
                assert_eq!((tensor.dtype(), tensor.shape()), (dtype, shape));
                assert_eq!(tensor.as_bytes(), Ok(&bytes[..]), "{dtype} {shape:?}");
                assert!(tensor.data_ptr().addr() % 64 == 0 || tensor.is_empty());
            }
        }
    }
}

#[test]
fn tensors_are_filled_in_place_by_several_threads() {
    let builder = (0..4)
        .fold(Builder::new(), |builder, i| builder.tensor(i.to_string(), DType::I64, &[1000 + i]));
    let mut filling = builder.tensor("rest", DType::U8, &[]).allocate().expect("memory");
    assert_eq!(filling.names().collect::<Vec<_>>(), ["0", "1", "2", "3", "rest"]);
    let threads = [0, 1, 2, 3].map(|i| {
        let mut tensor = filling.tensor(&i.to_string()).expect("the first time");
        std::thread::spawn(move || tensor.as_slice_mut::<i64>().expect("exclusive").fill(i))
    });
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let sealed = filling.seal().expect("no tensor is left");
    for i in 0..4_i64 {
        let tensor = sealed.tensor(&i.to_string()).expect("there");
        assert_eq!(tensor.as_slice(), Ok(&vec![i; 1000 + i as usize][..]));
    }
    assert_eq!(sealed.tensor("rest").expect("there").as_slice::<u8>(), Ok(&[0][..]));
}

#[test]
fn strided_and_shared_tensors_are_sealed_by_one_copy() {
    let column = Tensor::builder(vec![1_i16, 2, 3, 4, 5, 6]).shape([3]).strides([-2]).offset(5);
    let shared = Tensor::from(vec![1_u8, 2]).into_shared();
    let sealed = seal([("x", &column.build().expect("inside")), ("y", &shared)]).expect("a seal");
    assert_eq!(sealed.tensor("x").expect("there").as_slice::<i16>(), Ok(&[6, 4, 2][..]));
    assert_eq!(sealed.tensor("y").expect("there").as_slice::<u8>(), Ok(&[1, 2][..]));
    let unknown = Error::UnknownName { what: "tensor", name: "z".into() };
    assert_eq!(sealed.tensor("z").map(drop), Err(unknown.clone()));
    assert_eq!(sealed.private("z").map(drop), Err(unknown));
}

#[test]
fn a_tensor_is_filled_from_a_reader_before_and_after_others_are_taken() {
    let bytes: Vec<u8> = (0..200_001_u32).map(|i| i as u8).collect();
    let extent = bytes.len() as i64;
    let builder = ["a", "b", "c", "zeros"]
        .iter()
        .fold(Builder::new(), |builder, name| builder.tensor(*name, DType::U8, &[extent]));
    let mut filling = builder.tensor("empty", DType::F32, &[0]).allocate().expect("memory");
    let early = filling.read_from("a", &bytes[1..]).expect_err("one byte is missing");
    assert_eq!(early.kind(), std::io::ErrorKind::UnexpectedEof);
    filling.read_from("a", &bytes[..]).expect("as many bytes");
    filling.read_from("empty", &bytes[..]).expect("no bytes");
    let source = Tensor::from(bytes.clone()).into_shared();
    filling.copy_from("b", &source).expect("the same type and shape");
    // From here on, the file is mapped.
    let mut taken = filling.tensor("c").expect("the first time");
    taken.as_bytes_mut().expect("exclusive").copy_from_slice(&bytes);
    drop(taken);
    let again = filling.read_from("c", &bytes[..]).expect_err("taken").to_string();
    assert!(again.ends_with("expected a tensor that is neither taken out nor sealed, found \"c\""));
    assert!(filling.read_from("x", &bytes[..]).is_err());
    filling.read_from("a", &bytes[..]).expect("once more");
    let sealed = filling.seal().expect("a seal");
    for name in ["a", "b", "c"] {
        assert_eq!(sealed.tensor(name).expect("there").as_slice(), Ok(&bytes[..]), "{name}");
    }
    let zeros = sealed.tensor("zeros").expect("there");
    assert_eq!(zeros.as_slice(), Ok(&vec![0_u8; bytes.len()][..]));
    assert!(filling.read_from("a", &bytes[..]).is_err());
}

#[test]
fn a_file_that_is_never_mapped_is_whole() {
    let builder = Builder::new().tensor("x", DType::F32, &[10_000]).tensor("y", DType::U8, &[3]);
    let mut filling = builder.allocate().expect("memory");
    filling.read_from("y", &[1, 2, 3][..]).expect("as many bytes");
    let sealed = filling.seal().expect("a seal");
    assert_eq!(sealed.tensor("x").expect("there").as_slice(), Ok(&[0.0_f32; 10_000][..]));
    assert_eq!(sealed.tensor("y").expect("there").as_slice(), Ok(&[1_u8, 2, 3][..]));
    let again = filling.tensor("x").map(drop).expect_err("sealed").to_string();
    assert!(again.ends_with("neither taken out nor sealed, found \"x\""), "{again}");
}

#[test]
fn a_tensor_that_is_alive_prevents_sealing() {
    let mut filling = Builder::new().tensor("x", DType::U8, &[2]).allocate().expect("memory");
    let mut tensor = filling.tensor("x").expect("the first time");
    let again = filling.tensor("x").map(drop).expect_err("taken");
    assert_eq!(
        again.to_string(),
        "sealed tensors: expected a tensor that is neither taken out nor sealed, found \"x\""
    );
    assert_eq!(filling.alive(), 1);
    let alive = filling.seal().map(drop).expect_err("a writable mapping");
    assert_eq!(
        alive.to_string(),
        "sealed tensors: expected that all tensors to be filled are dropped, found 1 alive"
    );
    tensor.as_slice_mut::<u8>().expect("exclusive")[0] = 7;
    drop(tensor);
    assert_eq!(filling.alive(), 0);
    let sealed = filling.seal().expect("no tensor is left");
    assert_eq!(sealed.tensor("x").expect("there").as_slice::<u8>(), Ok(&[7, 0][..]));
    assert!(filling.seal().is_err() && filling.tensor("x").is_err());
    assert!(filling.copy_from("x", &Tensor::from(vec![1_u8, 2])).is_err());
}

#[test]
fn a_copy_has_the_type_and_shape_that_were_declared() {
    let mut filling = Builder::new().tensor("x", DType::I32, &[2]).allocate().expect("memory");
    let mismatch = Error::DTypeMismatch { found: DType::F32, expected: DType::I32 };
    assert_eq!(filling.copy_from("x", &Tensor::from(vec![1_f32, 2.0])), Err(mismatch));
    assert!(filling.copy_from("x", &Tensor::from(vec![1_i32, 2, 3])).is_err());
    assert!(filling.copy_from("y", &Tensor::from(vec![1_i32, 2])).is_err());
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "its sizes are of 64 bits")]
fn names_and_sizes_that_no_file_can_have_are_refused() {
    let refused = |builder: Builder| builder.allocate().map(drop).expect_err("refused");
    refused(Builder::new().tensor("__metadata__", DType::U8, &[1]));
    refused(Builder::new().tensor("x", DType::U8, &[1]).tensor("x", DType::U8, &[1]));
    refused(Builder::new().metadata("long", "x".repeat(100_000_000)));
    assert_eq!(
        refused(Builder::new().tensor("x", DType::U8, &[-1])),
        Error::Descriptor(DescriptorError::NegativeExtent { axis: 0, extent: -1 })
    );
    let overflow = Error::Descriptor(DescriptorError::SizeOverflow { what: "byte size" });
    let many = (0..8)
        .fold(Builder::new(), |builder, i| builder.tensor(i.to_string(), DType::U8, &[1 << 60]));
    assert_eq!(refused(many), overflow);
    let memory = refused(Builder::new().tensor("x", DType::U8, &[1 << 50]));
    assert!(matches!(memory, Error::OutOfMemory { .. }), "{memory}");
    assert!(Builder::new().tensor("x", DType::U8, &[1; 65]).allocate().is_err());
}

#[test]
fn names_and_keys_like_those_of_a_sealed_file_are_kept() {
    let names = ["__pad_0", "__pad_1", "x", "__pad_"];
    let keys = ["dlbridge:x", "dlbridge-metadata:dlbridge:x", "dlbridge-metadata:", "y"];
    let builder =
        Builder::new().tensor(names[0], DType::U8, &[1]).tensor(names[1], DType::F64, &[2]);
    let builder =
        builder.tensor(names[2], DType::FLOAT8_E4M3, &[3]).tensor(names[3], DType::U8, &[0]);
    let builder = keys.iter().fold(builder, |builder, key| builder.metadata(*key, "int4 3"));
    let sealed = builder.allocate().and_then(|mut filling| filling.seal()).expect("a seal");
    let again = SealedTensors::try_from(OwnedFd::from(sealed)).expect("sealed by us");
    assert_eq!(again.names().collect::<Vec<_>>(), names);
    assert_eq!(again.tensor("__pad_1").expect("there").dtype(), DType::F64);
    assert!(again.metadata().keys().eq([
        "dlbridge-metadata:",
        "dlbridge-metadata:dlbridge:x",
        "dlbridge:x",
        "y"
    ]));
}

#[cfg(target_endian = "little")] // On other machines, a file of wide elements is refused.
#[test]
fn a_file_on_disk_is_sealed() {
    let path =
        std::env::temp_dir().join(format!("dlbridge-{}-sealed.safetensors", std::process::id()));
    let (x, y) = (Tensor::from(vec![1_u8, 2, 3]), Tensor::from(vec![0.5_f64]));
    let tensors = [("__pad_7", &x), ("y", &y)];
    let texts = BTreeMap::from([("dlbridge:y".to_owned(), "a text".to_owned())]);
    save(&path, tensors, &texts, false).expect("saved");
    let sealed = seal_file(&path).expect("a file");
    // A change of the file reaches no sealed tensor.
    std::fs::write(&path, "").expect("shorter");
    let reads = |name| sealed.tensor(name).expect("there");
    assert_eq!(
        (reads("__pad_7").as_slice(), reads("y").as_slice()),
        (Ok(&[1_u8, 2, 3][..]), Ok(&[0.5][..]))
    );
    assert_eq!(sealed.metadata(), &texts);
    let error = seal_file(&path).expect_err("no header").to_string();
    assert!(error.contains("expected a header with its size, found 0 bytes"), "{error}");
    std::fs::remove_file(&path).expect("there");
}

#[cfg(target_endian = "little")] // On other machines, the file has the bytes of `y` as uint8.
#[test]
fn any_safetensors_reader_reads_the_file() {
    let (x, y) = (Tensor::from(vec![1_u8, 2, 3]), Tensor::from(vec![0.5_f64]));
    let z = Tensor::from_bytes(DType::FLOAT4_E2M1FN, [4], &[5, 6]).expect("a tensor");
    let sealed = seal([("x", &x), ("y", &y), ("z", &z)]).expect("a seal");
    let path = format!("/proc/self/fd/{}", sealed.as_fd().as_raw_fd());
    let bytes = std::fs::read(path).expect("a file");
    assert_eq!(bytes.len(), sealed.nbytes());
    let read = safetensors::SafeTensors::deserialize(&bytes).expect("the format");
    assert_eq!(read.tensor("x").expect("there").data(), [1, 2, 3]);
    assert_eq!(read.tensor("y").expect("there").data(), 0.5_f64.to_le_bytes());
    let z = read.tensor("z").expect("there");
    assert_eq!((z.dtype(), z.shape(), z.data()), (Dtype::F4, &[4][..], &[5, 6][..]));
}

#[test]
fn a_clone_and_a_descriptor_reach_the_same_memory() {
    let sealed = SealedTensors::try_from(&Tensor::from(vec![1_u16, 2])).expect("a seal");
    let clone = sealed.try_clone().expect("a descriptor");
    let pointer = |sealed: &SealedTensors| sealed.tensor("tensor").expect("there").data_ptr();
    assert_eq!(pointer(&sealed), pointer(&clone));
    let seals = fcntl_get_seals(&clone).expect("a memfd");
    assert!(seals.contains(ALL), "{seals:?}");
    let again = SealedTensors::try_from(OwnedFd::from(clone)).expect("sealed by us");
    drop(sealed);
    assert_eq!(again.tensor("tensor").expect("there").as_slice::<u16>(), Ok(&[1, 2][..]));
}

#[test]
fn a_socket_carries_one_sealed_file() {
    let (here, there) = UnixStream::pair().expect("sockets");
    SealedTensors::try_from(&Tensor::from(vec![1_u8]))
        .expect("a seal")
        .send(&here)
        .expect("a socket");
    let sealed = SealedTensors::receive(&there).expect("a descriptor");
    assert_eq!(sealed.tensor("tensor").expect("there").as_slice::<u8>(), Ok(&[1][..]));
    (&here).write_all(b"x").expect("a socket");
    let none = SealedTensors::receive(&there).expect_err("no descriptor").to_string();
    assert_eq!(none, "sealed tensors: expected one descriptor, found 0");
    drop(here);
    let closed = SealedTensors::receive(&there).expect_err("nothing left").to_string();
    assert_eq!(closed, "sealed tensors: expected one descriptor, found the end of the stream");
    assert!(sealed.send(&there).is_err());
    assert!(sealed.send(File::open("/dev/null").expect("there")).is_err());
}

/// More tensors than a process has mappings.
const MANY: i64 = 100_000;

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_file_of_more_tensors_than_mappings_is_read_and_written() {
    let builder = (0..MANY)
        .fold(Builder::new(), |builder, i| builder.tensor(i.to_string(), DType::I64, &[8]));
    let mut filling = builder.allocate().expect("memory");
    for i in 0..MANY {
        let mut tensor = filling.tensor(&i.to_string()).expect("the first time");
        tensor.as_slice_mut::<i64>().expect("exclusive").fill(i);
    }
    let sealed = filling.seal().expect("a seal");
    let names: Vec<_> = sealed.names().collect();
    let frozen: Result<Vec<_>, _> = names.iter().map(|name| sealed.tensor(name)).collect();
    let (frozen, mut private) = (frozen.expect("there"), sealed.private_tensors().expect("memory"));
    assert_eq!((names.len(), private.len()), (MANY as usize, MANY as usize));
    // Neighbours are in one page, which the first write copies.
    for tensor in private.iter_mut().step_by(2) {
        tensor.as_slice_mut::<i64>().expect("exclusive").fill(-1);
    }
    for (i, (name, (frozen, private))) in names.iter().zip(frozen.iter().zip(&private)).enumerate()
    {
        let value: i64 = name.parse().expect("a number");
        assert_eq!(
            (value, frozen.access(), private.access()),
            (i as i64, Access::Frozen, Access::Exclusive)
        );
        assert_eq!(frozen.as_slice::<i64>(), Ok(&[value; 8][..]));
        let expected = if i % 2 == 0 { -1 } else { value };
        assert_eq!(private.as_slice::<i64>(), Ok(&[expected; 8][..]));
    }
}

#[test]
fn a_handle_ends_with_the_last_clone_and_opens_on_any_thread() {
    let sealed = SealedTensors::try_from(&Tensor::from(vec![1_u8, 2])).expect("memory");
    let handle = sealed.handle(Opens::Many).expect("a server");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let opened = open_handle(&handle).expect("a handle");
                    let tensor = opened.tensor("tensor").expect("there");
                    assert_eq!(tensor.as_slice::<u8>(), Ok(&[1, 2][..]));
                }
            });
        }
    });
    let clone = sealed.try_clone().expect("a descriptor");
    assert_eq!(clone.handle(Opens::Many), Ok(handle.clone()));
    let at_least_once = clone.handle(Opens::OnceAtLeast).expect("a server");
    let once = clone.handle(Opens::Once).expect("a server");
    assert_ne!(clone.handle(Opens::Once), Ok(once.clone()));
    drop(sealed);
    assert!(open_handle(&handle).is_ok());
    drop(clone);
    for (handle, is_open) in [(handle, false), (at_least_once, true), (once, true)] {
        assert_eq!(open_handle(&handle).is_ok(), is_open);
        assert!(open_handle(&handle).expect_err("used").to_string().contains("revoked, used"));
    }
}
