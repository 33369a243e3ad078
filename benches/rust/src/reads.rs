//! The cost of reads without trust point T6 of `SAFETY.md`, compared with those of a `View`: blocks
//! are copied to the stack by inline assembly or relaxed atomics, and loops run over the copy.
//! Invariant: memory is a whole number of blocks, so no loop handles a remainder.

use std::arch::asm;
use std::arch::x86_64::__m128i;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dlbridge::{Plain, Tensor, View};

use crate::views::cases::{Number, Way, pair, values};

const SIZES: [(usize, &str, usize); 3] =
    [(1 << 14, "16 KiB", 201), (1 << 20, "1 MiB", 201), (1 << 26, "64 MiB", 21)];
/// The minimum length of a round.
const ROUND_NS: f64 = 50_000.0;

/// A method to read a block of `N` bytes.
trait Load<const N: usize> {
    /// # Safety
    ///
    /// `from` is valid for reads of `N` bytes, aligned to 8, and `to` for writes.
    unsafe fn load(from: *const u8, to: *mut u8);
}

struct Movsb;
struct Atomics;
struct Registers;

impl Load<4096> for Movsb {
    #[inline(always)]
    unsafe fn load(from: *const u8, to: *mut u8) {
        // SAFETY: the caller's duty.
        unsafe {
            asm!("rep movsb", inout("rcx") 4096_usize => _, inout("rsi") from => _,
                inout("rdi") to => _, options(nostack, preserves_flags));
        }
    }
}

impl Load<4096> for Atomics {
    #[inline(always)]
    unsafe fn load(from: *const u8, to: *mut u8) {
        for i in 0..4096 / 8 {
            // SAFETY: the caller's duty.
            let word = unsafe { &*from.cast::<AtomicU64>().add(i) }.load(Ordering::Relaxed);
            // SAFETY: the caller's duty.
            unsafe { to.cast::<u64>().add(i).write(word) };
        }
    }
}

impl Load<128> for Registers {
    #[inline(always)]
    unsafe fn load(from: *const u8, to: *mut u8) {
        for half in [0, 64] {
            let (a, b, c, d): (__m128i, __m128i, __m128i, __m128i);
            // SAFETY: the caller's duty.
            unsafe {
                asm!("movups {a}, [{p}]", "movups {b}, [{p} + 16]", "movups {c}, [{p} + 32]",
                    "movups {d}, [{p} + 48]", p = in(reg) from.add(half), a = out(xmm_reg) a,
                    b = out(xmm_reg) b, c = out(xmm_reg) c, d = out(xmm_reg) d,
                    options(readonly, nostack, preserves_flags));
            }
            // SAFETY: the caller's duty.
            unsafe { to.add(half).cast::<[__m128i; 4]>().write_unaligned([a, b, c, d]) };
        }
    }
}

/// A block on the stack.
#[repr(align(64))]
struct Block<const N: usize>(MaybeUninit<[u8; N]>);

impl<const N: usize> Block<N> {
    #[inline(always)]
    fn read<L: Load<N>, T: Plain>(&mut self, elements: &[T]) -> &[T] {
        let to = self.0.as_mut_ptr().cast::<u8>();
        assert_eq!(size_of_val(elements), N);
        // SAFETY: `N` bytes both (asserted), and elements of 8 bytes or of memory aligned to 64.
        unsafe { L::load(elements.as_ptr().cast(), to) };
        // SAFETY: written just now, aligned to 64, and any bytes are a `Plain` value.
        unsafe { std::slice::from_raw_parts(to.cast(), elements.len()) }
    }
}

/// Prints the head of a table, and a line for each loop: its name, type and size, the nanoseconds
/// over a `View`, and the other methods as multiples of them.
pub fn measure() {
    println!("loop\telements\tsize\tView, ns\tblocks, movsb\tblocks, atomics\tregisters");
    for (bytes, size, rounds) in SIZES {
        loops::<f32>(bytes, size, rounds);
        loops::<f64>(bytes, size, rounds);
        loops::<u8>(bytes, size, rounds);
    }
}

fn loops<T: Number + Plain>(bytes: usize, size: &str, rounds: usize) {
    let values = values::<T>(bytes / size_of::<T>());
    let tensor = || Box::leak(Box::new(Tensor::zeros(T::DTYPE, [values.len() as i64])));
    let of = |tensor: &'static mut Result<Tensor, dlbridge::Error>| {
        let tensor = tensor.as_mut().expect("there is memory");
        tensor.as_slice_mut::<T>().expect("its own").copy_from_slice(&values);
        (tensor.view::<T>().expect("its type"), tensor.as_slice::<T>().expect("its own"))
    };
    let ((a, x), (b, y)) = (of(tensor()), of(tensor()));
    let ways = [
        viewed(a, b),
        blocks::<Movsb, T, 4096>(x, y),
        blocks::<Atomics, T, 4096>(x, y),
        blocks::<Registers, T, 128>(x, y),
    ];
    for (at, name) in ["sum", "map", "zip"].into_iter().enumerate() {
        let mut best = [f64::INFINITY; 4];
        let calls = (ROUND_NS / time(&ways[0][at], 1)).ceil() as u32;
        for _ in 0..rounds {
            for (way, best) in ways.iter().zip(&mut best) {
                *best = time(&way[at], calls).min(*best);
            }
        }
        assert!(ways.iter().all(|way| way[at]() == ways[0][at]()), "{name}");
        let [view, others @ ..] = best;
        let others = others.map(|ns| format!("{:.2}", ns / view)).join("\t");
        println!("{name}\t{}\t{size}\t{view:.0}\t{others}", T::DTYPE);
    }
}

fn time(run: &Way, calls: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        black_box(run());
    }
    start.elapsed().as_nanos() as f64 / f64::from(calls)
}

/// The loops over a `View`.
fn viewed<T: Number>(a: View<'static, T>, b: View<'static, T>) -> [Way; 3] {
    let cells = |view: View<'static, T>| black_box(view).as_cells().expect("aligned");
    [
        Box::new(move || black_box(a).iter().fold(T::small(0), T::plus).into()),
        Box::new(move || black_box(black_box(a).map(T::changed))[0].into()),
        Box::new(move || {
            let both = cells(a).iter().zip(cells(b));
            both.fold(T::small(0), |sum, (x, y)| pair(sum, x.get(), y.get())).into()
        }),
    ]
}

/// The same loops over copied blocks.
fn blocks<L: Load<N>, T: Number + Plain, const N: usize>(
    x: &'static [T],
    y: &'static [T],
) -> [Way; 3] {
    let chunks = |elements| <[T]>::chunks_exact(black_box(elements), N / size_of::<T>());
    let block = || Block::<N>(MaybeUninit::uninit());
    [
        Box::new(move || {
            let mut own = block();
            let sum = |sum, chunk| own.read::<L, T>(chunk).iter().copied().fold(sum, T::plus);
            chunks(x).fold(T::small(0), sum).into()
        }),
        Box::new(move || {
            let (mut own, mut values) = (block(), Vec::with_capacity(x.len()));
            let rooms = values.spare_capacity_mut().chunks_exact_mut(N / size_of::<T>());
            for (chunk, room) in chunks(x).zip(rooms) {
                for (place, x) in room.iter_mut().zip(own.read::<L, T>(chunk)) {
                    place.write(x.changed());
                }
            }
            // SAFETY: all blocks were written just now.
            unsafe { values.set_len(x.len()) };
            black_box(values)[0].into()
        }),
        Box::new(move || {
            let (mut own, mut other) = (block(), block());
            let pairs = |sum, (x, y)| {
                let both = own.read::<L, T>(x).iter().zip(other.read::<L, T>(y));
                both.fold(sum, |sum, (&x, &y)| pair(sum, x, y))
            };
            chunks(x).zip(chunks(y)).fold(T::small(0), pairs).into()
        }),
    ]
}
