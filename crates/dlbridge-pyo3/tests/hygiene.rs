//! The macros in a crate without a prelude, whose names are taken, and which denies what can be denied.
#![no_implicit_prelude]
#![deny(
    warnings,
    missing_docs,
    missing_debug_implementations,
    unused,
    clippy::all,
    clippy::pedantic
)]
#![deny(unsafe_code, unsafe_op_in_unsafe_fn, unreachable_pub, elided_lifetimes_in_paths)]

use ::core::convert::From as _;
use ::dlbridge_pyo3::{ExportDlpack, Pickle, PyTensorOf, Shape, dlpack_methods};
use ::pyo3::prelude::pyclass;

/// Names that a macro without paths would find.
#[allow(dead_code, non_upper_case_globals, missing_docs, unreachable_pub)]
mod taken {
    pub struct Result;
    pub struct Option;
    pub struct Py;
    pub struct PyAny;
    pub struct Python;
    pub struct Tensor;
    pub struct DType;
    pub trait Element {}
    pub const Ok: () = ();
    pub const Err: () = ();
    pub const Some: () = ();
    pub const None: () = ();
    pub mod core {}
    pub mod std {}
    pub mod dlbridge_pyo3 {}
    pub mod pyo3 {}
    pub mod dlbridge {}
}
#[allow(unused_imports)]
use taken::*;

/// A class.
#[pyclass(frozen, module = "hygiene")]
#[derive(::core::fmt::Debug)]
pub struct Ones;

impl ExportDlpack for Ones {
    const PICKLE: ::core::option::Option<Pickle<Self>> =
        ::core::option::Option::Some(Pickle::new(|_| ::core::result::Result::Ok(Self)));

    fn tensor(&self) -> ::dlbridge_pyo3::Result<::dlbridge::Tensor> {
        ::core::result::Result::Ok(::dlbridge::Tensor::from([1_u8, 1]))
    }
}

dlpack_methods!(Ones);

/// Another one.
#[pyclass(frozen)]
#[derive(::core::fmt::Debug)]
pub struct Twos;

impl ExportDlpack for Twos {
    fn tensor(&self) -> ::dlbridge_pyo3::Result<::dlbridge::Tensor> {
        ::core::result::Result::Ok(::dlbridge::Tensor::from([2_u8, 2]))
    }
}

dlpack_methods!(Twos,);

/// How many channels.
pub const CHANNELS: i64 = 3;

/// The number of pixels.
#[must_use]
pub fn pixels(image: &PyTensorOf<u8, 3, Shape![_, _, CHANNELS]>) -> usize {
    image.len() / 3
}

/// The number of elements.
#[must_use]
pub fn wide(image: &PyTensorOf<u8, 2, Shape![4, _,]>) -> usize {
    image.len()
}

/// The first element.
///
/// # Errors
///
/// Another type.
pub fn first(tensor: &::dlbridge::Tensor) -> ::core::result::Result<f64, ::dlbridge::Error> {
    ::dlbridge::match_dtype!(tensor.dtype(), T: f32 | f64 => {
        ::core::convert::Into::<f64>::into(tensor.view::<T>()?.get([0]).unwrap_or_default())
    })
}

#[test]
fn the_macros_need_no_names_of_the_crate() {
    ::pyo3::Python::attach(|py| {
        let ones = ::pyo3::Bound::new(py, Ones).expect("an object").into_any();
        let twos = ::pyo3::Bound::new(py, Twos).expect("an object").into_any();
        for object in [ones, twos] {
            let tensor: ::dlbridge_pyo3::PyTensor =
                ::pyo3::types::PyAnyMethods::extract(&object).expect("a tensor");
            ::std::assert_eq!(tensor.len(), 2);
        }
    });
    let first = first(&::dlbridge::Tensor::from([1.5_f32])).expect("a float");
    ::std::assert!(first > 1.4);
}
