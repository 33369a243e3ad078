//! A borrowed tensor is borrowed from its memory.

use dlbridge::{Tensor, TensorMut, TensorRef};

fn main() {
    let (tensor, tensor_mut, of_tensor) = {
        let (values, mut others) = (vec![1.0_f32], vec![2.0_f32]);
        let owner = Tensor::from(vec![3.0_f32]);
        (TensorRef::from(&values[..]), TensorMut::from(&mut others[..]), owner.as_tensor_ref())
    };
    println!("{tensor:?} {tensor_mut:?} {of_tensor:?}");
}
