//! What is only lent immutably is not exported writable.

struct Owner([f32; 2]);

impl AsRef<[f32]> for Owner {
    fn as_ref(&self) -> &[f32] {
        &self.0
    }
}

fn main() {
    let _ = dlbridge::Tensor::builder(Owner([1.0, 2.0])).build_read_only::<f32>();
    let _ = dlbridge::Tensor::builder(Owner([1.0, 2.0])).build::<f32>();
}
