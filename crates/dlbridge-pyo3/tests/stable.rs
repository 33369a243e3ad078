//! Slices and arrays over the caller's memory, for an extension that promises that it does not change.
#![allow(unsafe_code, reason = "the promise")]

use dlbridge_pyo3::{PyTensorOf, Result, StableArguments, Writable};
use ndarray::{ArrayView1, ArrayView2, ArrayViewD, ArrayViewMut2, Axis};
use pyo3::prelude::*;
use pyo3::types::PyDict;

struct Stable;

// SAFETY: no thread of these tests uses an argument during a call.
unsafe impl StableArguments for Stable {}

type Array<T, const N: usize> = PyTensorOf<T, N, Stable>;
type ArrayMut<T, const N: usize> = PyTensorOf<T, N, (Stable, Writable)>;

#[pyfunction]
fn slice_sum(x: Array<f64, 1>) -> Result<f64> {
    Ok(x.as_slice()?.iter().sum())
}

#[pyfunction]
fn array_sum(x: Array<f64, 2>) -> Result<f64> {
    Ok(x.as_array::<ArrayView2<f64>>()?.sum_axis(Axis(0)).sum())
}

#[pyfunction]
fn product(a: Array<f64, 2>, x: Array<f64, 1>, mut out: ArrayMut<f64, 1>) -> Result<()> {
    let (matrix, x): (ArrayView2<f64>, ArrayView1<f64>) = (a.as_array()?, x.as_array()?);
    for (sum, row) in out.as_slice_mut()?.iter_mut().zip(matrix.rows()) {
        *sum = row.dot(&x);
    }
    Ok(())
}

#[pyfunction]
fn double(mut x: ArrayMut<f64, 2>) -> Result<()> {
    let mut array: ArrayViewMut2<f64> = x.as_array_mut()?;
    array *= 2.0;
    Ok(())
}

#[pyfunction]
fn count(mask: PyTensorOf<bool, { dlbridge_pyo3::ANY_RANK }, Stable>) -> Result<usize> {
    Ok(mask.as_bools()?.iter().filter(|&&is_set| is_set).count())
}

#[pyfunction]
fn rank(x: PyTensorOf<f32, { dlbridge_pyo3::ANY_RANK }, Stable>) -> Result<usize> {
    Ok(x.as_array::<ArrayViewD<f32>>()?.ndim())
}

#[test]
fn the_callers_memory_is_borrowed_as_slices_and_arrays() -> PyResult<()> {
    Python::attach(|py| {
        let names = PyDict::new(py);
        names.set_item("np", py.import("numpy")?)?;
        names.set_item("torch", py.import("torch").ok())?;
        let module = PyModule::new(py, "functions")?;
        module.add_function(wrap_pyfunction!(slice_sum, py)?)?;
        module.add_function(wrap_pyfunction!(array_sum, py)?)?;
        module.add_function(wrap_pyfunction!(product, py)?)?;
        module.add_function(wrap_pyfunction!(double, py)?)?;
        module.add_function(wrap_pyfunction!(count, py)?)?;
        module.add_function(wrap_pyfunction!(rank, py)?)?;
        names.set_item("m", module)?;
        let program = c"
def refused(error, text, function, *arguments):
    try:
        function(*arguments)
    except error as found:
        assert text in str(found), found
    else:
        raise AssertionError('accepted')

x = np.arange(6.0)
assert m.slice_sum(x) == 15 and m.slice_sum(x[2:4]) == 5 and m.slice_sum(x[:0]) == 0
refused(BufferError, 'np.ascontiguousarray(x)', m.slice_sum, x[::-1])
refused(BufferError, 'np.ascontiguousarray(x)', m.slice_sum, np.broadcast_to(1.0, 6))
refused(TypeError, 'expected float64[?]', m.slice_sum, x.astype('float32'))
bytes = np.zeros(25, 'uint8')
refused(BufferError, 'a multiple of 8', m.slice_sum, bytes[1:].view('float64'))

matrix = x.reshape(2, 3)
for layout in [matrix, matrix.T, matrix[::-1, ::2], matrix[:0], np.broadcast_to(x, (2, 6))]:
    assert m.array_sum(layout) == layout.sum()
assert m.rank(np.float32(0).reshape(())) == 0 and m.rank(np.zeros((1,) * 8, 'float32')) == 8

out = np.zeros(2)
m.product(matrix, x[:3], out)
assert out.tolist() == [5, 14]
m.product(matrix, matrix[0], out)
refused(TypeError, 'reads a part', m.product, matrix, x[:3], x[:2])
refused(TypeError, 'reads a part', m.product, matrix, out, out)
assert out.tolist() == [5, 14]

m.double(matrix[:, 1:])
assert matrix.tolist() == [[0, 2, 4], [3, 8, 10]]
windows = np.lib.stride_tricks.as_strided(x, (2, 2), (8, 8))
refused(BufferError, 'may reach the same element', m.double, windows)
refused(TypeError, 'writable', m.double, np.broadcast_to(x, (2, 6)))
if torch:
    tensor = torch.ones(2, 3, dtype=torch.float64)
    m.double(tensor)
    assert m.array_sum(tensor.T) == 12

assert m.count(np.array([True, False, True])) == 2 and m.count(np.zeros((0, 2), bool)) == 0
refused(BufferError, 'found 2', m.count, np.array([0, 2], 'uint8').view(bool))
refused(BufferError, 'np.ascontiguousarray(x)', m.count, np.zeros(4, bool)[::2])
";
        py.run(program, Some(&names), None)
    })
}
