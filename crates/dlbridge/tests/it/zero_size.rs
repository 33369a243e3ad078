//! Tensors without elements, from Rust and from elsewhere.
//! What the gate lets through of them is in `odd_but_legal.rs`.

use std::sync::Arc;

use crate::common::{delete, delete_legacy, import, other_length, take_back};
use dlbridge::{Access, DType, Error, Tensor, TensorMut, TensorRef};
use dlbridge_testing::Foreign;
use dlbridge_testing::conformance::{self, Expected};

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
