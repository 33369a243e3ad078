//! An argument that keeps the caller's object, and functions with an `out` argument.

use std::sync::{Mutex, PoisonError};

use dlbridge_pyo3::{ANY_RANK, CallerArray, NoGrad, PyTensorOf, Result, Writable};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Frameworks fail where a second thread imports them before the first is done. Held before a thread attaches.
static IMPORTS: Mutex<()> = Mutex::new(());

type Out<'py> = Option<CallerArray<'py, f32, ANY_RANK, Writable>>;

#[pyfunction]
#[pyo3(signature = (x, out = None))]
fn double<'py>(x: CallerArray<'py, f32>, out: Out<'py>) -> Result<Bound<'py, PyAny>> {
    let mut out = x.output(x.shape(), out)?;
    out.view_mut()?.zip_inplace(&x.view(), |_, x| 2.0 * x)?;
    out.into_object()
}

#[pyfunction]
fn norm<'py>(py: Python<'py>, x: CallerArray<'py, f32, 1>) -> Result<Bound<'py, PyAny>> {
    let view = x.view();
    let norm = py.detach(|| view.iter().map(|x| x * x).sum::<f32>().sqrt());
    x.to_caller(vec![norm])
}

#[test]
fn a_result_has_the_callers_type_and_goes_to_out_if_there_is_one() -> PyResult<()> {
    let _alone = IMPORTS.lock().unwrap_or_else(PoisonError::into_inner);
    Python::attach(|py| {
        let names = PyDict::new(py);
        names.set_item("np", py.import("numpy")?)?;
        for framework in ["torch", "jax.numpy"] {
            names.set_item(framework.replace('.', "_"), py.import(framework).ok())?;
        }
        names.set_item("double", wrap_pyfunction!(double, py)?)?;
        names.set_item("norm", wrap_pyfunction!(norm, py)?)?;
        let program = c"
def refused(error, text, function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except error as found:
        text_found = ' '.join([str(found), *getattr(found, '__notes__', [])])
        assert text in text_found, text_found
    else:
        raise AssertionError('accepted')

import sys
for arrays in filter(None, [np, torch, jax_numpy]):
    x = arrays.ones((2, 3), dtype=arrays.float32)
    doubled = double(x)
    assert type(doubled) is type(x) and doubled.tolist() == [[2] * 3] * 2
    assert type(norm(x[0])) is type(x)
    if arrays is not jax_numpy:
        out = arrays.zeros((3, 2), dtype=arrays.float32).T
        assert double(x, out) is out and out.tolist() == [[2] * 3] * 2
        assert double(x, out=out) is out
        halves = arrays.ones((4, 3), dtype=arrays.float32)
        double(halves[:2], out=halves[2:])
        assert halves.tolist() == [[1] * 3] * 2 + [[2] * 3] * 2
        refused(TypeError, 'another argument', double, x, x)
        refused(TypeError, 'another argument', double, halves[:2], halves[1:3])
    else:
        refused(TypeError, 'writable', double, x, x + 1)
x = np.ones((2, 3), 'float32')
refused(ValueError, 'out: expected shape [2, 3], found [3, 2]', double, x, np.zeros((3, 2), 'float32'))
refused(TypeError, 'expected float32[...] on the host, writable, found float64[2, 3]', double, x, np.zeros((2, 3)))
if sys.version_info >= (3, 11):
    refused(TypeError, \"'out'\", double, x, 1.5)
    refused(TypeError, \"'x'\", double, 'text')
# What is no array of a framework gets one of NumPy.
import array
assert type(double(array.array('f', [1, 2]))) is np.ndarray
";
        py.run(program, Some(&names), None)
    })
}

/// The sum of a tensor whose gradient would get lost.
#[pyfunction]
fn sum(x: PyTensorOf<f32, 1, NoGrad>) -> f32 {
    x.view().iter().sum()
}

/// Where the numbers above a limit are: as int64, with which every framework indexes.
#[pyfunction]
fn above<'py>(x: CallerArray<'py, f32, 1>, limit: f32) -> Result<Bound<'py, PyAny>> {
    let places = x.view().iter().enumerate().filter(|(_, value)| *value > limit);
    x.to_caller(places.map(|(index, _)| index as i64).collect::<Vec<_>>())
}

/// Runs lines with the functions, if the framework is installed.
fn with_framework(name: &str, program: &std::ffi::CStr) -> PyResult<()> {
    let _alone = IMPORTS.lock().unwrap_or_else(PoisonError::into_inner);
    Python::attach(|py| {
        let names = PyDict::new(py);
        let Ok(framework) = py.import(name) else {
            println!("skipped: {name} is not installed");
            return Ok(());
        };
        names.set_item("f", framework)?;
        names.set_item("sum", wrap_pyfunction!(sum, py)?)?;
        names.set_item("above", wrap_pyfunction!(above, py)?)?;
        py.run(program, Some(&names), None)
    })
}

#[test]
fn a_tensor_that_would_lose_its_gradient_is_refused() -> PyResult<()> {
    with_framework(
        "torch",
        c"
x = f.ones(3, requires_grad=True)
for tensor in [x, 2 * x]:
    try:
        sum(tensor)
    except BufferError as error:
        text = 'expected an array without gradients, found a torch.Tensor that requires grad: pass x.detach()'
        assert str(error) == text, error
    else:
        raise AssertionError('accepted')
assert sum(x.detach()) == 3
assert x[above(x, 0.5)].sum() == 3
",
    )
}

#[test]
fn narrowed_results_are_said_aloud() -> PyResult<()> {
    with_framework(
        "jax",
        c"
import warnings
x = f.numpy.ones(3, dtype='float32')
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    assert above(x, 0.5).dtype == 'int32'
assert [warning.category for warning in caught] == [UserWarning]
assert 'found int64, which it narrowed to int32; set jax.config.update(' in str(caught[0].message)
f.config.update('jax_enable_x64', True)
try:
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert above(x, 0.5).dtype == 'int64'
finally:
    f.config.update('jax_enable_x64', False)
",
    )
}
