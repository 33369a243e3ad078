//! Tensors without axes: one element.
//! What the gate lets through of them is in `odd_but_legal.rs`.

use crate::common::{import, import_legacy, other_length, take_back};
use dlbridge::{DType, Error, Flags, Tensor};
use dlbridge_testing::Foreign;
use dlbridge_testing::conformance::{self, Expected};

#[test]
fn a_scalar_is_one_element_without_axes() {
    let mut tensor = Tensor::scalar(2.5_f64);
    assert_eq!((tensor.shape(), tensor.strides()), (&[][..], &[][..]));
    assert_eq!((tensor.rank(), tensor.len(), tensor.nbytes()), (0, 1, 8));
    assert!(tensor.is_contiguous() && !tensor.is_empty());
    let view = tensor.view::<f64>().expect("its own type");
    assert_eq!((view.item(), view.get(&[])), (Ok(2.5), Some(2.5)));
    assert_eq!((view.get(&[0]), view.to_vec()), (None, vec![2.5]));
    assert_eq!(view.iter().fold(0.0, |sum, value| sum + value), 2.5);
    assert_eq!(tensor.as_slice::<f64>(), Ok(&[2.5][..]));
    tensor.view_mut::<f64>().expect("exclusive").set(&[], 3.5).expect("inside");
    tensor.as_slice_mut::<f64>().expect("exclusive")[0] *= 2.0;
    assert_eq!(tensor.view::<f64>().expect("its own type").item(), Ok(7.0));
}

#[test]
fn a_scalar_stays_where_it_is_when_the_tensor_moves() {
    let tensor = Tensor::scalar(1_u128);
    let data = tensor.data_ptr();
    let tensor = Box::new(tensor);
    assert_eq!(tensor.data_ptr(), data);
    let managed = tensor.into_raw();
    assert_eq!(take_back(managed).data_ptr(), data);
}

#[test]
fn an_item_is_the_only_element_whatever_the_rank() {
    let item = |shape: &[i64]| {
        let tensor = Tensor::builder(vec![4_u8; 8]).shape(shape).build::<u8>().expect("it fits");
        tensor.view::<u8>().expect("its own type").item()
    };
    assert_eq!((item(&[]), item(&[1]), item(&[1, 1, 1])), (Ok(4), Ok(4), Ok(4)));
    assert_eq!(item(&[2]), Err(other_length(1, 2)));
    assert_eq!(item(&[0]), Err(other_length(1, 0)));
}

#[test]
fn a_foreign_scalar_may_lie_at_an_offset() {
    let make = || Foreign::new(&[], &[1_i32, 2, 3]).byte_offset(8).null_shape().null_strides();
    for tensor in [import(make()), import_legacy(make())] {
        let tensor = tensor.expect("legal");
        assert_eq!(tensor.view::<i32>().expect("host").item(), Ok(3));
        let again = take_back(tensor.into_raw());
        assert_eq!(again.view::<i32>().expect("host").item(), Ok(3));
    }
}

#[test]
fn a_builder_makes_rank_0_at_any_offset() {
    for offset in 0..3 {
        let builder = Tensor::builder(vec![10, 11, 12]).shape(&[]).offset(offset);
        let tensor = builder.build::<i32>().expect("it fits");
        assert_eq!(tensor.view::<i32>().expect("its own type").item(), Ok(10 + offset as i32));
    }
    let error = Tensor::builder(vec![10, 11, 12]).shape(&[]).offset(3).build::<i32>();
    assert_eq!(error.map(drop), Err(Error::OutOfBounds { low: 12, high: 16, size: 12 }));
    let error = Tensor::builder(Vec::new()).shape(&[]).build::<i32>().map(drop);
    assert_eq!(error, Err(Error::OutOfBounds { low: 0, high: 4, size: 0 }));
}

#[test]
fn zeros_may_have_rank_0() {
    let tensor = Tensor::zeros(DType::BOOL, &[]).expect("fits");
    assert_eq!(tensor.view::<bool>().expect("bool").item(), Ok(false));
    let copy = tensor.to_contiguous().expect("host");
    assert_eq!((copy.rank(), copy.len(), copy.flags()), (0, 1, Flags::IS_COPIED));
}

#[test]
fn it_conforms() {
    conformance::owner(|| (Tensor::scalar(7_i8), Expected::new(&[], &[7_i8])));
    conformance::owner(|| (Tensor::scalar(true), Expected::new(&[], &[true])));
    conformance::owner(|| {
        let values = vec![1.0_f32, 2.0];
        let expected = Expected::new(&[], &[2.0_f32]).at(&raw const values[1]);
        let builder = Tensor::builder(values).shape(&[]).offset(1);
        (builder.build::<f32>().expect("it fits"), expected)
    });
}
