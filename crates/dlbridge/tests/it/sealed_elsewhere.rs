//! Sealed tensors on systems that have no sealed memory files.

use dlbridge::sealed::Builder;
use dlbridge::{DType, Tensor};

#[test]
fn sealing_is_an_error_that_names_linux() {
    let error = Tensor::from(vec![1_u8]).seal().map(drop).expect_err("no memory files");
    assert!(error.to_string().contains("expected Linux"), "{error}");
    assert!(Builder::new().tensor("x", DType::U8, &[1]).allocate().is_err());
}
