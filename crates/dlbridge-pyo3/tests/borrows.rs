//! The same memory twice in a call, one of them to write: refused, by address, on all threads.
//! Misuse of a borrow (leaked, held over a panic or a call of Python) is shown in `borrows_misuse.rs`,
//! many borrows and threads in the tests of the table.

use std::sync::atomic::{AtomicBool, Ordering};

use dlbridge::Tensor;
use dlbridge_pyo3::{PyTensor, PyTensorLike, PyTensorMut, PyTensorOf, Result, Writable};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Counts the values that are neither 0 nor all ones, read while another thread writes.
#[pyfunction]
fn torn(mut to_write: PyTensorMut<u64>, to_read: PyTensor) -> Result<usize> {
    let is_done = AtomicBool::new(false);
    let view = to_read.view::<u64>()?;
    Ok(std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut torn = 0;
            while !is_done.load(Ordering::Relaxed) {
                torn += view.iter().filter(|&value| value != 0 && value != u64::MAX).count();
            }
            torn
        });
        for round in 0..100 {
            to_write.view_mut().fill(if round % 2 == 0 { u64::MAX } else { 0 });
        }
        is_done.store(true, Ordering::Relaxed);
        reader.join().expect("no panic")
    }))
}

#[pyfunction]
fn add_to(mut out: PyTensorMut<f64>, x: PyTensorOf<f64>) -> Result<()> {
    out.view_mut().zip_inplace(&x.view(), |value, x| value + x)?;
    Ok(())
}

/// The arguments in the other order.
#[pyfunction]
fn add_from(x: PyTensorOf<f64>, mut out: PyTensorMut<f64>) -> Result<()> {
    out.view_mut().zip_inplace(&x.view(), |value, x| value + x)?;
    Ok(())
}

#[pyfunction]
fn both(mut a: PyTensorMut<f64>, mut b: PyTensorMut<f64>) {
    a.view_mut().fill(1.0);
    b.view_mut().fill(2.0);
}

#[pyfunction]
fn dot(a: PyTensorOf<f64>, b: PyTensorLike<f64>) -> f64 {
    a.view().iter().zip(b.view().iter()).map(|(a, b)| a * b).sum()
}

fn run(source: &std::ffi::CStr) -> PyResult<()> {
    Python::attach(|py| {
        let names = PyDict::new(py);
        for framework in ["numpy", "torch"] {
            match py.import(framework) {
                Ok(module) => names.set_item(framework, module)?,
                Err(_) => println!("without {framework}"),
            }
        }
        names.set_item("torn", wrap_pyfunction!(torn, py)?)?;
        names.set_item("add_to", wrap_pyfunction!(add_to, py)?)?;
        names.set_item("add_from", wrap_pyfunction!(add_from, py)?)?;
        names.set_item("both", wrap_pyfunction!(both, py)?)?;
        names.set_item("dot", wrap_pyfunction!(dot, py)?)?;
        py.run(
            c"
np = numpy
def refused(function, *arguments):
    try:
        function(*arguments)
    except TypeError as error:
        assert 'another argument, ' in str(error), error
        notes = getattr(error, '__notes__', [])
        return ' '.join([str(error), *notes])
    raise AssertionError(f'{function} accepts {len(arguments)} arguments')
",
            Some(&names),
            None,
        )?;
        py.run(source, Some(&names), None)
    })
}

/// The same array as two arguments, or a base and its part, was written in place while a thread of
/// Rust read it. Safe code got torn values.
#[test]
fn the_same_array_is_not_read_on_a_thread_while_it_is_written() -> PyResult<()> {
    run(c"
a = np.zeros(1000, 'uint64')
refused(torn, a, a)
assert torn(a, a.copy()) == 0
")
}

#[test]
fn the_error_names_the_argument_and_says_what_the_other_one_does() -> PyResult<()> {
    run(c"
import sys
a = np.zeros(3)
message = refused(add_to, a, a)
assert 'found float64[3]' in message and 'another argument, 24 bytes at 0x' in message and 'writes a part' in message, message
if sys.version_info >= (3, 11): assert \"'x'\" in message, message
message = refused(add_from, a, a)
assert 'found float64[3]' in message and 'another argument, 24 bytes at 0x' in message and 'reads a part' in message, message
if sys.version_info >= (3, 11): assert \"'out'\" in message, message
")
}

#[test]
fn a_base_and_its_part_are_the_same_memory() -> PyResult<()> {
    run(c"
base = np.zeros((4, 6))
for part in [base[1], base[:, 2:3], base.T, base[::-1, ::-2], base[3:, 5:], base.reshape(-1), base[..., None]]:
    for function in [add_to, add_from, both]:
        refused(function, base, part)
        refused(function, part, base)
")
}

#[test]
fn disjoint_parts_are_borrowed_together() -> PyResult<()> {
    run(c"
base = np.zeros((4, 6))
both(base[:2], base[2:])
assert base.tolist() == [[1] * 6] * 2 + [[2] * 6] * 2
both(base[:, ::2], base[:, 1::2])
assert base.tolist() == [[1, 2] * 3] * 4
# Tiles.
both(base[::-2, :3], base[::-2, 3:])
both(base[:2, :4], base[:2, 4:])
both(base.T[0], base.T[5])
# A picture's planes.
picture = np.zeros((5, 7, 3))
both(picture[..., 0], picture[..., 2])
# No element, no memory.
both(base[:0], base)
both(base, base[:, 3:3])
")
}

#[test]
fn the_same_memory_is_read_any_number_of_times() -> PyResult<()> {
    run(c"
a = np.arange(3.0)
assert dot(a, a) == 5 and dot(a, a[::-1]) == 1 and dot(a, [1, 2, 3]) == 8
one = np.broadcast_to(np.float64(2), (2 ** 20,) * 2)[:3, 0]
assert dot(a, one) == 6
add_to(a, one)
assert a.tolist() == [2, 3, 4]
")
}

#[test]
fn tensors_of_different_frameworks_over_one_memory_are_the_same_memory() -> PyResult<()> {
    run(c"
if 'torch' in globals():
    a = np.zeros(4)
    t = torch.from_numpy(a)
    refused(add_to, a, t)
    refused(add_to, t[1:], a)
    refused(add_from, memoryview(a), t)
    both(t[:2], a[2:])
    assert t.tolist() == [1, 1, 2, 2]
")
}

/// A clone of a tensor that Rust had shared was made writable by `PyTensorOf::new`, and written
/// while another clone was read.
#[test]
fn a_tensor_that_is_shared_in_rust_is_not_written_by_its_clone() {
    let shared = Tensor::from(vec![0_u64; 1000]).into_shared();
    let error = PyTensorOf::<u64, 1, Writable>::new(Tensor::from(shared.clone())).unwrap_err();
    assert!(error.to_string().contains("extract"), "{error}");
    let mut own = PyTensorOf::<u64, 1, Writable>::new(Tensor::from(vec![0_u64; 2])).unwrap();
    own.view_mut().fill(1);
    assert_eq!(own.view().to_vec(), [1, 1]);
}

#[test]
fn a_borrow_is_of_all_threads() {
    Python::attach(|py| {
        let numpy = py.import("numpy").expect("NumPy");
        let array = numpy.call_method1("zeros", (3,)).expect("an array").unbind();
        let to_write: PyTensorMut<f64> = array.extract(py).expect("writable");
        py.detach(|| {
            let other = std::thread::spawn(move || {
                Python::attach(|py| {
                    let error = PyErr::from(array.extract::<PyTensor>(py).expect_err("borrowed"));
                    assert!(error.is_instance_of::<PyTypeError>(py), "{error}");
                    array
                })
            });
            let array = other.join().expect("no panic");
            drop(to_write);
            std::thread::spawn(move || {
                Python::attach(|py| array.extract::<PyTensor>(py).map(drop).expect("free"));
            })
            .join()
            .expect("no panic");
        });
    });
}

#[test]
#[cfg(feature = "tensor-methods")]
fn a_number_is_not_read_while_it_is_written() -> PyResult<()> {
    Python::attach(|py| {
        let array =
            py.import("numpy")?.call_method1("zeros", (pyo3::types::PyTuple::empty(py),))?;
        let number = array.extract::<PyTensor>()?.into_pyobject(py)?;
        let is_read = |method: &str| match number.call_method0(method) {
            Ok(_) => true,
            Err(error) => !error.is_instance_of::<PyTypeError>(py),
        };
        for _ in 0..2 {
            for method in ["__float__", "__bool__", "__int__", "item", "tolist"] {
                assert!(is_read(method), "{method}");
            }
            let to_write: PyTensorMut<f64> = array.extract()?;
            for method in ["__float__", "__bool__", "__int__", "item", "tolist"] {
                assert!(!is_read(method), "{method}");
            }
            drop(to_write);
        }
        Ok(())
    })
}
