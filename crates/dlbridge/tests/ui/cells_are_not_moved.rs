//! A cell stays where it is.

fn main() {
    let tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
    let cells = tensor.view::<i32>().unwrap().as_cells().unwrap();
    let moved = cells[0];
    println!("{moved:?}");
}
