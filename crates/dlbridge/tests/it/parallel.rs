//! Loops on the threads of rayon, against the serial methods, for odd strides.
//! Which closures do not compile is in the docs of the methods.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::{exact, layouts, overlaps};
use dlbridge::{Error, Parts, Tensor, View};
use proptest::prelude::*;
use rayon::prelude::*;

fn view(tensor: &Tensor) -> View<'_, i64> {
    tensor.view().expect("i64")
}

fn values(tensor: &Tensor) -> Vec<i64> {
    view(tensor).to_vec()
}

proptest! {
    #[test]
    fn elements_are_those_of_a_serial_walk((shape, strides) in layouts(), cut in 0..9_usize) {
        let tensor = exact(&shape, &strides);
        let view = view(&tensor);
        let wanted = view.to_vec();
        prop_assert_eq!(view.par_iter().len(), wanted.len());
        prop_assert_eq!(&view.par_iter().collect::<Vec<_>>(), &wanted);
        prop_assert_eq!(view.par_iter().sum::<i64>(), wanted.iter().sum::<i64>());
        // The adaptors of rayon split anywhere, and take from both ends.
        let rest: Vec<_> = view.into_par_iter().skip(cut).rev().collect();
        prop_assert_eq!(rest, wanted.iter().copied().skip(cut).rev().collect::<Vec<_>>());
        for min in [1, 2, 3] {
            let pieces: Vec<_> = view.par_iter().with_max_len(min).map(|x| x + 1).collect();
            prop_assert_eq!(pieces, wanted.iter().map(|x| x + 1).collect::<Vec<_>>());
        }
        let flipped = (0..shape.len()).try_fold(view.transpose().transpose(), |part, axis| part.flip(axis));
        let flipped = flipped.expect("axes");
        let pairs: Vec<_> = view.par_iter().zip(&flipped.view()).collect();
        prop_assert_eq!(pairs, view.zip(&flipped.view()).expect("one shape").collect::<Vec<_>>());
    }

    #[test]
    fn new_tensors_are_those_of_a_serial_map((shape, strides) in layouts()) {
        let tensor = exact(&shape, &strides);
        let view = view(&tensor);
        let found = view.par_map_to_tensor(|x| x as f64 / 2.0).expect("memory");
        let wanted = view.map_to_tensor(|x| x as f64 / 2.0).expect("memory");
        prop_assert_eq!(found.shape(), &shape[..]);
        prop_assert_eq!(found.as_slice::<f64>(), wanted.as_slice::<f64>());
        prop_assert_eq!(found.data_ptr().addr() % 64, 0);
        let transposed = view.transpose();
        let back = transposed.transpose();
        let found = view.par_zip_to_tensor(&back.view(), |x, y| 10 * x + y).expect("one shape");
        prop_assert_eq!(values(&found), view.map(|x| 11 * x));
    }

    #[test]
    fn rows_are_those_of_a_serial_walk((shape, strides) in layouts()) {
        let tensor = exact(&shape, &strides);
        let view = view(&tensor);
        let wanted: Vec<_> = view.rows().map(|row| row.to_vec()).collect();
        prop_assert_eq!(view.par_rows().len(), wanted.len());
        let found: Vec<_> = view.par_rows().map(|row| row.to_vec()).collect();
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn elements_are_written_in_place_unless_they_overlap((shape, strides) in layouts()) {
        let [mut all, mut by_rows, mut serial] = [(); 3].map(|()| exact(&shape, &strides));
        let [mut all_view, mut rows_view, mut serial_view] =
            [&mut all, &mut by_rows, &mut serial].map(|it| it.view_mut::<i64>().expect("exclusive"));
        let written = all_view.par_map_inplace(|x| 3 * x + 1);
        let rows = rows_view.par_rows_mut().map(|rows| {
            rows.for_each(|mut row| row.map_inplace(|x| 3 * x + 1));
        });
        prop_assert_eq!(&written, &rows);
        if overlaps(&shape, &strides) {
            prop_assert_eq!(&written, &Err(Error::Overlapping));
        }
        if written.is_ok() {
            serial_view.map_inplace(|x| 3 * x + 1);
        }
        let [all, by_rows, serial] =
            [all, by_rows, serial].map(|it| it.into_owner::<Vec<i64>>().expect("a vector"));
        prop_assert_eq!(all, &serial[..]);
        prop_assert_eq!(by_rows, serial);
    }
}

#[test]
fn contiguous_elements_and_transposed_ones_are_written_in_place() {
    let mut tensor = Tensor::from((0..10_000_i64).collect::<Vec<_>>());
    tensor.view_mut::<i64>().expect("exclusive").par_map_inplace(|x| -x).expect("no overlap");
    let mut tensor = tensor.reshape([100, 100]).expect("as many").transpose();
    tensor.view_mut::<i64>().expect("exclusive").par_map_inplace(|x| x - 1).expect("no overlap");
    let wanted: Vec<_> = (0..10_000).map(|x| -x - 1).collect();
    assert_eq!(values(&tensor.transpose()), wanted);
}

#[test]
fn every_pair_of_rows_is_visited_with_its_number() {
    let source = Tensor::from((0..300_i64).collect::<Vec<_>>()).reshape([100, 3]).expect("300");
    let mut sums = Tensor::zeros(dlbridge::DType::I64, [100, 1]).expect("memory");
    let mut target = sums.view_mut::<i64>().expect("exclusive");
    let rows = target.par_rows_mut().expect("no overlap").zip(view(&source).par_rows());
    rows.enumerate().for_each(|(number, (mut sum, row))| {
        sum.fill(number as i64 + row.iter().sum::<i64>());
    });
    assert_eq!(values(&sums), (0..100).map(|i| i + 9 * i + 3).collect::<Vec<_>>());
}

#[test]
fn broadcast_and_shared_memory_is_read() {
    let tensor = Tensor::from([1_i64, 2]).into_shared();
    let view = view(&tensor);
    let repeated = view.broadcast_to([1000, 2]).expect("repeated");
    assert_eq!(repeated.view().par_iter().sum::<i64>(), 3000);
    let one = Tensor::scalar(7_i64);
    assert_eq!(
        values(&one.view::<i64>().expect("i64").par_map_to_tensor(|x| x).expect("one")),
        [7]
    );
    let error = view.par_zip_to_tensor(&one.view::<i64>().expect("i64"), |x, _| x);
    assert!(error.is_err(), "other shapes");
}

#[test]
fn a_panic_of_a_function_reaches_the_caller_and_frees_the_memory() {
    let mut tensor = Tensor::from(vec![1_i64; 1000]);
    let broken = |x: i64| -> i64 { panic!("broken by {x}") };
    let view = view(&tensor);
    assert!(catch_unwind(AssertUnwindSafe(|| view.par_map_to_tensor(broken))).is_err());
    let mut view = tensor.view_mut::<i64>().expect("exclusive");
    assert!(catch_unwind(AssertUnwindSafe(|| view.par_map_inplace(broken))).is_err());
    assert_eq!(values(&tensor), [1; 1000]);
}
