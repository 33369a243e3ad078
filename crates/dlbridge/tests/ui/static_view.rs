//! A view lives no longer than what it was made of.

use dlbridge::{Tensor, TensorRef};

fn of_a_tensor(tensor: &Tensor) -> &'static [i32] {
    tensor.view_as().unwrap()
}

fn of_a_borrow(numbers: &[i32]) -> &'static [i32] {
    TensorRef::from(numbers).into_as().unwrap()
}

fn of_an_assumption(tensor: &Tensor) -> &'static [i32] {
    // SAFETY: no code writes.
    unsafe { tensor.assume_frozen() }.into_as().unwrap()
}

fn main() {
    let tensor = Tensor::from(vec![1]);
    println!("{:?}", of_a_tensor(&tensor));
    println!("{:?}", of_a_borrow(&[1]));
    println!("{:?}", of_an_assumption(&tensor));
}
