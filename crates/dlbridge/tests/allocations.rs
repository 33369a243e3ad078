//! What each step allocates and frees, and that it frees with the layout it allocated with.
//! How long a step takes is for the benches.
#![allow(unsafe_code, reason = "a global allocator is unsafe by nature")]

#[path = "it/common/mod.rs"]
mod common;

use common::{delete, delete_legacy, import, import_legacy, take_back};
use dlbridge::{DType, Error, Parts, Tensor, TensorMut, TensorRef};
use dlbridge_testing::{CountingOwner, Foreign};
use ledger::counted;

const NONE: (usize, usize) = (0, 0);

#[cfg(feature = "ndarray-0_17")]
#[test]
fn an_array_becomes_a_tensor_is_viewed_and_dropped_with_one_allocation() {
    let array = ndarray::Array2::<f32>::ones((3, 4));
    let ((), counts) = counted(|| {
        let tensor = Tensor::from(array);
        let view = tensor.view_as::<ndarray::ArrayView2<f32>>().expect("exclusive");
        assert_eq!(view.sum(), 12.0);
        drop(tensor);
    });
    assert_eq!(counts, (1, 2), "the header, and the array's own elements");
}

#[cfg(all(
    feature = "nalgebra-0_35",
    feature = "faer-0_24",
    feature = "image-0_25",
    feature = "bytes-1"
))]
#[test]
fn owners_of_every_crate_become_tensors_with_one_allocation() {
    use nalgebra::DMatrix;
    let owners = (
        DMatrix::<f32>::zeros(3, 4),
        faer::Mat::<f32>::zeros(3, 4),
        image::RgbImage::new(3, 4),
        bytes::BytesMut::zeroed(5),
    );
    let ((), counts) = counted(|| {
        let matrix = Tensor::from(owners.0);
        assert!(matrix.view_as::<nalgebra::DMatrixView<f32>>().is_ok());
        let mat = Tensor::from(owners.1);
        assert!(mat.view_as::<faer::MatRef<f32>>().is_ok());
        let image = Tensor::from(owners.2);
        assert!(image.view_as::<image::ImageBuffer<image::Rgb<u8>, &[u8]>>().is_ok());
        let bytes = Tensor::from(owners.3).into_slice_mut::<u8>().expect("exclusive");
        assert_eq!(bytes.len(), 5);
    });
    assert_eq!(counts, (4, 8), "the headers, and each owner's own elements");
}

#[test]
fn a_tensor_of_any_ndim_is_borrowed_without_an_allocation() {
    let tensor = Tensor::builder(vec![1_u8]).shape([1; 12]).build().expect("one element");
    let (ndim, counts) = counted(|| tensor.as_tensor_ref().ndim());
    assert_eq!((ndim, counts), (12, NONE));
}

#[test]
fn what_keeps_a_shared_tensor_has_its_header() {
    let shared = Tensor::from(vec![1_u8, 2, 3]).into_frozen();
    let (keeper, counts) = counted(|| dlbridge::ffi::into_keeper(shared.clone().into()));
    assert_eq!(counts, NONE);
    drop(shared);
    // SAFETY: made above, and released once.
    let ((), counts) = counted(|| unsafe { dlbridge::ffi::release_raw(keeper) });
    assert_eq!(counts, (0, 2), "the header, and the vector's elements");
}

#[test]
fn a_shared_tensor_is_lent_by_its_header_and_allocates_for_other_consumers() {
    let shared = Tensor::from(vec![1_u8, 2, 3]).into_shared();
    let export = || Tensor::from(shared.clone()).into_raw();
    let (lent, counts) = counted(export);
    assert_eq!(counts, NONE);
    let (other, counts) = counted(export);
    assert_eq!(counts, (1, 0));
    assert_eq!(counted(|| delete(lent)).1, NONE);
    assert_eq!(counted(|| delete(other)).1, (0, 1));
    assert_eq!(counted(|| delete(export())).1, NONE);
}

#[test]
fn an_owner_becomes_a_tensor_with_one_allocation() {
    let vector = vec![1_u8, 2, 3];
    let (tensor, counts) = counted(|| Tensor::from(vector));
    assert_eq!(counts, (1, 0));
    let (vector, counts) = counted(|| tensor.into_owner::<Vec<u8>>().expect("a vector"));
    assert_eq!(counts, (0, 1));
    let (tensor, counts) = counted(|| Tensor::builder(vector).shape([3, 1]).build::<u8>());
    assert_eq!(counts, (1, 0));
    assert_eq!(counted(|| drop(tensor)).1, (0, 2));
    assert_eq!(counted(|| drop(Tensor::scalar(1.0))).1, (1, 1));
    assert_eq!(counted(|| drop(Tensor::from([1.0; 100]))).1, (1, 1));
    assert_eq!(counted(|| drop(Tensor::from(&[1.0; 100][..]))).1, (1, 1));
}

#[test]
fn elements_of_dlbridges_own_share_the_allocation_of_their_header() {
    let zeros = |shape: &[i64]| Tensor::zeros(DType::F32, shape).expect("small");
    assert_eq!(counted(|| drop(zeros(&[8]))).1, (1, 1));
    assert_eq!(counted(|| drop(zeros(&[2; 4]))).1, (1, 1));
    assert_eq!(counted(|| drop(zeros(&[2; 5]))).1, (2, 2), "room for four axes");
    assert_eq!(counted(|| drop(zeros(&[0]))).1, (1, 1), "the header");
    let tensor = zeros(&[2, 3]);
    let double = || tensor.view::<f32>()?.map_to_tensor(|x| 2.0 * x + 1.0);
    let (doubled, counts) = counted(|| double().expect("small"));
    assert_eq!(counts, (1, 0));
    assert_eq!(doubled.as_slice::<f32>().expect("exclusive"), [1.0; 6]);
    let (managed, counts) = counted(|| doubled.into_raw());
    assert_eq!(counts, NONE);
    assert_eq!(counted(|| delete(managed)).1, (0, 1));
}

#[test]
fn a_part_that_owns_takes_one_allocation_however_many_parts_it_went_through() {
    let tensor = Tensor::from(vec![1, 2, 3, 4]);
    let (part, counts) = counted(|| tensor.slice(0, 1..).expect("inside"));
    assert_eq!(counts, (1, 0));
    let (part, counts) = counted(|| part.flip(0).and_then(|part| part.slice(0, 1..)));
    assert_eq!(counts, (2, 2), "the parts in between are freed");
    let shared = part.expect("inside").into_shared();
    let (first, counts) = counted(|| shared.slice(0, ..1).expect("inside"));
    assert_eq!(counts, (1, 0));
    let (second, counts) = counted(|| first.select(0, 0).expect("inside"));
    assert_eq!(counts, (1, 0));
    assert_eq!(counted(|| drop(first)).1, (0, 1), "the part of the part keeps the whole alone");
    assert_eq!(second.view::<i32>().expect("i32").to_vec(), [3]);
    drop(shared);
    assert_eq!(counted(|| drop(second)).1, (0, 5), "two parts, two headers, the vector");
}

#[test]
fn a_part_that_borrows_allocates_nothing() {
    let tensor = Tensor::from(vec![1, 2, 3, 4]);
    let ((), counts) = counted(|| {
        let view = tensor.view::<i32>().expect("i32");
        let part = view.reshape([2, 2]).map(|part| part.transpose()).expect("four");
        assert_eq!(part.rows().map(|row| row.iter().sum::<i32>()).max(), Some(6));
        let pairs = view.zip(&view).expect("one shape");
        assert_eq!(pairs.map(|(x, y)| x * y).sum::<i32>(), 30);
        assert_eq!(view.windows(0, 2).expect("an axis").filter(|part| part.len() == 2).count(), 3);
    });
    assert_eq!(counts, NONE);
}

#[test]
fn giving_an_export_away_allocates_nothing() {
    let tensor = Tensor::from(vec![1_u8]);
    let (managed, counts) = counted(|| tensor.into_raw());
    assert_eq!(counts, NONE);
    let (tensor, counts) = counted(|| take_back(managed));
    assert_eq!(counts, NONE);
    let (managed, counts) = counted(|| tensor.into_raw());
    assert_eq!(counts, NONE);
    assert_eq!(counted(|| delete(managed)).1, (0, 2));
    let tensor = Tensor::from([1_u8]);
    let (managed, counts) = counted(|| tensor.into_raw_legacy().expect("writable"));
    assert_eq!(counts, NONE);
    assert_eq!(counted(|| delete_legacy(managed)).1, (0, 1));
}

#[test]
fn importing_a_descriptor_with_strides_allocates_nothing() {
    let managed = Foreign::new(&[2, 3], &[1_i32, 2, 3, 4, 5, 6]).into_versioned();
    let (tensor, counts) = counted(|| take_back(managed));
    assert_eq!(counts, NONE);
    let (again, counts) = counted(|| tensor.into_raw());
    assert_eq!((again, counts), (managed, NONE));
    delete(again);
}

#[test]
fn importing_a_descriptor_without_strides_allocates_a_header_with_them() {
    let managed = Foreign::new(&[2, 3], &[1, 2, 3, 4, 5, 6]).null_strides().into_versioned();
    let (tensor, counts) = counted(|| take_back(managed));
    assert_eq!(counts, (1, 0));
    let (managed, counts) = counted(|| tensor.into_raw());
    assert_eq!(counts, NONE, "which is exported");
    delete(managed);
}

#[test]
fn whatever_becomes_of_a_descriptor_nothing_stays() {
    let make = || Foreign::new(&[2, 3], &[1_i32, 2, 3, 4, 5, 6]);
    let makers: [fn(Foreign) -> Foreign; 4] = [
        |foreign| foreign,
        |foreign| foreign.null_strides(),
        |foreign| foreign.null_strides().ndim(-1),
        |foreign| foreign.null_strides().data(std::ptr::null_mut()),
    ];
    let ends: [fn(Tensor); 7] = [
        drop,
        |tensor| drop(tensor.into_shared().clone()),
        |tensor| drop(tensor.into_shared().into_inner()),
        |tensor| delete(tensor.into_raw()),
        |tensor| delete_legacy(tensor.into_raw_legacy().expect("writable")),
        |tensor| drop(tensor.into_frozen().into_inner()),
        |tensor| drop(Tensor::from(tensor.into_shared()).into_owner::<Vec<i32>>()),
    ];
    for (i, odd) in makers.iter().enumerate() {
        for (j, end) in ends.iter().enumerate() {
            for through in [import, import_legacy] {
                let (_, (allocated, freed)) = counted(|| through(odd(make())).map(end));
                assert_eq!(allocated, freed, "descriptor {i}, end {j}");
            }
        }
    }
}

#[test]
fn a_refused_descriptor_allocates_nothing_that_stays() {
    let managed = Foreign::new(&[2, -3], &[1]).null_strides().into_versioned();
    // SAFETY: owned by the test.
    let import = || drop(unsafe { Tensor::from_raw(managed) }.expect_err("refused"));
    let ((), (allocated, freed)) = counted(import);
    assert_eq!(allocated, freed);
    delete(managed);
}

#[test]
fn borrowing_allocates_nothing_up_to_8_axes() {
    let tensor = Tensor::builder(vec![1_u8]).shape([1; 8]).build::<u8>().expect("it fits");
    let (sum, counts) = counted(|| {
        let borrowed = tensor.as_tensor_ref();
        borrowed.with_raw(|descriptor| descriptor.addr().min(1)) + borrowed.len()
    });
    assert_eq!((sum, counts), (2, NONE));
    let mut values = [1.0, 2.0];
    let ((), counts) = counted(|| {
        assert_eq!(TensorRef::from(&values[..]).len(), 2);
        let mut tensor = TensorMut::from(&mut values[..]);
        tensor.with_raw(|_| ());
        tensor.as_slice_mut::<f64>().expect("exclusive")[0] = 3.0;
    });
    assert_eq!(counts, NONE);
    let mut foreign = Foreign::new(&[1; 8], &[1_u8]);
    foreign.with_raw(|descriptor| {
        // SAFETY: alive until this closure ends.
        let (tensor, counts) = counted(|| unsafe { TensorRef::from_raw(descriptor) });
        assert_eq!((tensor.expect("legal").len(), counts), (1, NONE));
    });
}

#[cfg(feature = "ndarray-0_17")]
#[test]
fn borrowing_an_array_allocates_nothing_up_to_8_axes() {
    for ndim in 0..=9 {
        let mut array = ndarray::ArrayD::<f32>::ones(vec![1; ndim]);
        let (len, counts) = counted(|| {
            TensorMut::from(&mut array).view_mut::<f32>().expect("exclusive").fill(2.0);
            TensorRef::from(&array).len()
        });
        assert_eq!(len, 1);
        assert_eq!(counts == NONE, ndim <= 8, "ndim {ndim}: {counts:?}");
    }
}

#[test]
fn reading_allocates_nothing_up_to_8_axes() {
    let strides = [-1, 2, 4, 8, 16, 32, 64, 128];
    let build = || Tensor::builder(vec![1_u64; 256]).shape([2; 8]).strides(strides).offset(1);
    let mut tensor = build().build::<u64>().expect("it fits");
    let mut target = vec![0; 256];
    let ((), counts) = counted(|| {
        let view = tensor.view::<u64>().expect("u64");
        assert_eq!(view.iter().sum::<u64>(), 256);
        assert_eq!(view.iter().filter(|&value| value == 1).count(), 256);
        assert_eq!(view.into_iter().next(), Some(1));
        assert_eq!(view.get([1; 8]), Some(1));
        view.copy_to_slice(&mut target).expect("as long");
        assert!(tensor.as_slice::<u64>().is_err(), "an error of numbers");
        let mut view = tensor.view_mut::<u64>().expect("exclusive");
        view.map_inplace(|value| value + 1);
        view.copy_from_slice(&target).expect("as long");
        view.set([0; 8], 7).expect("inside");
    });
    assert_eq!(counts, NONE);
    let (copy, counts) = counted(|| tensor.view::<u64>().expect("u64").to_vec());
    assert_eq!((copy.len(), counts), (256, (1, 0)));
    let (copy, counts) = counted(|| tensor.to_contiguous().expect("host"));
    assert_eq!((copy.len(), counts), (256, (2, 0)), "elements and header");
}

#[test]
fn a_clone_of_our_own_memory_is_no_allocation() {
    let writable = (Tensor::into_shared as fn(Tensor) -> dlbridge::ArcTensor, 1);
    for (share, headers) in [writable, (Tensor::into_frozen, 0)] {
        let tensor = Tensor::from([1_u8; 8]);
        let (tensor, counts) = counted(|| share(tensor));
        assert_eq!(counts, (headers, 0), "one that only Rust's handles share, if Python may write");
        let (clone, counts) = counted(|| Tensor::from(tensor.clone()));
        assert_eq!(counts, (0, 0));
        let (managed, counts) = counted(|| clone.into_raw());
        assert_eq!(counts, NONE, "lent by the header");
        assert_eq!(counted(|| drop(tensor)).1, (0, headers), "the consumer is left");
        assert_eq!(counted(|| delete(managed)).1, (0, 1));
    }
}

#[test]
fn headers_are_freed_with_their_own_layout_whatever_the_owner_and_ndim() {
    #[derive(Clone, Copy)]
    #[repr(align(256))]
    struct Aligned<const N: usize>([u8; N]);
    impl<const N: usize> AsMut<[u8]> for Aligned<N> {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }
    fn passes<O: AsMut<[u8]> + Send + 'static>(make: impl Fn() -> O) {
        for ndim in (0..=64).step_by(7) {
            let build = || Tensor::builder(make()).shape(&vec![0; ndim][..]).build::<u8>();
            counted(|| drop(build()));
            let _ = counted(|| build().map(|tensor| delete(tensor.into_raw())));
            let _ = counted(|| build().map(|tensor| tensor.into_raw_legacy().map(delete_legacy)));
            let _ = counted(|| build().map(|tensor| drop(tensor.into_owner::<O>())));
            counted(|| drop(Tensor::builder(make()).shape(&vec![9; ndim][..]).build::<u8>()));
        }
    }
    passes(|| Aligned([0; 0]));
    passes(|| Aligned([0; 1]));
    passes(|| Aligned([0; 300]));
    passes(|| [0_u8; 3]);
    passes(|| vec![0_u8; 3]);
}

#[test]
fn a_header_is_freed_even_if_its_owner_panics() {
    let owner = CountingOwner::new([1_u8]).panic_on_drop();
    let drops = owner.drops();
    let tensor = Tensor::builder(owner).build::<u8>().expect("it fits");
    let header = tensor.into_raw();
    let (_, (allocated, freed)) = counted(|| delete(header));
    drops.expect(1, "deleted");
    assert_eq!(freed, allocated + 2, "the elements and the header, beside the panic's own");
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let size = 1 << 60;
    let (tensor, counts) = counted(|| Tensor::zeros(DType::U8, [size]));
    assert_eq!(tensor.map(drop), Err(Error::OutOfMemory { size: size as usize }));
    assert_eq!(counts, NONE);
    // what another language describes may be small, and huge once it is copied
    let broadcast = Foreign::new(&[size], &[7_u8]).strides(&[0]);
    let tensor = import(broadcast).expect("one byte, often");
    let (copy, counts) = counted(|| tensor.to_contiguous());
    assert_eq!(copy.map(drop), Err(Error::OutOfMemory { size: size as usize }));
    assert_eq!(counts, NONE);
}

#[test]
fn the_ledger_sees_what_it_should() {
    let (boxed, counts) = counted(|| Box::new(5_u32));
    assert_eq!(counts, (1, 0));
    assert_eq!(counted(|| drop(boxed)).1, (0, 1));
    let foreign = import(Foreign::new(&[1], &[1_u8])).expect("legal");
    let (_, (allocated, freed)) = counted(|| drop(foreign));
    assert!(allocated == 0 && freed > 0);
}

mod ledger {
    //! An allocator that records what a thread allocates and frees.

    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    /// Where a block starts, and its layout's size and alignment.
    type Block = (usize, usize, usize);

    const ROOM: usize = 64;
    /// More than any machine has: refused, as the system would.
    const TOO_MUCH: usize = 1 << 50;

    thread_local! {
        static LEDGER: Cell<Option<Ledger>> = const { Cell::new(None) };
    }

    /// What one thread allocated since it began to look, without allocating itself.
    #[derive(Clone, Copy)]
    struct Ledger {
        allocated: usize,
        freed: usize,
        /// Frees with another layout than the block was allocated with.
        wrong: usize,
        live: [Block; ROOM],
    }

    impl Ledger {
        const EMPTY: Self = Self { allocated: 0, freed: 0, wrong: 0, live: [(0, 0, 0); ROOM] };

        fn allocate(&mut self, block: Block) {
            self.allocated += 1;
            if let Some(place) = self.live.iter_mut().find(|place| place.0 == 0) {
                *place = block;
            }
        }

        fn free(&mut self, block: Block) {
            self.freed += 1;
            if let Some(place) = self.live.iter_mut().find(|place| place.0 == block.0) {
                self.wrong += usize::from(*place != block);
                *place = (0, 0, 0);
            }
        }
    }

    struct Recorder;

    fn record(at: *mut u8, layout: Layout, act: fn(&mut Ledger, Block)) {
        // A thread that is ending has no ledger any more.
        let _ = LEDGER.try_with(|cell| {
            if let Some(mut ledger) = cell.take() {
                act(&mut ledger, (at.addr(), layout.size(), layout.align()));
                cell.set(Some(ledger));
            }
        });
    }

    // SAFETY: everything is the system allocator's; the ledger is written beside it.
    unsafe impl GlobalAlloc for Recorder {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            if layout.size() > TOO_MUCH {
                return std::ptr::null_mut();
            }
            // SAFETY: the caller's duty.
            let block = unsafe { System.alloc(layout) };
            record(block, layout, Ledger::allocate);
            block
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            record(block, layout, Ledger::free);
            // SAFETY: the caller's duty.
            unsafe { System.dealloc(block, layout) };
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            if layout.size() > TOO_MUCH {
                return std::ptr::null_mut();
            }
            // SAFETY: the caller's duty.
            let block = unsafe { System.alloc_zeroed(layout) };
            record(block, layout, Ledger::allocate);
            block
        }
    }

    #[global_allocator]
    static RECORDER: Recorder = Recorder;

    /// Runs something, and gives how often it allocated and freed.
    #[track_caller]
    pub(crate) fn counted<R>(run: impl FnOnce() -> R) -> (R, (usize, usize)) {
        LEDGER.set(Some(Ledger::EMPTY));
        let result = run();
        let ledger = LEDGER.take().expect("set above");
        assert_eq!(
            ledger.wrong, 0,
            "a block was freed with another layout than it was allocated with"
        );
        (result, (ledger.allocated, ledger.freed))
    }
}
