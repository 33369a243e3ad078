//! What is lent ends before the tensor is given away, shared, or taken apart.

use dlbridge::Tensor;

fn main() {
    let tensor = Tensor::from(vec![1, 2, 3]);
    let slice = tensor.as_slice::<i32>().unwrap();
    let raw = tensor.into_raw();
    println!("{slice:?} {raw:?}");

    let tensor = Tensor::from(vec![1, 2, 3]);
    let slice = tensor.as_slice::<i32>().unwrap();
    let shared = tensor.into_shared();
    println!("{slice:?} {shared:?}");

    let tensor = Tensor::from(vec![1, 2, 3]);
    let slice = tensor.as_slice::<i32>().unwrap();
    let owner = tensor.into_owner::<Vec<i32>>();
    println!("{slice:?} {owner:?}");
}
