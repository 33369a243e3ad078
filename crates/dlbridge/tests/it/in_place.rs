//! Views that are written from other views, and their disjoint parts.

use dlbridge::{Error, Parts, Tensor};

/// 0 to 23 in four layouts of shape 4 x 6.
fn layouts() -> Vec<Tensor> {
    let numbers = || Tensor::from((0..24).collect::<Vec<i32>>());
    let with_gaps = || Tensor::from(vec![0; 96]).reshape(&[8, 12]).expect("as many");
    let mut gaps = with_gaps().step_by(0, 2).and_then(|part| part.step_by(1, -2)).expect("parts");
    gaps.view_mut::<i32>()
        .and_then(|mut view| view.copy_from_slice(&(0..24).collect::<Vec<_>>()))
        .expect("as many");
    let columns = numbers().reshape(&[6, 4]).expect("as many").transpose();
    vec![numbers().reshape(&[4, 6]).expect("as many"), columns, gaps]
}

fn values(tensor: &Tensor) -> Vec<i32> {
    tensor.view::<i32>().expect("int32").to_vec()
}

#[test]
fn every_layout_is_written_from_every_other_one() -> Result<(), Error> {
    for (at, mut target) in layouts().into_iter().enumerate() {
        for source in layouts() {
            let (before, added) = (values(&target), values(&source));
            let other = source.view::<i32>()?;
            target.view_mut::<i32>()?.zip_inplace(&other, |x, y| 100 * x + y)?;
            let expected: Vec<_> = before.iter().zip(&added).map(|(x, y)| 100 * x + y).collect();
            assert_eq!(values(&target), expected, "layout {at}");
            target.view_mut::<i32>()?.assign(&other)?;
            assert_eq!(values(&target), added);
        }
    }
    Ok(())
}

#[cfg(feature = "rayon")]
#[test]
fn many_threads_write_the_same_as_one() -> Result<(), Error> {
    for source in layouts() {
        let row = source.as_tensor_ref().select(0, 1)?;
        for other in [source.view::<i32>()?, row.view::<i32>()?] {
            for (mut serial, mut parallel) in layouts().into_iter().zip(layouts()) {
                serial.view_mut::<i32>()?.zip_inplace(&other, |x, y| 100 * x + y)?;
                parallel.view_mut::<i32>()?.par_zip_inplace(&other, |x, y| 100 * x + y)?;
                assert_eq!(values(&serial), values(&parallel));
            }
        }
    }
    Ok(())
}

#[test]
fn shapes_that_do_not_fit_are_refused() -> Result<(), Error> {
    let mut target = Tensor::from(vec![1; 6]).reshape(&[2, 3])?;
    let two = Tensor::from([7, 8]);
    for shape in [&[2][..], &[1, 2], &[2, 1, 1]] {
        let other = two.as_tensor_ref().reshape(shape)?;
        let error = target.view_mut::<i32>()?.assign(&other.view()?).unwrap_err();
        assert!(matches!(error, Error::Part { .. }), "{error}");
    }
    target.view_mut::<i32>()?.assign(&two.as_tensor_ref().reshape(&[2, 1])?.view()?)?;
    assert_eq!(values(&target), [7, 7, 7, 8, 8, 8]);
    target.view_mut::<i32>()?.assign(&Tensor::scalar(5).view()?)?;
    assert_eq!(values(&target), [5; 6]);
    let nothing = Tensor::from(Vec::<i32>::new()).reshape(&[0, 3])?;
    assert!(target.view_mut::<i32>()?.assign(&nothing.view()?).is_err());
    Ok(())
}

#[test]
fn chunks_are_all_elements_once() -> Result<(), Error> {
    for mut tensor in layouts() {
        let before = values(&tensor);
        for (axis, size, count) in [(0, 1, 4), (0, 3, 2), (1, 4, 2), (1, 6, 1), (1, usize::MAX, 1)]
        {
            let view = tensor.view_mut::<i32>()?;
            let chunks = view.into_chunks(axis, size)?;
            assert_eq!(chunks.len(), count);
            chunks.for_each(|mut chunk| {
                let one = Tensor::scalar(1);
                chunk
                    .zip_inplace(&one.view().expect("int32"), |x, y: i32| x + y)
                    .expect("a scalar");
            });
        }
        assert_eq!(values(&tensor), before.iter().map(|value| value + 5).collect::<Vec<_>>());
    }
    Ok(())
}

#[test]
fn chunks_of_nothing_and_of_what_overlaps() -> Result<(), Error> {
    let mut tensor = Tensor::from(vec![1, 2]);
    assert!(tensor.view_mut::<i32>()?.into_chunks(0, 0).is_err());
    assert!(tensor.view_mut::<i32>()?.into_chunks(1, 1).is_err());
    let mut empty = Tensor::from(Vec::<i32>::new());
    assert_eq!(empty.view_mut::<i32>()?.into_chunks(0, 2)?.count(), 0);
    // Lazily: there are 2^40 of them.
    let mut long = Tensor::from(Vec::<i32>::new()).reshape(&[1 << 40, 0])?;
    assert_eq!(long.view_mut::<i32>()?.into_chunks(0, 1)?.take(3).count(), 3);
    let windows = Tensor::builder(vec![1, 2, 3]).shape(&[2, 2]).strides(&[1, 1]);
    let mut windows = windows.build::<i32>()?;
    let error = windows.view_mut::<i32>()?.into_chunks(0, 1).unwrap_err();
    assert_eq!(error, Error::Overlapping);
    Ok(())
}
