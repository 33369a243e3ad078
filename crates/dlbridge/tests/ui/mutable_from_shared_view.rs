//! A mutable tensor needs a mutable borrow, even of a view that is itself mutable.

fn write(view: &ndarray::ArrayViewMut1<'_, i32>) {
    dlbridge::TensorMut::from(&mut *view).as_slice_mut::<i32>().unwrap().fill(0);
}

fn main() {
    write(&ndarray::array![1, 2, 3].view_mut());
}
