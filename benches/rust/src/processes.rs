//! The time to open a sealed file, compared with a named file.
//! Invariant: every file has all its pages before the first round.

use std::fs::{self, File};
use std::hint::black_box;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use dlbridge::DType;
use dlbridge_sealed::{Builder, SealedTensors};
use memmap2::Mmap;

const ROUNDS: usize = 301;
const SIZES: [i64; 4] = [1 << 10, 1 << 20, 64 << 20, 1 << 30];

/// A file in the machine's memory, which is removed in the end.
struct Named(PathBuf);

impl Drop for Named {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Prints a line for each size and way: bytes, way, nanoseconds (the median).
pub fn measure() {
    for size in SIZES {
        let builder = Builder::new().tensor("x", DType::U8, &[size]);
        let mut filling = builder.allocate().expect("memory");
        filling.tensor("x").expect("there").as_slice_mut::<u8>().expect("all")[0] = 7;
        let sealed = filling.seal().expect("a seal");
        let named = Named(format!("/dev/shm/dlbridge-bench-{}", std::process::id()).into());
        // A copy by the kernel, with the header.
        let path = format!("/proc/self/fd/{}", sealed.as_fd().as_raw_fd());
        let mut source = File::open(path).expect("a file");
        let mut copy = File::create(&named.0).expect("a file");
        std::io::copy(&mut source, &mut copy).expect("memory");
        let at = sealed.nbytes() - size as usize;
        let (mut ours, mut by_hand) = (Vec::new(), Vec::new());
        // In turns, so that other load on the machine affects both.
        for _ in 0..ROUNDS {
            let file = sealed.as_fd().try_clone_to_owned().expect("a descriptor");
            ours.push(time(|| open(file)));
            by_hand.push(time(|| map(&named.0, at)));
        }
        for (who, mut times) in [("dlbridge", ours), ("a mapping by hand", by_hand)] {
            times.sort_unstable();
            println!("open\t{size}\tRust\t{who}\t{}", times[times.len() / 2]);
        }
    }
}

/// Nanoseconds of a function, without the drop of its result.
fn time<T>(work: impl FnOnce() -> T) -> u128 {
    let start = Instant::now();
    let result = black_box(work());
    let taken = start.elapsed().as_nanos();
    drop(result);
    taken
}

/// Checks a file, maps it, and reads the first element.
fn open(file: OwnedFd) -> (SealedTensors, u8) {
    let sealed = SealedTensors::try_from(file).expect("sealed");
    let first = sealed.tensor("x").expect("there").as_slice::<u8>().expect("frozen")[0];
    assert_eq!(first, 7);
    (sealed, first)
}

/// Opens a file by its name, maps it, and reads the same element: without a check, and without a
/// proof that no other process writes to it.
fn map(path: &Path, at: usize) -> (Mmap, u8) {
    let file = File::open(path).expect("there");
    // SAFETY: no other process has the name of this file.
    let map = unsafe { Mmap::map(&file) }.expect("memory");
    let first = map[at];
    assert_eq!(first, 7);
    (map, first)
}
