//! What stands for a shape: lists of `i64`, `usize` and literals, by value and by reference, and `()`.

use dlbridge::{DType, Parts, Shape, Tensor};

fn extents(shape: impl Shape) -> Vec<i64> {
    shape.with_extents(<[i64]>::to_vec)
}

#[test]
fn lists_of_each_type_are_shapes() {
    let (n, m) = (2_usize, 3_i64);
    assert_eq!(extents([2, 3]), [2, 3]);
    assert_eq!(extents([n, 3]), [2, 3]);
    assert_eq!(extents([-1, m]), [-1, 3]);
    assert_eq!(extents(vec![n; 9]), [2; 9]);
    let list = vec![m];
    assert_eq!(extents(&list), list);
    assert_eq!(extents(&[n, 3][..]), [2, 3]);
    assert_eq!(extents(()), [0_i64; 0]);
    assert_eq!(extents([usize::MAX, 0]), [i64::MAX, 0]);
}

#[test]
fn functions_take_shapes_by_value() {
    let tensor = Tensor::zeros(DType::U8, [2_usize, 6]).expect("small");
    let tensor = tensor.reshape(vec![3, -1]).expect("twelve elements");
    assert_eq!((tensor.shape(), tensor.strides()), (&[3, 4][..], &[4, 1][..]));
    let tensor = Tensor::builder(tensor.view::<u8>().expect("bytes").to_vec());
    let tensor = tensor.shape([3_usize, 2]).strides([4, 2]).build().expect("it fits");
    assert_eq!((tensor.shape(), tensor.strides()), (&[3, 2][..], &[4, 2][..]));
    let scalar = Tensor::from_bytes(DType::U8, (), &[7]).expect("one byte");
    assert_eq!(scalar.broadcast_to([2_usize]).expect("repeated").shape(), [2]);
}

#[test]
fn an_extent_above_i64_does_not_wrap_to_minus_one() {
    let tensor = Tensor::from([1, 2, 3, 4]);
    assert!(tensor.as_tensor_ref().reshape([usize::MAX, 2]).is_err());
    assert!(Tensor::zeros(DType::U8, [usize::MAX, 2]).map(drop).is_err());
}
