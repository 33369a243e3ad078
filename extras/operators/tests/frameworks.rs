//! Operators in the real PyTorch and JAX, and over NumPy's arrays. The checks are programs in `frameworks/`.

use std::ffi::CString;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};

use dlbridge_operators::{AddOperator, Failure, operator};
use dlbridge_pyo3::PyTensorMut;
use num_complex::Complex;
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
    /// Copies a tensor.
    fn keeps(x: View<f32>, out: ViewMut<f32>) -> Result<(), dlbridge::Error>
    as "(...)->(...)", backward = lacks {
        out.copy_from_slice(&x.to_vec())
    }
}

operator! {
    /// Fails with the text of PyTorch's allocator when it has no memory.
    fn lacks(_gradient: View<f32>, _x: View<f32>, _out: ViewMut<f32>) -> Result<(), &'static str>
    as "(...),(...)->(...)" {
        Err("CUDA out of memory. Tried to allocate 4.00 TiB.")
    }
}

operator! {
    /// The squared distance of each row of `a` to each row of `b`.
    fn distances<T: f32 | f64>(a: View<T>, b: View<T>, out: ViewMut<T>) -> Result<(), dlbridge::Error>
    as "(n,d),(m,d)->(n,m)", backward = distances_backward {
        for (i, x) in a.rows().enumerate() {
            for (j, y) in b.rows().enumerate() {
                out.set([i, j], x.iter().zip(y.iter()).map(|(x, y)| (x - y) * (x - y)).sum())?;
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
                let factor = gradient.get([i, j]).unwrap_or_default() * 2.0;
                for (k, (x, y)) in x.iter().zip(y.iter()).enumerate() {
                    of_a.set([i, k], of_a.get([i, k]).unwrap_or_default() + factor * (x - y))?;
                    of_b.set([j, k], of_b.get([j, k]).unwrap_or_default() - factor * (x - y))?;
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

operator! {
    /// Negates the elements, the last one first.
    fn reversed_(x: View<f64>, out: ViewMut<f64>) -> Result<(), dlbridge::Error> as "(...)->(...)" {
        for index in (0..x.len()).rev() {
            out.set([index], -x.get([index]).unwrap_or_default())?;
        }
        Ok(())
    }
}

operator! {
    /// The sum of two arrays.
    fn plus(x: View<f64>, y: View<f64>, out: ViewMut<f64>) -> Result<(), dlbridge::Error> as "(...),(...)->(...)" {
        out.fill(0.0);
        out.zip_inplace(&x, |_, x| x)?;
        out.zip_inplace(&y, |sum, y| sum + y)
    }
}

operator! {
    /// The sum of a vector.
    fn total<T: f32 | f64 | Complex<f32>>(x: View<T>, out: ViewMut<T>) -> Result<(), dlbridge::Error> as "(n)->()" {
        out.set((), x.iter().sum())
    }
}

operator! {
    /// Scales a tensor in place.
    fn scale_<T: f32 | f64>(x: InPlace<T>, factor: f64) as "(...)->" {
        x.map_inplace(|value| value * factor as T);
    }
}

operator! {
    /// Adds a tensor to another one, in place.
    fn add_(x: InPlace<f32>, y: View<f32>) -> Result<(), dlbridge::Error> as "(...),(...)->" {
        x.zip_inplace(&y, |x, y| x + y)
    }
}

operator! {
    /// The product of rows and a transposed matrix, and a bias.
    fn affine<T: f32 | f64>(x: View<T>, weight: View<T>, bias: Option<View<T>>, out: ViewMut<T>)
        -> Result<(), dlbridge::Error>
    as "(n,d),(m,d),(m)->(n,m)", backward = affine_backward {
        for (i, row) in x.rows().enumerate() {
            for (j, column) in weight.rows().enumerate() {
                let start = bias.as_ref().and_then(|bias| bias.get([j])).unwrap_or_default();
                let product: T = row.iter().zip(column.iter()).map(|(a, b)| a * b).sum();
                out.set([i, j], start + product)?;
            }
        }
        Ok(())
    }
}

operator! {
    /// The gradients of `affine`.
    fn affine_backward<T: f32 | f64>(
        gradient: View<T>, x: View<T>, weight: View<T>, _bias: Option<View<T>>,
        of_x: ViewMut<T>, of_weight: ViewMut<T>, of_bias: ViewMut<T>
    ) -> Result<(), dlbridge::Error> as "(n,m),(n,d),(m,d),(m)->(n,d),(m,d),(m)" {
        of_x.fill(0.0);
        of_weight.fill(0.0);
        of_bias.fill(0.0);
        for (i, row) in gradient.rows().enumerate() {
            for (j, factor) in row.iter().enumerate() {
                of_bias.set([j], of_bias.get([j]).unwrap_or_default() + factor)?;
                for k in 0..x.shape()[1] as usize {
                    let (a, b) = (x.get([i, k]).unwrap_or_default(), weight.get([j, k]).unwrap_or_default());
                    of_x.set([i, k], of_x.get([i, k]).unwrap_or_default() + factor * b)?;
                    of_weight.set([j, k], of_weight.get([j, k]).unwrap_or_default() + factor * a)?;
                }
            }
        }
        Ok(())
    }
}

operator! {
    /// Rows by their indices.
    fn take<T: f64 | f32, I: i64 | i32>(x: View<T>, index: View<I>, out: ViewMut<T>) -> Result<(), Failure>
    as "(n,d),(m)->(m,d)", backward = take_backward {
        for (to, from) in index.iter().enumerate() {
            for k in 0..x.shape()[1] as usize {
                let value = x.get([from as usize, k]).ok_or("an index is out of range")?;
                out.set([to, k], value)?;
            }
        }
        Ok(())
    }
}

operator! {
    /// The gradient of `take`, of its only tensor of floats.
    fn take_backward<T: f64 | f32, I: i64 | i32>(
        gradient: View<T>, _x: View<T>, index: View<I>, of_x: ViewMut<T>
    ) -> Result<(), dlbridge::Error> as "(m,d),(n,d),(m)->(n,d)" {
        of_x.fill(0.0);
        for (from, to) in index.iter().enumerate() {
            for k in 0..of_x.shape()[1] as usize {
                let value = gradient.get([from, k]).unwrap_or_default();
                of_x.set([to as usize, k], of_x.get([to as usize, k]).unwrap_or_default() + value)?;
            }
        }
        Ok(())
    }
}

operator! {
    /// The exponentials, divided by their sum.
    fn softmax<T: f32 | f64>(x: View<T>, out: ViewMut<T>) -> Result<(), dlbridge::Error>
    as "(n)->(n)", backward = softmax_backward {
        let largest = x.iter().fold(T::NEG_INFINITY, T::max);
        out.zip_inplace(&x, |_, x| (x - largest).exp())?;
        let sum: T = out.as_view().iter().sum();
        out.map_inplace(|x| x / sum);
        Ok(())
    }
}

operator! {
    /// The gradient of `softmax`, of its result.
    fn softmax_backward<T: f32 | f64>(
        gradient: View<T>, result: View<T>, _x: View<T>, of_x: ViewMut<T>
    ) -> Result<(), dlbridge::Error> as "(n),(n),(n)->(n)" {
        let sum: T = gradient.iter().zip(result.iter()).map(|(gradient, result)| gradient * result).sum();
        of_x.zip_inplace(&gradient, |_, gradient| gradient - sum)?;
        of_x.zip_inplace(&result, |gradient, result| gradient * result)
    }
}

operator! {
    /// The least and the greatest value.
    fn extremes<T: f32 | f64>(x: View<T>, low: ViewMut<T>, high: ViewMut<T>) -> Result<(), dlbridge::Error>
    as "(n)->(),()" {
        low.set((), x.iter().fold(T::INFINITY, T::min))?;
        high.set((), x.iter().fold(T::NEG_INFINITY, T::max))
    }
}

/// How many threads have arrived.
static ARRIVED: AtomicBool = AtomicBool::new(false);

operator! {
    /// Waits for a thread that calls `arrive`, which needs the GIL.
    fn wait(_x: View<f32>, _out: ViewMut<f32>) as "(...)->(...)" {
        while !ARRIVED.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
}

#[pyfunction]
fn arrive() {
    std::thread::sleep(std::time::Duration::from_millis(20));
    ARRIVED.store(true, Ordering::Release);
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

#[path = "../../../examples/new-operators/src/lib.rs"]
#[allow(unreachable_pub)]
mod example;

/// The tests of the project that `cargo xtask new --operators` copies.
#[test]
fn the_example_is_trained_by_each_framework() {
    in_turn(|py| {
        let module = pyo3::wrap_pymodule!(example::my_extension)(py);
        let modules = py.import("sys").and_then(|sys| sys.getattr("modules")).expect("modules");
        modules.set_item("my_extension", module).expect("a dict");
        let tests =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/new-operators/tests");
        let options = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir"];
        let options = options.iter().map(|option| (*option).into());
        let options: Vec<_> = options.chain([tests.clone(), tests]).collect();
        let Ok(pytest) = py.import("pytest") else {
            println!("skipped: pytest is not installed");
            return;
        };
        let code = pytest.call_method1("main", (options,)).and_then(|code| code.extract::<i32>());
        assert_eq!(code.expect("a code"), 0);
    });
}

/// Runs work attached to Python, on one thread for all tests. PyTorch fails where two threads compile at once. Without a
/// GPU, PyTorch 2.10 also keeps a pointer to what belongs to the thread that traced last, and crashes in the next one
/// (its pull request 178950).
fn in_turn(work: impl FnOnce(Python<'_>) + Send + 'static) {
    type Work = Box<dyn FnOnce() + Send>;
    static THREAD: OnceLock<Mutex<Sender<Work>>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| {
        let (thread, todo) = channel::<Work>();
        std::thread::spawn(move || todo.into_iter().for_each(|work| work()));
        Mutex::new(thread)
    });
    let (done, waiting) = channel();
    let work = move || {
        let result = catch_unwind(AssertUnwindSafe(|| Python::attach(work)));
        done.send(result).expect("the test waits");
    };
    thread.lock().expect("no panic").send(Box::new(work)).expect("the thread stays");
    if let Err(panic) = waiting.recv().expect("the thread stays") {
        resume_unwind(panic);
    }
}

fn check(program: &'static str, module: &'static str) {
    in_turn(move |py| {
        if py.import(module).is_err() {
            println!("skipped: {module} is not installed");
            return;
        }
        // PyTorch has one operator of a name.
        let name = if module == "torch" { "my_operators" } else { &format!("my_{module}") };
        let operators = PyModule::new(py, name).expect("a module");
        operators.add_operator(keeps).expect("added");
        operators.add_operator(lacks).expect("added");
        operators.add_operator(scale).expect("added");
        operators.add_operator(scale_backward).expect("added");
        operators.add_operator(distances).expect("added");
        operators.add_operator(distances_backward).expect("added");
        operators.add_operator(panics).expect("added");
        operators.add_operator(reversed_).expect("added");
        operators.add_operator(plus).expect("added");
        operators.add_operator(total).expect("added");
        operators.add_operator(wait).expect("added");
        operators.add_operator(scale_).expect("added");
        operators.add_operator(add_).expect("added");
        operators.add_operator(affine).expect("added");
        operators.add_operator(softmax).expect("added with its backward");
        operators.add_operator(take).expect("added");
        operators.add_operator(take_backward).expect("added");
        operators.add_operator(extremes).expect("added");
        operators
            .add_function(wrap_pyfunction!(arrive, &operators).expect("a function"))
            .expect("added");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frameworks");
        let code = fs::read_to_string(folder.join(program)).expect("a program");
        let names = PyDict::new(py);
        names.set_item("my", operators).expect("a dict");
        names.set_item("__name__", "__main__").expect("a dict");
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
    in_turn(|py| {
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
