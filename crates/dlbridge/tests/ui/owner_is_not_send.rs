//! A tensor may be dropped on any thread, so its owner must be `Send`.

use std::rc::Rc;

struct Owner(Vec<f32>, Rc<()>);

impl AsMut<[f32]> for Owner {
    fn as_mut(&mut self) -> &mut [f32] {
        &mut self.0
    }
}

fn main() {
    let owner = Owner(vec![1.0], Rc::new(()));
    let _ = dlbridge::Tensor::builder(owner).build::<f32>();
}
