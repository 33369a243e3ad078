//! What the constraint `Writable` refuses, with the frameworks that have it.
//! Other constraints are shown where they are documented.

use dlbridge_pyo3::{PyTensorOf, Writable};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

type ToWrite = PyTensorOf<f32, 1, Writable>;

fn torch(py: Python<'_>) -> Option<Bound<'_, PyModule>> {
    let torch = py.import("torch").ok();
    if torch.is_none() {
        println!("skipped: torch is not installed");
    }
    torch
}

#[test]
fn a_tensor_that_requires_grad_is_read_but_not_written() {
    Python::attach(|py| {
        let Some(torch) = torch(py) else { return };
        let ones = || torch.call_method1("ones", (3,)).expect("a tensor");
        let leaf = ones().call_method0("requires_grad_").expect("floats have gradients");
        let inner = leaf.call_method1("__mul__", (2,)).expect("a product");
        let parameter = torch.getattr("nn").and_then(|nn| nn.call_method1("Parameter", (ones(),)));
        for tensor in [&leaf, &inner, &parameter.expect("a parameter")] {
            let error = PyErr::from(tensor.extract::<ToWrite>().map(drop).expect_err("refused"));
            assert!(error.is_instance_of::<PyBufferError>(py), "{error}");
            assert!(error.to_string().ends_with("requires grad: pass x.detach()"), "{error}");
            let both =
                tensor.extract::<PyTensorOf<f32, 1, (dlbridge_pyo3::Contiguous, Writable)>>();
            assert!(both.is_err(), "in a tuple of constraints too");
            assert_eq!(tensor.extract::<PyTensorOf<f32, 1>>().expect("reading").len(), 3);
            let detached = tensor.call_method0("detach").expect("a tensor");
            assert_eq!(detached.extract::<ToWrite>().expect("writing").len(), 3);
        }
        assert_eq!(ones().extract::<ToWrite>().expect("no gradient").len(), 3);
    });
}
