//! Tensors without elements, from Rust and from elsewhere.
//! What the gate lets through of them is in `odd_but_legal.rs`.

use std::sync::Arc;

use dlbridge::{Access, DType, Error, Flags, Tensor, TensorMut, TensorRef};
use dlbridge_testing::Foreign;
use dlbridge_testing::conformance::{self, Expected};

use crate::common::{delete, delete_legacy, import, import_legacy, other_length, take_back};

fn empty() -> Vec<(&'static str, Tensor)> {
    let null = std::ptr::null_mut();
    let foreign = Foreign::new::<f32>(&[2, 0], &[]).data(null).class(Access::Exclusive);
    vec![
        ("vector", Tensor::from(Vec::<f32>::new())),
        ("array", Tensor::from([0.0_f32; 0])),
        ("box", Tensor::from(Vec::<f32>::new().into_boxed_slice())),
        ("arc", Tensor::from(Arc::<[f32]>::from([]))),
        ("static", Tensor::from(&[0.0_f32; 0][..])),
        ("builder", Tensor::builder(vec![1.0_f32]).shape(&[3, 0]).build::<f32>().expect("fits")),
        ("zeros", Tensor::zeros(DType::F32, &[0, 5]).expect("fits")),
        ("foreign", import(foreign).expect("legal")),
    ]
}

#[test]
fn there_is_nothing_to_read_and_that_is_fine() {
    for (name, mut tensor) in empty() {
        assert!(tensor.is_empty() && tensor.is_contiguous(), "{name}");
        assert_eq!((tensor.len(), tensor.nbytes()), (0, 0), "{name}");
        let view = tensor.view::<f32>().expect("host");
        assert_eq!(view.to_vec(), [0.0_f32; 0], "{name}");
        assert_eq!(view.iter().next(), None, "{name}");
        assert_eq!(view.iter().fold(0, |n, _| n + 1), 0, "{name}");
        assert_eq!(view.get(&vec![0; tensor.rank()]), None, "{name}");
        assert_eq!(view.copy_to_slice(&mut []), Ok(()), "{name}");
        assert_eq!(view.as_cells().map(<[_]>::len), Some(0), "{name}");
        let wanted = other_length(1, 0);
        assert_eq!(view.item(), Err(wanted), "{name}");
        assert_eq!(tensor.as_slice::<f32>(), Ok(&[][..]), "{name}");
        if let Ok(mut view) = tensor.view_mut::<f32>() {
            view.fill(1.0);
            view.map_inplace(|_| unreachable!("there is none"));
            assert_eq!(view.copy_from_slice(&[]), Ok(()), "{name}");
        }
    }
}

#[test]
fn the_type_is_checked_all_the_same() {
    for (name, tensor) in empty() {
        let wanted = Error::DTypeMismatch { found: DType::F32, expected: DType::U32 };
        assert_eq!(tensor.view::<u32>().map(drop), Err(wanted.clone()), "{name}");
        assert_eq!(tensor.as_slice::<u32>(), Err(wanted), "{name}");
    }
}

#[test]
fn a_copy_keeps_the_shape() {
    for (name, tensor) in empty() {
        let copy = tensor.to_contiguous().expect("host");
        assert_eq!(copy.shape(), tensor.shape(), "{name}");
        assert_eq!(copy.dtype(), DType::F32, "{name}");
    }
}

#[test]
fn it_is_exported_and_imported_again() {
    for (name, tensor) in empty() {
        let shape = tensor.shape().to_vec();
        let again = take_back(tensor.into_raw());
        assert_eq!(again.shape(), shape, "{name}");
        delete(again.into_raw());
    }
    for (_, tensor) in empty() {
        if let Ok(managed) = tensor.into_raw_legacy() {
            delete_legacy(managed);
        }
    }
}

#[test]
fn it_conforms() {
    conformance::owner(|| (Tensor::from(Vec::<u16>::new()), Expected::<u16>::new(&[0], &[])));
    conformance::owner(|| (Tensor::from([0_i128; 0]), Expected::<i128>::new(&[0], &[])));
    conformance::owner(|| {
        let tensor = Tensor::builder(vec![1_u8; 4]).shape(&[2, 0, 2]).offset(4).build::<u8>();
        (tensor.expect("it fits"), Expected::<u8>::new(&[2, 0, 2], &[]))
    });
    conformance::owner(|| {
        let tensor = Tensor::from(Arc::<[f64]>::from([]));
        (tensor, Expected::<f64>::new(&[0], &[]).read_only())
    });
}

#[test]
fn borrowing_nothing_is_fine() {
    let tensor = TensorRef::from(&[0_u64; 0][..]);
    conformance::borrowed(&tensor, &Expected::<u64>::new(&[0], &[]));
    let mut nothing: [u64; 0] = [];
    let mut tensor = TensorMut::from(&mut nothing[..]);
    assert_eq!(tensor.as_slice_mut::<u64>(), Ok(&mut [][..]));
    tensor.view_mut::<u64>().expect("exclusive").fill(1);
}

#[test]
fn packed_elements_may_be_none() {
    let tensor = Tensor::zeros(DType::FLOAT4_E2M1FN, &[0]).expect("fits");
    assert_eq!(tensor.nbytes(), 0);
    assert_eq!(tensor.to_contiguous().expect("host").nbytes(), 0);
}

#[test]
#[should_panic(expected = "expected an array that a tensor can describe: shape")]
fn more_rows_without_elements_than_an_extent_holds_are_refused_with_a_reason() {
    let rows: Vec<[u8; 0]> = vec![[]; usize::MAX];
    drop(Tensor::from(rows));
}

// Tensors without axes: one element.

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
fn a_scalar_conforms() {
    conformance::owner(|| (Tensor::scalar(7_i8), Expected::new(&[], &[7_i8])));
    conformance::owner(|| (Tensor::scalar(true), Expected::new(&[], &[true])));
    conformance::owner(|| {
        let values = vec![1.0_f32, 2.0];
        let expected = Expected::new(&[], &[2.0_f32]).at(&raw const values[1]);
        let builder = Tensor::builder(values).shape(&[]).offset(1);
        (builder.build::<f32>().expect("it fits"), expected)
    });
}
