//! A descriptor that was given away is the caller's to move; the compiler does not vouch for it.

fn needs_send<T: Send>(_: T) {}

fn main() {
    needs_send(dlbridge::Tensor::from(vec![1, 2, 3]).into_raw());
}
