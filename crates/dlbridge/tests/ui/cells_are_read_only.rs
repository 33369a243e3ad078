//! A cell can be read, and neither written, made, nor borrowed through.

use dlbridge::{ReadCell, Tensor};

fn main() {
    let tensor = Tensor::from(vec![1, 2, 3]);
    let cells = tensor.view::<i32>().unwrap().as_cells().unwrap();
    cells[0].set(1);
    let value: &i32 = &*cells[0];
    let made = ReadCell(1);
}
