//! A type that lies about its bytes would be unsound, so saying so is `unsafe`.

use dlbridge::{DType, Element, Plain};

#[derive(Clone, Copy)]
struct Padded(u8, u32);

impl Element for Padded {
    const DTYPE: DType = DType::U64;
}

impl Plain for Padded {}

fn main() {}
