//! Sealed files from anywhere: each that is not a whole, sealed file of tensors is an error.
//! What a sealed file holds belongs to `files.rs`.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use dlbridge_sealed::SealedTensors;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::fs::{fallocate, fcntl_add_seals, fstat, ftruncate, memfd_create, open};

const ALL: SealFlags =
    SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::SEAL);

/// A file of these bytes with these seals.
fn memfd(bytes: &[u8], seals: SealFlags) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let mut file = File::from(file.expect("a memfd"));
    file.write_all(bytes).expect("room");
    fcntl_add_seals(&file, seals).expect("a file that can be sealed");
    file.into()
}

/// A header of this text, padded so that the data is aligned, and the data.
fn layout(json: &str, data: &[u8]) -> Vec<u8> {
    let start = (8 + json.len()).next_multiple_of(64);
    let mut file = (start as u64 - 8).to_le_bytes().to_vec();
    file.extend(json.bytes());
    file.resize(start, b' ');
    file.extend(data);
    file
}

/// Why a file is refused.
fn why(file: impl Into<OwnedFd>) -> String {
    SealedTensors::try_from(file.into()).expect_err("a file to refuse").to_string()
}

/// Why a sealed file of this header, and of so many bytes of data, is refused.
fn why_header(json: &str, data: usize) -> String {
    why(memfd(&layout(json, &vec![0; data]), ALL))
}

#[test]
fn a_file_without_all_seals_is_refused() {
    let file = layout(r#"{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#, &[1]);
    assert!(SealedTensors::try_from(memfd(&file, ALL)).is_ok());
    for seal in ALL {
        let message = why(memfd(&file, ALL.difference(seal)));
        assert!(message.contains("without the seals"), "{message}");
    }
    let future = ALL.difference(SealFlags::WRITE).union(SealFlags::FUTURE_WRITE);
    assert!(why(memfd(&file, future)).contains("WRITE"));
    let mut seals = MemfdFlags::CLOEXEC;
    let unsealable = memfd_create("test", seals).expect("a memfd");
    assert!(why(unsealable).contains("without the seals"));
    seals |= MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    // Huge pages need not be set up.
    if let Ok(huge) = memfd_create("test", seals) {
        if ftruncate(&huge, 1 << 21).is_ok() && fcntl_add_seals(&huge, ALL).is_ok() {
            assert!(why(huge).contains("huge pages"));
        }
    }
}

#[test]
fn any_other_file_than_a_memory_file_is_refused() {
    let file = |path: &str| File::open(path).expect("on every Linux");
    let (end, other) = UnixStream::pair().expect("sockets");
    let (pipe, _writer) = rustix::pipe::pipe().expect("a pipe");
    let disk = std::env::current_exe().expect("a file on disk");
    for (file, found) in [
        (OwnedFd::from(file("/dev/zero")), "a device"),
        (file("/dev/null").into(), "a device"),
        (file("/").into(), "a directory"),
        (file("/proc/self/maps").into(), "a file on disk"),
        (File::open(disk).expect("this program").into(), "a file on disk"),
        (end.into(), "a socket"),
        (other.into(), "a socket"),
        (pipe, "a pipe"),
    ] {
        let wanted =
            format!("sealed tensors: expected a sealed memory file (memfd), found {found}");
        assert_eq!(why(file), wanted);
    }
    let path = open("/", OFlags::PATH, Mode::empty());
    assert!(why(path.expect("a path")).contains("memory file"));
}

#[test]
fn a_file_with_missing_pages_is_refused() {
    let file = layout(r#"{"x":{"dtype":"U8","shape":[1048576],"data_offsets":[0,1048576]}}"#, &[]);
    let sparse = memfd(&file, SealFlags::empty());
    ftruncate(&sparse, file.len() as u64 + (1 << 20)).expect("a hole");
    fcntl_add_seals(&sparse, ALL).expect("a seal");
    assert!(why(sparse).contains("all its pages"));
    assert!(why(memfd(&[], ALL)).contains("all its pages"));
}

#[test]
fn pages_that_were_allocated_and_not_written_are_there_for_good() {
    let file = layout(r#"{"x":{"dtype":"U8","shape":[8388608],"data_offsets":[0,8388608]}}"#, &[]);
    let size = file.len() as u64 + (8 << 20);
    let full = memfd(&file, SealFlags::empty());
    fallocate(&full, FallocateFlags::empty(), 0, size).expect("pages");
    fcntl_add_seals(&full, ALL).expect("a seal");
    let blocks = || fstat(&full).expect("a file").st_blocks;
    let before = blocks();
    // A second allocation takes back no page of the first when it is killed.
    for round in 0..20 {
        if !killed_allocation(&full, size, round) {
            return;
        }
        assert_eq!(blocks(), before);
    }
    let sealed = SealedTensors::try_from(full.try_clone().expect("a descriptor")).expect("pages");
    let x = sealed.tensor("x").expect("there");
    assert!(x.as_slice::<u8>().expect("frozen").iter().all(|&byte| byte == 0));
    assert_eq!(blocks(), before);
}

/// Lets a child allocate a file, and kills it.
fn killed_allocation(file: &OwnedFd, size: u64, round: u64) -> bool {
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let child = Command::new("fallocate").args(["--length", &size.to_string(), &path]).spawn();
    let Ok(mut child) = child else {
        eprintln!("skipped: no program fallocate");
        return false;
    };
    std::thread::sleep(Duration::from_micros(300 * round));
    child.kill().expect("a child");
    child.wait().expect("a child");
    true
}

#[test]
fn pages_beyond_the_end_do_not_stand_for_missing_ones() {
    let header =
        layout(r#"{"x":{"dtype":"U8","shape":[1048576],"data_offsets":[0,1048576]}}"#, &[]);
    let size = header.len() as u64 + (1 << 20);
    let file = memfd(&header, SealFlags::empty());
    ftruncate(&file, size).expect("a hole");
    let start = size.next_multiple_of(4096);
    fallocate(&file, FallocateFlags::KEEP_SIZE, start, 1 << 21).expect("pages");
    fcntl_add_seals(&file, ALL).expect("a seal");
    assert!(why(file).contains("all its pages"));
}

#[test]
fn a_check_allocates_no_page_of_a_sparse_file() {
    let header =
        layout(r#"{"x":{"dtype":"U8","shape":[8388608],"data_offsets":[0,8388608]}}"#, &[]);
    let file = memfd(&header, SealFlags::empty());
    let size = header.len() as u64 + (8 << 20);
    ftruncate(&file, size).expect("a hole");
    // So that the count of pages hides it.
    let beyond = size.next_multiple_of(4096);
    fallocate(&file, FallocateFlags::KEEP_SIZE, beyond, 9 << 20).expect("pages");
    fcntl_add_seals(&file, ALL).expect("a seal");
    // A descriptor that cannot change the file, by which nothing can be cut off.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let read_only = OwnedFd::from(File::open(path).expect("the same file"));
    let blocks = || fstat(&file).expect("a file").st_blocks;
    let before = blocks();
    assert!(why(read_only).contains("all its pages"));
    assert_eq!(blocks(), before);
}

#[test]
fn a_file_whose_allocation_was_killed_is_refused() {
    let header =
        layout(r#"{"x":{"dtype":"U8","shape":[33554432],"data_offsets":[0,33554432]}}"#, &[]);
    let size = header.len() + (32 << 20);
    for round in 0..20 {
        let file = memfd(&header, SealFlags::empty());
        ftruncate(&file, size as u64).expect("a hole");
        if !killed_allocation(&file, size as u64, round) {
            return;
        }
        fcntl_add_seals(&file, ALL).expect("a seal");
        // It may have ended before.
        let is_whole = fstat(&file).expect("a file").st_blocks as usize * 512 >= size;
        assert_eq!(SealedTensors::try_from(file).is_ok(), is_whole);
    }
}

/// An entry of a header.
fn entry(name: &str, dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "its sizes are of 64 bits")]
fn a_header_that_does_not_fit_the_file_is_refused() {
    let x = |dtype, shape, offsets| format!("{{{}}}", entry("x", dtype, shape, offsets));
    let axes = format!("[1{}]", ",1".repeat(64));
    for (json, data, wanted) in [
        ("", 0, "EOF"),
        ("[]", 0, "sequence"),
        (r#"{"x":1}"#, 0, "a map of dtype"),
        (&"[".repeat(100_000), 0, "sequence"),
        (&format!(r#"{{"x":{}"#, "[".repeat(100_000)), 0, "sequence"),
        (&format!(r#"{{"x":{{"y":{}"#, "[".repeat(100_000)), 0, "EOF"),
        (&x("U8", "[2]", "[0,1]"), 1, "expected 2 bytes for uint8[2], found 1"),
        (&x("U8", "[2]", "[0,2]"), 1, "expected 2 bytes"),
        (&x("U8", "[1]", "[0,1]"), 2, "expected 1 bytes"),
        (&x("U8", "[-1]", "[0,1]"), 1, "-1"),
        (&x("U8", "[1]", "[1,0]"), 1, "expected bytes from 0 on"),
        (&x("U8", "[64]", "[64,128]"), 128, "expected bytes from 0 on"),
        (
            &x("F64", "[2305843009213693952]", "[0,18446744073709551615]"),
            8,
            "found a larger byte size",
        ),
        (&x("U8", "[4294967296,4294967296]", "[0,1]"), 1, "element count"),
        (&x("U8", "[0,4294967296,4294967296]", "[0,0]"), 0, "element count"),
        (&x("U8", "[9223372036854775808,0]", "[0,0]"), 0, "element count"),
        (&x("U8", &axes, "[0,1]"), 1, "found 65"),
    ] {
        let found = why_header(json, data);
        assert!(found.contains(wanted), "{wanted}: {found}");
    }
}

#[test]
fn tensors_that_overlap_or_are_misaligned_are_refused() {
    let [whole, half] = ["[0,128]", "[64,128]"];
    for (y, data, wanted) in [
        (entry("y", "I8", "[128]", whole), 128, "expected bytes from 128 on"),
        (entry("y", "F32", "[16]", half), 128, "expected bytes from 128 on"),
        (entry("y", "F32", "[1]", "[192,196]"), 196, "expected bytes from 128 on"),
        (entry("y", "F32", "[1]", "[128,132]"), 132, ""),
    ] {
        let json = format!("{{{},{y}}}", entry("x", "U8", "[128]", whole));
        let file = SealedTensors::try_from(memfd(&layout(&json, &vec![0; data]), ALL));
        match (file, wanted) {
            (Ok(sealed), "") => assert_eq!(sealed.names().collect::<Vec<_>>(), ["x", "y"]),
            (file, _) => assert!(file.expect_err(wanted).to_string().contains(wanted)),
        }
    }
    for (size, offsets) in [(1, "[1,5]"), (32, "[32,36]"), (60, "[60,64]")] {
        let x = entry("x", "U8", &format!("[{size}]"), &format!("[0,{size}]"));
        let found = why_header(&format!("{{{x},{}}}", entry("y", "F32", "[1]", offsets)), size + 4);
        assert!(
            found.contains("expected tensors at multiples of 64 bytes, found \"y\""),
            "{found}"
        );
    }
}

#[test]
fn a_type_that_does_not_fit_its_bytes_is_refused() {
    for (text, size, wanted) in [
        ("int4 3", 1, "expected 2 bytes for the shape, found 1"),
        ("int4 -3", 2, "expected extent 0 or more, found -3"),
        ("int4 3 x", 2, "expected a type and extents"),
        ("int4  3", 2, "expected a type and extents"),
        ("nothing", 2, "expected a known name"),
        ("", 2, "expected a known name"),
        ("int0 3", 2, "expected a known name"),
        ("float64 9223372036854775807", 2, "that fit the address space"),
    ] {
        let x = entry("x", "U8", &format!("[{size}]"), &format!("[0,{size}]"));
        let found =
            why_header(&format!(r#"{{"__metadata__":{{"dlbridge:x":"{text}"}},{x}}}"#), size);
        assert!(found.contains(wanted), "{text}: {found}");
    }
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "its sizes are of 64 bits")]
fn sizes_that_overflow_are_refused() {
    for (length, wanted) in [
        (57, "expected a header of 57 bytes, found 56"),
        (1 << 20, "found 56"),
        (1 << 32, "at most"),
        (u64::MAX - 7, "at most"),
        (u64::MAX, "at most"),
    ] {
        let mut file = length.to_le_bytes().to_vec();
        file.resize(64, b' ');
        assert!(why(memfd(&file, ALL)).contains(wanted), "{length}");
    }
    for size in [1, 7] {
        assert!(why(memfd(&vec![0; size], ALL)).contains("expected a header with its size"));
    }
    // Each size is possible; their sum and that of the header's is not.
    let each = (1_u64 << 61) - 64;
    let last = each * 8..u64::MAX;
    let ranges = (0..8).map(|i| i * each..(i + 1) * each).chain([last]);
    let entries: Vec<_> = ranges
        .map(|range| {
            let shape = format!("[{}]", range.end - range.start);
            entry(
                &range.start.to_string(),
                "U8",
                &shape,
                &format!("[{},{}]", range.start, range.end),
            )
        })
        .collect();
    let found = why_header(&format!("{{{}}}", entries.join(",")), 0);
    assert!(found.contains("expected 18446744073709551615 bytes"), "{found}");
}
