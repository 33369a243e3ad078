//! An argument that keeps the caller's object, and functions with an `out` argument.

use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

use dlbridge_pyo3::{
    ANY_NDIM, CallerArray, NoGrad, PyTensor, PyTensorLike, PyTensorOf, Result, Writable,
};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Frameworks fail where a second thread imports them before the first is done. Held before a thread attaches.
static IMPORTS: Mutex<()> = Mutex::new(());

type Out<'py> = Option<CallerArray<'py, f32, ANY_NDIM, Writable>>;

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
fn with_framework(name: &str, program: &CStr) -> PyResult<()> {
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
    except TypeError as error:
        text = 'expected an array without gradients, found a torch.Tensor that requires grad: pass x.detach()'
        # Older PyO3 names the argument.
        assert str(error).removeprefix(\"argument 'x': \") == text, error
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

// Arguments that are converted, and results for callers without a framework.

/// The value of an expression that may name NumPy as `np`.
fn value<'py>(py: Python<'py>, source: &CStr) -> Bound<'py, PyAny> {
    let names = PyDict::new(py);
    for (name, module) in [("np", "numpy"), ("array", "array")] {
        names.set_item(name, py.import(module).expect("it is installed")).expect("a dict");
    }
    py.eval(source, Some(&names), None).expect("a value")
}

#[test]
fn what_numpy_converts_is_accepted() {
    Python::attach(|py| {
        for source in [
            c"[1, 2, 3]",
            c"(1.0, 2, 3)",
            c"range(1, 4)",
            c"np.array([1, 2, 3])",
            c"np.array([1, 2, 3], 'float16')",
            c"np.array([1, 2, 3], '>f4')",
            c"np.array([1, 2, 3], '>i2')",
            c"[np.float64(1), 2, True + True + True]",
            c"array.array('d', [1, 2, 3])",
            c"memoryview(bytes([1, 2, 3]))",
        ] {
            let like: PyTensorLike<f32, 1> = value(py, source).extract().expect("numbers");
            assert_eq!(like.view().to_vec(), [1.0, 2.0, 3.0], "{source:?}");
        }
        let empty: PyTensorLike<i32, 1> = value(py, c"[]").extract().expect("no numbers");
        assert_eq!(empty.len(), 0);
        let number: PyTensorLike<i64, 0> = value(py, c"7").extract().expect("a number");
        assert_eq!(number.view().to_vec(), [7]);
        let wide = value(py, c"np.array([2**64 - 1], 'uint64')");
        assert_eq!(
            wide.extract::<PyTensorLike<u64>>().expect("the same").view().to_vec(),
            [u64::MAX]
        );
        assert!(wide.extract::<PyTensorLike<i64>>().is_err());
        let bytes: PyTensorLike<u8, 2> = value(py, c"[[0, 255]]").extract().expect("bytes");
        assert_eq!(bytes.view().to_vec(), [0, 255]);
    });
}

#[test]
fn an_array_of_the_dtype_is_not_copied() {
    Python::attach(|py| {
        let array = value(py, c"np.arange(4.0)[::2]");
        let like: PyTensorLike<f64> = array.extract().expect("an array");
        let address: usize =
            array.getattr("ctypes").and_then(|c| c.getattr("data")?.extract()).expect("it has one");
        assert_eq!((like.data_ptr().addr(), like.strides()), (address, &[2_i64][..]));
    });
}

#[test]
fn what_would_lose_its_kind_is_refused() {
    Python::attach(|py| {
        let refused =
            |source| PyErr::from(value(py, source).extract::<PyTensorLike<u8, 1>>().unwrap_err());
        for source in [c"[1.5]", c"np.array([1.5])", c"[True, 1.0]", c"[1j]", c"[2**70]"] {
            let error = refused(source);
            assert!(error.is_instance_of::<PyTypeError>(py), "{source:?}: {error}");
            assert!(error.to_string().contains("expected uint8, found "), "{error}");
        }
        for source in
            [c"[300]", c"[-1]", c"np.array([300])", c"array.array('h', [-1])", c"[np.int64(256)]"]
        {
            let error = refused(source);
            assert!(error.is_instance_of::<PyOverflowError>(py), "{source:?}: {error}");
        }
        assert!(refused(c"[[1]]").to_string().contains("expected uint8[?] on the host"));
        assert!(refused(c"[[1], [2, 3]]").is_instance_of::<PyValueError>(py));
        let text = refused(c"['abc']").to_string();
        assert!(text.ends_with("found str at index [0] of the list; pass numbers"), "{text}");
        assert!(refused(c"None").is_instance_of::<PyTypeError>(py));
    });
}

/// The errors named the dtype of the whole list, so that the caller had to look for the item.
#[test]
fn a_bad_item_of_a_list_is_named_with_its_index() {
    Python::attach(|py| {
        for (source, expected) in [
            (
                c"[[1, 2], [3, None]]",
                "expected uint8, found NoneType at index [1, 1] of the list; pass numbers",
            ),
            (
                c"(1.5, 'x', 'y')",
                "expected uint8, found str at index [1] of the tuple; pass numbers",
            ),
            (c"[1, {}]", "expected uint8, found dict at index [1] of the list; pass numbers"),
            (
                c"[1, 2**70]",
                "expected uint8, found list, which NumPy reads as object; pass numbers",
            ),
            (
                c"np.array([1, None])",
                "expected uint8, found ndarray, which NumPy reads as object; pass numbers",
            ),
            (c"[[1, 2], [255, 256]]", "expected numbers within uint8, found 256 at index [1, 1]"),
            (c"np.int64(-1)", "expected numbers within uint8, found -1"),
        ] {
            let error = PyErr::from(value(py, source).extract::<PyTensorLike<u8>>().unwrap_err());
            assert!(error.to_string().ends_with(expected), "{source:?}: {error}");
        }
    });
}

#[pyfunction]
fn shared(x: PyTensor) -> Result<f64> {
    Ok(x.view::<f64>()?.iter().sum())
}

#[pyfunction]
fn like(x: PyTensorLike<f64>) -> f64 {
    x.view().iter().sum()
}

/// `PyTensorLike` asked NumPy for what `PyTensor` had just refused: masked elements, memory without
/// values.
#[test]
fn what_an_array_refuses_is_not_converted() -> PyResult<()> {
    Python::attach(|py| {
        let names = PyDict::new(py);
        names.set_item("np", py.import("numpy")?)?;
        names.set_item("torch", py.import("torch").ok())?;
        names.set_item("pa", py.import("pyarrow").ok())?;
        names.set_item("shared", wrap_pyfunction!(shared, py)?)?;
        names.set_item("like", wrap_pyfunction!(like, py)?)?;
        let program = c"
def error(function, x):
    try:
        function(x)
    except BaseException as error:
        return type(error), str(error).removeprefix(\"argument 'x': \")
    raise AssertionError(f'accepted {type(x)}')

class Raises:
    def __init__(self, error):
        self.error = error
    def __dlpack__(self, **_):
        raise self.error
    def __array__(self, *_, **__):
        return np.ones(3)

class RaisesInside(Raises):
    def __dlpack__(self, **_):
        return self.missing

class ArrayOnly:
    def __array__(self, *_, **__):
        return np.ones(3)

refused = [
    np.ma.array([1.0, 1e300, 2.0], mask=[0, 1, 0]),
    *map(Raises, [MemoryError('no'), BufferError('grad'), ValueError(), TypeError('no'), KeyError(1), KeyboardInterrupt()]),
    Raises(AttributeError('inside')),
    RaisesInside(None),
]
if torch:
    refused += [
        torch.ones(3, dtype=torch.complex128).conj().imag,
        torch.ones(3, dtype=torch.complex128).conj(),
        torch._efficientzerotensor(3, dtype=torch.float64),
        torch.ones(3, dtype=torch.float64).to_sparse(),
    ]
    class Derived(torch.Tensor):
        pass
    refused.append(torch.ones(3, dtype=torch.complex128).conj().imag.as_subclass(Derived))
    found = []
    def within(x):
        found.append((error(shared, x), error(like, x)))
        return x
    torch.func.functionalize(within)(torch.full((3,), 7.0, dtype=torch.float64))
    assert found[0][0] == found[0][1], found
if pa:
    refused += [pa.array([1.0, None]), pa.chunked_array([[1.0, None], [2.0]])]
for x in refused:
    assert error(shared, x) == error(like, x), (error(shared, x), error(like, x))

# No protocol, or another dtype.
assert like(ArrayOnly()) == 3
assert like(np.ma.array([1.0, 2.0])) == 3
assert like(np.ma.array([1, 2])) == 3
assert like(np.array([1, 2], '>f8')) == 3
assert like(memoryview(np.array([1, 2], '>i2'))) == 3
assert like(np.array([1, 2], np.longdouble)) == 3
if pa:
    assert like(pa.chunked_array([[True, False]])) == 1
    assert like(pa.chunked_array([[1, 2]])) == 3
    assert like(pa.table({'x': [1.0, 2.0], 'y': [3.0, 4.0]})) == 10
if torch:
    assert like(torch.ones(3)) == 3
    assert like(torch.ones(3, dtype=torch.int8)) == 3
";
        py.run(program, Some(&names), None)
    })
}

#[test]
fn a_caller_without_a_framework_gets_a_numpy_array() {
    Python::attach(|py| {
        let ndarray = value(py, c"np.ndarray");
        for source in
            [c"b'abc'", c"bytearray(3)", c"memoryview(b'abc')", c"array.array('B', [1])", c"[1]"]
        {
            let caller = value(py, source);
            let tensor = PyTensor::new(vec![1.5_f32, 2.5]);
            let address = tensor.data_ptr().addr();
            let array = tensor.to_caller(&caller).expect("NumPy is installed");
            assert!(array.is_instance(&ndarray).expect("a class"), "{source:?}");
            let back: PyTensor = array.extract().expect("an array");
            assert_eq!(back.data_ptr().addr(), address);
            let frozen = PyTensor::new(std::sync::Arc::<[u8]>::from([1, 2]));
            let array = frozen.to_caller(&caller).expect("NumPy keeps the flag");
            let flags = array.getattr("flags").expect("an array has them");
            assert!(!flags.getattr("writeable").and_then(|flag| flag.is_truthy()).expect("a bool"));
        }
    });
}
