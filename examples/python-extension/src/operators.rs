//! Operators that the tests misuse: a module of its own, so that only those tests register them with PyTorch.
#![allow(clippy::unnecessary_cast, reason = "one of the types is that type already")]

use std::panic;

use dlbridge::Parts;
use dlbridge_operators::{AddOperator, Failure, attach, operator};
use pyo3::prelude::*;

operator! {
    /// The same values, in a new array.
    fn same<T: i32 | f32 | f64 | bool>(x: View<T>, out: ViewMut<T>) -> Result<(), dlbridge::Error>
    as "(...)->(...)" {
        out.copy_from_slice(&x.map(|value| value))
    }
}

operator! {
    /// Fills nothing, and returns what it reads of its result.
    fn idle(x: View<f32>, out: ViewMut<f32>, found: ViewMut<f32>) as "(n)->(n),()" {
        let largest = out.as_view().iter().fold(0.0, |a: f32, b| a.max(b.abs()));
        found.fill(largest + 0.0 * x.len() as f32);
    }
}

operator! {
    /// A product, with every kind of scalar.
    fn times(x: View<f32>, factor: f64, count: i64, negate: bool, out: ViewMut<f32>) -> Result<(), dlbridge::Error>
    as "(...)->(...)" {
        let factor = (if negate { -factor } else { factor }) * count as f64;
        out.copy_from_slice(&x.map(|value| value * factor as f32))
    }
}

operator! {
    /// Adds a tensor to another one in place, on all cores.
    fn add_(y: View<f32>, x: InPlace<f32>) -> Result<(), Failure> as "(n),(n)->" {
        let before = y.map(|value| value);
        x.par_zip_inplace(&y, |x, y| x + y)?;
        if before == y.map(|value| value) { Ok(()) } else { Err("y has changed".into()) }
    }
}

operator! {
    /// The least and the greatest value.
    fn extremes(x: View<f64>, low: ViewMut<f64>, high: ViewMut<f64>) -> Result<(), dlbridge::Error> as "(n)->(),()" {
        low.set((), x.iter().fold(f64::INFINITY, f64::min))?;
        high.set((), x.iter().fold(f64::NEG_INFINITY, f64::max))
    }
}

operator! {
    /// Values times a weight; values of integers have no gradient.
    fn weighted<T: i32 | f32>(x: View<T>, weight: View<f32>, out: ViewMut<f32>) -> Result<(), dlbridge::Error>
    as "(...),(...)->(...)", backward = weighted_backward {
        out.fill(0.0);
        out.zip_inplace(&x, |_, x| x as f32)?;
        out.zip_inplace(&weight, |x, weight| x * weight)
    }
}

operator! {
    /// The gradients of `weighted`.
    fn weighted_backward<T: i32 | f32>(
        gradient: View<f32>, x: View<T>, weight: View<f32>, of_x: ViewMut<f32>, of_weight: ViewMut<f32>
    ) -> Result<(), dlbridge::Error> as "(...),(...),(...)->(...),(...)" {
        of_x.fill(0.0);
        of_x.zip_inplace(&gradient, |_, gradient| gradient)?;
        of_x.zip_inplace(&weight, |gradient, weight| gradient * weight)?;
        of_weight.fill(0.0);
        of_weight.zip_inplace(&gradient, |_, gradient| gradient)?;
        of_weight.zip_inplace(&x, |gradient, x| gradient * x as f32)
    }
}

operator! {
    /// Twice the values, and how many they are.
    fn counted(x: View<f32>, twice: ViewMut<f32>, count: ViewMut<i32>) -> Result<(), dlbridge::Error>
    as "(n)->(n),()", backward = counted_backward {
        count.fill(x.len() as i32);
        twice.copy_from_slice(&x.map(|value| 2.0 * value))
    }
}

operator! {
    /// The gradient of `counted`.
    fn counted_backward(
        of_twice: View<f32>, of_count: View<i32>, _x: View<f32>, of_x: ViewMut<f32>
    ) -> Result<(), Failure> as "(n),(),(n)->(n)" {
        if of_count.iter().any(|value| value != 0) {
            return Err("expected no gradient of a count".into());
        }
        Ok(of_x.copy_from_slice(&of_twice.map(|value| 2.0 * value))?)
    }
}

operator! {
    /// An operator whose gradient fails.
    fn fragile(x: View<f32>, out: ViewMut<f32>) -> Result<(), dlbridge::Error>
    as "(...)->(...)", backward = fragile_backward {
        out.copy_from_slice(&x.map(|value| value))
    }
}

operator! {
    /// Panics.
    fn fragile_backward(_gradient: View<f32>, _x: View<f32>, _of_x: ViewMut<f32>) as "(...),(...)->(...)" {
        panic!("in the gradient")
    }
}

/// A payload of a panic that panics again.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("again")
    }
}

operator! {
    /// Fails in the way of a number.
    fn fail(x: View<f32>, way: i64, out: ViewMut<f32>) -> Result<(), Failure> as "(n)->(n)" {
        match way {
            0 => Err("as asked, with \0 inside".into()),
            1 => panic!("as asked"),
            2 => panic::panic_any(Bomb),
            // The shape rule says `n`.
            3 => Ok(out.copy_from_slice(&[0.0; 99])?),
            4 => Ok(out.set([99], 0.0)?),
            5 => Ok(out.zip_inplace(&x.slice(0, ..0)?.view(), |_, x| x)?),
            _ => Ok(out.copy_from_slice(&x.map(|value| value))?),
        }
    }
}

operator! {
    /// A result of 2^65 bytes.
    fn huge(_x: View<f32>, _out: ViewMut<f32>) as "(n)->(n,2147483648,4294967296)" {}
}

operator! {
    /// Calls the function `callback` of the module `callbacks`.
    fn calling(x: View<f32>, out: ViewMut<f32>) -> dlbridge_pyo3::Result<()> as "(...)->(...)" {
        attach(|py| py.import("callbacks")?.call_method0("callback").map(|_| ()))?;
        Ok(out.copy_from_slice(&x.map(|value| value))?)
    }
}

#[pymodule(gil_used = false)]
fn misused_operators(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_operator(same)?;
    module.add_operator(idle)?;
    module.add_operator(times)?;
    module.add_operator(add_)?;
    module.add_operator(extremes)?;
    module.add_operator(weighted)?;
    module.add_operator(weighted_backward)?;
    module.add_operator(counted)?;
    module.add_operator(fragile)?;
    module.add_operator(fragile_backward)?;
    module.add_operator(fail)?;
    module.add_operator(huge)?;
    module.add_operator(calling)
}

/// Some of them in a module of another name, for a second extension in one process: a copy of the library.
#[pymodule(gil_used = false)]
fn other_operators(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_operator(same)?;
    module.add_operator(weighted)
}
