//! Operators in the real PyTorch and JAX, and over NumPy's arrays. The checks are programs in `frameworks/`.

use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use dlbridge_operators::{AddOperator, Failure, operator};
use dlbridge_pyo3::PyTensorMut;
use pyo3::prelude::*;
use pyo3::types::PyDict;

operator! {
    /// Scales a tensor.
    fn scale<T: f32 | f64>(x: View<T>, factor: f64, out: ViewMut<T>) -> Result<(), Failure>
    as "(...)->(...)", backward = scale_backward {
        if factor < 0.0 {
            return Err("factor: expected a positive number, found a negative one".into());
        }
        out.copy_from_slice(&x.map(|value| value * factor as T))?;
        Ok(())
    }
}

operator! {
    /// The gradient of `scale`.
    fn scale_backward<T: f32 | f64>(gradient: View<T>, _x: View<T>, factor: f64, out: ViewMut<T>) -> Result<(), Failure>
    as "(...),(...)->(...)" {
        out.copy_from_slice(&gradient.map(|value| value * factor as T))?;
        Ok(())
    }
}

operator! {
    /// The squared distance of each row of `a` to each row of `b`.
    fn distances<T: f32 | f64>(a: View<T>, b: View<T>, out: ViewMut<T>) -> Result<(), dlbridge::Error>
    as "(n,d),(m,d)->(n,m)", backward = distances_backward {
        for (i, x) in a.rows().enumerate() {
            for (j, y) in b.rows().enumerate() {
                out.set(&[i, j], x.iter().zip(y.iter()).map(|(x, y)| (x - y) * (x - y)).sum())?;
            }
        }
        Ok(())
    }
}

operator! {
    /// The gradients of `distances`.
    fn distances_backward<T: f32 | f64>(
        gradient: View<T>, a: View<T>, b: View<T>, of_a: ViewMut<T>, of_b: ViewMut<T>
    ) -> Result<(), dlbridge::Error> as "(n,m),(n,d),(m,d)->(n,d),(m,d)" {
        of_a.fill(0.0);
        of_b.fill(0.0);
        for (i, x) in a.rows().enumerate() {
            for (j, y) in b.rows().enumerate() {
                let factor = gradient.get(&[i, j]).unwrap_or_default() * 2.0;
                for (k, (x, y)) in x.iter().zip(y.iter()).enumerate() {
                    of_a.set(&[i, k], of_a.get(&[i, k]).unwrap_or_default() + factor * (x - y))?;
                    of_b.set(&[j, k], of_b.get(&[j, k]).unwrap_or_default() - factor * (x - y))?;
                }
            }
        }
        Ok(())
    }
}

operator! {
    /// Panics.
    fn panics(_x: View<f32>, _out: ViewMut<f32>) as "(...)->(...)" {
        panic!("as asked")
    }
}

/// The array that `borrows` reads.
static ARRAY: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

operator! {
    /// Fails if its argument can be written while it runs.
    fn borrows(_x: View<f32>, _out: ViewMut<f32>) -> Result<(), Failure> as "(...)->(...)" {
        let array = ARRAY.lock().expect("no panic").take().ok_or("no array")?;
        Python::attach(|py| match array.extract::<PyTensorMut<f32>>(py) {
            Ok(_) => Err("the argument is not borrowed".into()),
            Err(_) => Ok(()),
        })
    }
}

#[test]
fn an_argument_is_borrowed_while_the_function_runs() {
    Python::attach(|py| {
        let module = PyModule::new(py, "borrowing").expect("a module");
        module.add_operator(borrows).expect("added");
        let x = py.import("numpy").and_then(|numpy| numpy.call_method1("ones", (3, "float32")));
        let x = x.expect("an array");
        *ARRAY.lock().expect("no panic") = Some(x.clone().unbind());
        module
            .getattr("borrows")
            .and_then(|function| function.call1((&x,)))
            .expect("refused inside");
        assert!(x.extract::<PyTensorMut<f32>>().is_ok(), "free afterwards");
    });
}

fn check(program: &str, module: &str) {
    Python::attach(|py| {
        if py.import(module).is_err() {
            println!("skipped: {module} is not installed");
            return;
        }
        // PyTorch has one operator of a name.
        let name = if module == "torch" { "my_operators" } else { &format!("my_{module}") };
        let operators = PyModule::new(py, name).expect("a module");
        operators.add_operator(scale).expect("added");
        operators.add_operator(scale_backward).expect("added");
        operators.add_operator(distances).expect("added");
        operators.add_operator(distances_backward).expect("added");
        operators.add_operator(panics).expect("added");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frameworks");
        let code = fs::read_to_string(folder.join(program)).expect("a program");
        let names = PyDict::new(py);
        names.set_item("my", operators).expect("a dict");
        names.set_item("__name__", "check").expect("a dict");
        let code = CString::new(code).expect("no NUL");
        if let Err(error) = py.run(&code, Some(&names), None) {
            error.print(py);
            panic!("{program} failed");
        }
    });
}

#[test]
fn numpy_arrays_are_passed_to_the_function() {
    check("numpy_program.py", "numpy");
}

#[test]
fn pytorch_has_the_operator() {
    check("torch_program.py", "torch");
}

#[test]
fn jax_has_the_operator() {
    check("jax_program.py", "jax");
}

#[test]
fn two_operators_of_one_name_are_an_error() {
    Python::attach(|py| {
        if py.import("torch").is_err() {
            println!("skipped: torch is not installed");
            return;
        }
        let first = PyModule::new(py, "package.twice").expect("a module");
        first.add_operator(panics).expect("the first of its name");
        let second = PyModule::new(py, "twice").expect("a module");
        let error = second.add_operator(panics).expect_err("the second one");
        assert!(
            error.to_string().contains("twice::panics: PyTorch rejects the operator"),
            "{error}"
        );
    });
}

#[test]
fn a_declaration_that_contradicts_itself_is_refused() {
    operator! {
        fn missing(_x: View<f32>, _y: View<f32>, _out: ViewMut<f32>) as "(n)->(n)" {}
    }
    operator! {
        fn unordered(_out: ViewMut<f32>, _x: View<f32>) as "(n)->(n)" {}
    }
    operator! {
        fn misspelt(_x: View<f32>, _out: ViewMut<f32>) as "(n)->(m)" {}
    }
    Python::attach(|py| {
        let module = PyModule::new(py, "contradicting").expect("a module");
        for error in [module.add_operator(missing), module.add_operator(unordered)] {
            let error = error.expect_err("contradicting").to_string();
            assert!(
                error.contains("expected tensors to read, then scalars, then tensors to fill"),
                "{error}"
            );
        }
        let error = module.add_operator(misspelt).expect_err("an unknown axis").to_string();
        assert!(error.contains("signature: expected one such as"), "{error}");
    });
}
