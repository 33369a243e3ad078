//! The tensor in a slice can be moved out only while the slice is not borrowed.

fn main() {
    let slice = dlbridge::Tensor::from(vec![1, 2]).into_slice::<i32>().unwrap();
    let first = &slice[0];
    drop(slice.into_tensor());
    println!("{first}");

    let mut slice = dlbridge::Tensor::from(vec![1, 2]).into_slice_mut::<i32>().unwrap();
    let first = &slice[0];
    slice[0] = 3;
    println!("{first}");
}
