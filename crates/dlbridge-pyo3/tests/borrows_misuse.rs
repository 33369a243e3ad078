//! What a borrow survives: a leak, a panic, Python code and other extension modules in between.
//! The plain cases are in `borrows.rs`.

#![allow(unsafe_code, reason = "a tensor on a device that does not exist")]

use std::mem::forget;
use std::thread;

use dlbridge::{Device, Flags, Tensor};
use dlbridge_pyo3::{PyTensor, PyTensorMut, PyTensorOf, Result};
use pyo3::prelude::*;
use pyo3::types::PyDict;

fn zeros(py: Python<'_>, len: usize) -> Bound<'_, PyAny> {
    py.import("numpy").and_then(|numpy| numpy.call_method1("zeros", (len,))).expect("NumPy")
}

fn may_write(array: &Bound<'_, PyAny>) -> bool {
    array.extract::<PyTensorMut<f64>>().is_ok()
}

fn may_read(array: &Bound<'_, PyAny>) -> bool {
    array.extract::<PyTensor>().is_ok()
}

#[test]
fn a_borrow_ends_with_its_argument_whatever_becomes_of_it() {
    Python::attach(|py| {
        let array = zeros(py, 3);
        let read = || array.extract::<PyTensor>().expect("readable");
        let write = || array.extract::<PyTensorMut<f64>>().expect("writable");
        drop(write());
        assert!(may_read(&array) && may_write(&array));
        // Out of the argument: Rust keeps the tensor, so the borrow lives as long.
        let inner: [&dyn Fn() -> Tensor; 2] = [&|| read().into_inner(), &|| write().into_inner()];
        for tensor in inner.map(|inner| move || inner()) {
            let tensor = tensor();
            assert!(may_read(&array) && !may_write(&array), "{tensor:?}");
            drop(tensor);
            assert!(may_write(&array));
        }
        // A result is Python's.
        let result = read().into_pyobject(py).expect("an object");
        assert!(may_write(&array) && may_write(result.as_any()));
        // Another tensor in its place.
        let mut replaced = read();
        let taken = std::mem::replace(&mut *replaced, Tensor::from(vec![1.0]));
        assert!(!may_write(&array));
        drop(taken);
        assert!(may_write(&array));
        // To another thread, which drops it detached.
        let (first, second) = (read(), read());
        assert!(!may_write(&array));
        py.detach(|| thread::spawn(move || drop((first, second))).join().expect("no panic"));
        assert!(may_write(&array));
    });
}

#[test]
fn a_leaked_borrow_refuses_what_would_alias_it_and_nothing_else() {
    Python::attach(|py| {
        let (array, other) = (zeros(py, 3), zeros(py, 3));
        forget(array.extract::<PyTensor>().expect("readable"));
        assert!(may_read(&array) && !may_write(&array));
        assert!(may_read(&other) && may_write(&other));
        let written = zeros(py, 3);
        forget(written.extract::<PyTensorMut<f64>>().expect("writable"));
        assert!(!may_read(&written) && !may_write(&written));
        assert!(may_read(&other) && may_write(&other));
        // The leaked tensor keeps its memory, so that no other array gets it.
        let address = |array: &Bound<'_, PyAny>| -> usize {
            array.getattr("ctypes").and_then(|c| c.getattr("data")).unwrap().extract().unwrap()
        };
        let (leaked, gone) = ([address(&array), address(&written)], (array, written));
        drop(gone);
        for _ in 0..1000 {
            let new = zeros(py, 3);
            assert!(!leaked.contains(&address(&new)) && may_write(&new));
        }
    });
}

#[pyfunction]
fn panics(_x: PyTensorMut<f64>, _y: PyTensor) {
    panic!("on purpose");
}

#[test]
fn a_panic_ends_the_borrows_of_its_call() {
    Python::attach(|py| {
        let (x, y) = (zeros(py, 3), zeros(py, 3));
        let panics = wrap_pyfunction!(panics, py).expect("a function");
        let names = PyDict::new(py);
        for (name, value) in [("x", &x), ("y", &y), ("panics", panics.as_any())] {
            names.set_item(name, value).expect("a dict");
        }
        let program = c"
try: panics(x, y)
except BaseException as error: assert type(error).__name__ == 'PanicException'
";
        py.run(program, Some(&names), None).expect("caught");
        assert!(may_write(&x) && may_write(&y));
        // Nor does an argument that is refused after the first one was borrowed.
        panics.call1((&x, "no array")).expect_err("refused");
        panics.call1((&x, &x)).expect_err("refused");
        assert!(may_write(&x));
    });
}

#[pyfunction]
fn calls(mut x: PyTensorMut<f64>, function: &Bound<'_, PyAny>) -> PyResult<()> {
    x.view_mut().fill(1.0);
    function.call0()?;
    x.view_mut().fill(2.0);
    Ok(())
}

#[pyfunction]
fn sum(x: PyTensorOf<f64>) -> f64 {
    x.view().iter().sum()
}

#[test]
fn python_code_within_a_call_does_not_get_the_memory_a_second_time() -> PyResult<()> {
    Python::attach(|py| {
        let names = PyDict::new(py);
        names.set_item("np", py.import("numpy")?)?;
        names.set_item("calls", wrap_pyfunction!(calls, py)?)?;
        names.set_item("sum", wrap_pyfunction!(sum, py)?)?;
        let program = c"
import gc

def refused(function, *arguments):
    try:
        function(*arguments)
    except TypeError as error:
        assert 'writes a part' in str(error), error
        return True
    raise AssertionError('accepted')

# Recursion, with the same array and with another one.
a, b = np.zeros(4), np.ones(4)
calls(a, lambda: refused(sum, a[1:]))
calls(a, lambda: refused(calls, a, lambda: None))
calls(a[:2], lambda: calls(a[2:], lambda: sum(b)))
assert a.tolist() == [2] * 4

# The cycle of an object that uses the array when it is collected.
class Cycle:
    def __init__(self): self.me = self
    def __del__(self): seen.append(refused(sum, a))
seen = []
Cycle()
calls(a, gc.collect)
assert seen == [True]

# A generator and a coroutine that are suspended within nothing of ours hold no borrow.
def generator():
    yield sum(a)
    yield sum(a)
values = generator()
next(values)
calls(a, lambda: None)
assert next(values) == 8

# An exception ends the borrow.
try: calls(a, lambda: 1 / 0)
except ZeroDivisionError: pass
assert sum(a) == 4
";
        py.run(program, Some(&names), None)
    })
}

#[test]
fn memory_that_the_host_does_not_read_is_not_borrowed() -> Result<()> {
    let on_device = || {
        let owner = Tensor::builder(()).shape([4]).dtype(dlbridge::DType::F32);
        // SAFETY: an address that no code uses.
        unsafe { owner.build_raw(0x1000 as *mut _, Device::cuda(0), Flags::NONE) }
    };
    Python::attach(|py| {
        let object = PyTensor::new(on_device()?).into_pyobject(py)?;
        let first: PyTensor = object.extract()?;
        let second: PyTensor = object.extract()?;
        assert_eq!(first.data_ptr(), second.data_ptr());
        Ok(())
    })
}

fn references(array: &Bound<'_, PyAny>) -> isize {
    let sys = array.py().import("sys").expect("Python's own");
    sys.call_method1("getrefcount", (array,)).and_then(|count| count.extract()).expect("a number")
}

/// An argument has no header until it is kept: its shape, its strides and a reference to the array are in a space that its
/// thread uses again.
#[test]
fn an_argument_has_its_own_shape_and_keeps_its_array_however_it_ends() {
    Python::attach(|py| {
        let numpy = py.import("numpy").expect("NumPy");
        for ndim in 0..7_usize {
            let shape: Vec<i64> = (0..ndim as i64).map(|axis| 1 + axis % 3).collect();
            let array = numpy.call_method1("ones", (shape.clone(),)).expect("an array");
            let turned = array.getattr("T").expect("the same memory");
            for (array, contiguous) in [(array, ndim < 2), (turned, false)] {
                let before = references(&array);
                let tensor = array.extract::<PyTensorOf<f64>>().expect("an argument");
                assert_eq!(references(&array), before + 1);
                let found: Vec<i64> = array.getattr("shape").unwrap().extract().unwrap();
                assert_eq!(tensor.shape(), found);
                assert!(tensor.is_contiguous() || !contiguous);
                assert_eq!(tensor.view().iter().sum::<f64>(), tensor.len() as f64);
                // Another thread drops it.
                py.detach(|| thread::spawn(move || drop(tensor)).join().expect("no panic"));
                drop(array.extract::<PyTensor>().expect("what waits is released"));
                assert_eq!(references(&array), before);
                let kept = array.extract::<PyTensor>().expect("an argument").into_inner();
                assert_eq!((kept.shape(), references(&array)), (&*found, before + 1));
                drop(kept);
                assert_eq!(references(&array), before);
            }
        }
        // Memory without elements is not borrowed, and moves out of the argument all the same.
        let (empty, mut argument) = (zeros(py, 0), zeros(py, 0).extract::<PyTensor>().unwrap());
        let taken = std::mem::replace(&mut *argument, Tensor::from(vec![1.0]));
        assert!((taken.len(), argument.len()) == (0, 1) && may_write(&empty));
        // NumPy changes a shape in place.
        let array = zeros(py, 6);
        let tensor = array.extract::<PyTensorOf<f64, 1>>().expect("an argument");
        let changed = array.setattr("shape", (2, 3));
        assert_eq!((changed.is_ok(), tensor.shape()), (true, &[6][..]));
        // The array's only reference is the argument's.
        drop(array);
        assert_eq!(tensor.view().to_vec(), [0.0; 6]);
    });
}

#[test]
fn more_arguments_than_a_thread_keeps_spaces_for_are_dropped_in_any_order_by_any_thread() {
    Python::attach(|py| {
        let array = zeros(py, 3);
        let before = references(&array);
        let arguments = || -> Vec<_> {
            (0..100).map(|_| array.extract::<PyTensorOf<f64>>().expect("readable")).collect()
        };
        let (mut first, second) = (arguments(), arguments());
        let part = first.split_off(50);
        drop((second, first));
        py.detach(|| thread::spawn(move || drop(part)).join().expect("no panic"));
        assert!(may_write(&array), "no borrow is left");
        assert_eq!(references(&array), before);
        // A thread that ends with arguments of its own.
        py.detach(|| {
            let work = || {
                Python::attach(|py| {
                    let array = |len| zeros(py, len).extract::<PyTensor>().expect("readable");
                    let _arguments: Vec<_> = (0..9).map(array).collect();
                });
            };
            thread::spawn(work).join().expect("no panic");
        });
    });
}

/// A thread that got spaces of other threads only freed none of them at its end.
#[cfg(target_os = "linux")]
#[test]
fn threads_that_drop_arguments_of_others_leak_no_memory() {
    let pages = || -> usize {
        let found = std::fs::read_to_string("/proc/self/statm").expect("Linux");
        found.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number")
    };
    Python::attach(|py| {
        let array = zeros(py, 3);
        let pass_on = || {
            let argument = |_| array.extract::<PyTensorOf<f64>>().expect("readable");
            let arguments: Vec<_> = (0..32).map(argument).collect();
            py.detach(|| thread::spawn(move || drop(arguments)).join().expect("no panic"));
        };
        (0..50).for_each(|_| pass_on());
        let before = pages();
        (0..1000).for_each(|_| pass_on());
        let grown = pages().saturating_sub(before);
        assert!(grown < 500, "{grown} pages more, for 32,000 arguments");
    });
}
