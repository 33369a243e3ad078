//! Walks over views by rows, axes, pieces, pairs and indices, against what `to_vec` and `get` say.
//! Single parts are those of the fuzz target `layout`.

use crate::common::{exact, indices, layouts, other_ndim};
use dlbridge::{DType, Error, ErrorKind, Parts, Tensor, View, ViewMut, layout, match_dtype};
use proptest::prelude::*;

fn view(tensor: &Tensor) -> View<'_, i64> {
    tensor.view().expect("i64")
}

proptest! {
    #[test]
    fn rows_are_the_elements_along_the_last_axis((shape, strides) in layouts()) {
        let tensor = exact(&shape, &strides);
        let view = view(&tensor);
        let (extent, outer) = match shape.split_last() {
            Some((&last, outer)) => (last, outer.iter().product::<i64>()),
            None => (1, 1),
        };
        let mut rows = view.rows();
        let mut all = Vec::new();
        for left in (0..outer as usize).rev() {
            let row = rows.next().expect("a row for each index");
            prop_assert_eq!(rows.len(), left);
            prop_assert_eq!(row.shape(), [extent]);
            let by_number = view.row(outer as usize - 1 - left).expect("a row");
            prop_assert_eq!(by_number.shape(), [extent]);
            prop_assert_eq!(by_number.to_vec(), row.to_vec());
            prop_assert!(row.iter().eq((0..extent as usize).map(|i| row.get([i]).expect("inside"))));
            all.extend(row.to_vec());
        }
        prop_assert!(rows.next().is_none() && rows.next().is_none());
        let kind = view.row(outer as usize).map(drop).map_err(|error| error.kind());
        prop_assert_eq!(kind, Err(ErrorKind::Index));
        prop_assert_eq!(all, view.to_vec());
        let columns: Vec<i64> = view.transpose().rows().flat_map(|row| row.to_vec()).collect();
        prop_assert_eq!(columns, view.transpose().to_vec());
    }

    #[test]
    fn rows_are_written_one_after_the_other((shape, strides) in layouts()) {
        let (mut tensor, mut other) = (exact(&shape, &strides), exact(&shape, &strides));
        let mut number = 0;
        let mut count = || {
            number += 1;
            number
        };
        tensor.view_mut::<i64>().expect("exclusive").for_each_row(|mut row| row.map_inplace(|_| count()));
        let numbers: Vec<i64> = (1..).take(other.len()).collect();
        other.view_mut::<i64>().expect("exclusive").copy_from_slice(&numbers).expect("as many");
        let [found, wanted] = [tensor, other].map(|tensor| tensor.into_owner::<Vec<i64>>().expect("a vector"));
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn rows_that_live_together_have_no_element_in_common((shape, strides) in layouts()) {
        let (mut tensor, mut other) = (exact(&shape, &strides), exact(&shape, &strides));
        let may_overlap = layout::may_overlap(tensor.shape(), tensor.strides());
        match tensor.view_mut::<i64>().expect("exclusive").rows_mut() {
            Ok(rows) => {
                prop_assert!(!may_overlap);
                let mut rows: Vec<_> = rows.collect();
                for (number, row) in rows.iter_mut().enumerate().rev() {
                    row.fill(number as i64);
                }
            }
            Err(error) => {
                prop_assert!(may_overlap && error == Error::Overlapping);
                return Ok(());
            }
        }
        let mut number = 0..;
        let fill = |mut row: ViewMut<'_, i64>| row.fill(number.next().expect("endless"));
        other.view_mut::<i64>().expect("exclusive").for_each_row(fill);
        let [found, wanted] = [tensor, other].map(|tensor| tensor.into_owner::<Vec<i64>>().expect("a vector"));
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn an_axis_is_walked_by_index_piece_and_window(
        (shape, strides) in layouts(),
        axis in 0..4_usize,
        size in 1..5_usize,
    ) {
        let tensor = exact(&shape, &strides);
        let view = view(&tensor);
        let Some(&extent) = shape.get(axis) else {
            let error = view.axis_iter(axis).err();
            prop_assert_eq!(error.as_ref().map(Error::kind), Some(ErrorKind::Index));
            prop_assert_eq!(&view.chunks(axis, size).err(), &error);
            prop_assert_eq!(&view.windows(axis, size).err(), &error);
            return Ok(());
        };
        let extent = extent as usize;
        let slice = |range: std::ops::Range<usize>| view.slice(axis, range).expect("inside").to_vec();
        let found: Vec<_> = view.axis_iter(axis).expect("an axis").map(|part| part.to_vec()).collect();
        let wanted: Vec<_> =
            (0..extent).map(|i| view.select(axis, i).expect("inside").to_vec()).collect();
        prop_assert_eq!(&found, &wanted);
        if axis == 0 {
            let outer: Vec<_> = view.outer_iter().expect("an axis").map(|part| part.to_vec()).collect();
            prop_assert_eq!(outer, wanted);
            let mut parts = view.outer_iter().expect("an axis");
            prop_assert!(parts.all(|part| part.shape() == &shape[1..]));
        }
        let found: Vec<_> = view.chunks(axis, size).expect("a size").map(|part| part.to_vec()).collect();
        let starts = (0..extent).step_by(size);
        let wanted: Vec<_> = starts.map(|i| slice(i..extent.min(i + size))).collect();
        prop_assert_eq!(found, wanted);
        let found: Vec<_> = view.windows(axis, size).expect("a size").rev().map(|part| part.to_vec()).collect();
        let ends = (size..=extent).rev();
        let wanted: Vec<_> = ends.map(|end| slice(end - size..end)).collect();
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn pairs_are_those_of_two_walks((shape, strides) in layouts(), taken in 0..4_usize, turned in any::<bool>()) {
        let tensor = exact(&shape, &strides);
        let one = view(&tensor);
        let reversed = (0..shape.len()).try_fold(one.transpose().transpose(), |part, axis| part.flip(axis));
        let reversed = if turned { reversed.expect("axes") } else { one.transpose().transpose() };
        let wanted: Vec<_> = one.iter().zip(reversed.iter()).collect();
        let other = reversed.view();
        let pairs = one.zip(&other).expect("one shape");
        prop_assert_eq!(pairs.len(), wanted.len());
        let mut folded = Vec::new();
        pairs.clone().for_each(|pair| folded.push(pair));
        prop_assert_eq!(&folded, &wanted);
        let mut rest = pairs;
        let front: Vec<_> = rest.by_ref().take(taken).collect();
        prop_assert_eq!(&front[..], &wanted[..taken.min(wanted.len())]);
        let mut folded = Vec::new();
        rest.for_each(|pair| folded.push(pair));
        prop_assert_eq!(&folded[..], &wanted[taken.min(wanted.len())..]);
    }

    #[test]
    fn indices_are_those_that_get_takes((shape, strides) in layouts()) {
        let tensor = exact(&shape, &strides);
        let view = view(&tensor);
        let wanted: Vec<_> = indices(&shape).into_iter().zip(view.to_vec()).collect();
        fn all<const N: usize>(view: &View<'_, i64>) -> Vec<(Vec<usize>, i64)> {
            let indexed = view.indexed::<N>().expect("the ndim");
            assert_eq!(indexed.len(), view.len());
            indexed.map(|(index, value)| (index.to_vec(), value)).collect()
        }
        let found = match shape.len() {
            0 => all::<0>(&view),
            1 => all::<1>(&view),
            2 => all::<2>(&view),
            3 => all::<3>(&view),
            _ => all::<4>(&view),
        };
        prop_assert_eq!(found, wanted);
        prop_assert_eq!(view.indexed::<5>().err(), Some(other_ndim(5, shape.len())));
    }
}

#[test]
fn views_of_different_shapes_have_no_pairs() {
    let tensor = Tensor::from([1_i64, 2, 3, 4]);
    let one = view(&tensor);
    let square = one.reshape([2, 2]).expect("four");
    let error = one.zip(&square.view()).expect_err("other shapes");
    assert_eq!(error.to_string(), "expected views of one shape, found [4] and [2, 2]");
    let empty = one.chunks(0, 0).expect_err("no size");
    assert_eq!(empty.to_string(), "expected pieces of one index or more on axis 0, found 0");
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "its sizes are of 64 bits")]
fn empty_tensors_have_rows_without_elements_or_none() {
    for (shape, rows) in
        [(&[3, 0][..], 3), (&[0, 3], 0), (&[0], 1), (&[2, 0, 3], 0), (&[2, 3, 0], 6)]
    {
        for stride in [0, 1, i64::MAX, i64::MIN] {
            let strides = vec![stride; shape.len()];
            let builder = Tensor::builder(Vec::<i64>::new()).shape(shape).strides(&strides);
            let tensor = builder.build::<i64>().expect("no elements");
            let found: Vec<_> = view(&tensor).rows().map(|row| row.len()).collect();
            assert_eq!(found, vec![0; rows], "{shape:?} {strides:?}");
        }
    }
    assert!(view(&Tensor::scalar(1_i64)).outer_iter().is_err());
    let huge = Tensor::builder(Vec::<i64>::new()).shape([i64::MAX, 0]).build::<i64>();
    assert_eq!(view(&huge.expect("no elements")).rows().len(), isize::MAX as usize);
}

#[test]
fn one_body_serves_several_types() -> Result<(), Error> {
    fn total(tensor: &Tensor) -> Result<f64, Error> {
        let all = match_dtype!(tensor.dtype(), T: f32 | f64 => {
            let view = tensor.view::<T>()?;
            view.iter().map(f64::from).sum::<f64>()
        })?;
        Ok(all)
    }
    assert_eq!(total(&Tensor::from([1.5_f32]))?, 1.5);
    assert_eq!(total(&Tensor::from([2.5_f64]))?, 2.5);
    let wanted = &[DType::F32, DType::F64];
    assert_eq!(
        total(&Tensor::from([1_u8])),
        Err(Error::DTypeNotIn { found: DType::U8, expected: wanted })
    );
    let name =
        |dtype| match_dtype!(dtype, T: i8 | u8 => std::any::type_name::<T>(), _ => "another");
    assert_eq!([DType::I8, DType::U8, DType::F32].map(name), ["i8", "u8", "another"]);
    Ok(())
}
