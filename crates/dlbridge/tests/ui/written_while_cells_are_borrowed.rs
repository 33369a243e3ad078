//! Cells stand others' writing, but not ours.

fn main() {
    let mut tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
    let cells = tensor.view::<i32>().unwrap().as_cells().unwrap();
    tensor.as_slice_mut::<i32>().unwrap()[0] = 0;
    println!("{cells:?}");
}
