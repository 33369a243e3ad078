//! Sealed tensors on systems that have no sealed memory files.

use dlbridge::{DType, Tensor};
use dlbridge_sealed::{Builder, Channel, Pool, SealedTensors};

#[test]
fn sealing_is_an_error_that_names_linux() {
    let error =
        SealedTensors::try_from(&Tensor::from(vec![1_u8])).map(drop).expect_err("no memory files");
    assert!(error.to_string().contains("expected Linux"), "{error}");
    assert!(Builder::new().tensor("x", DType::U8, &[1]).allocate().is_err());
    let error = Channel::pair().map(drop).expect_err("no channels").to_string();
    assert!(error.contains("expected Linux"), "{error}");
    assert!(Pool::new(1).loan(&[("x", DType::U8, &[1])]).is_err());
}
