//! Slices and arrays over the caller's memory, for an extension that promises that it does not change.
#![allow(unsafe_code, reason = "the promise")]

use dlbridge::Access;
use dlbridge_pyo3::{
    ANY_NDIM, AnyContiguous, CallerArray, ColumnMajor, Constraint, CopyMode, ImportOptions,
    Metadata, Promised, PyTensor, PyTensorOf, Result, StableArguments, ToWrite, Writable, import,
};
use ndarray::{ArrayView1, ArrayView2, ArrayViewD, ArrayViewMut2, Axis};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

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
fn count(mask: PyTensorOf<bool, ANY_NDIM, Stable>) -> Result<usize> {
    Ok(mask.as_bools()?.iter().filter(|&&is_set| is_set).count())
}

#[pyfunction]
fn ndim(x: PyTensorOf<f32, ANY_NDIM, Stable>) -> Result<usize> {
    Ok(x.as_array::<ArrayViewD<f32>>()?.ndim())
}

#[pyfunction]
fn in_memory(x: PyTensorOf<f64, ANY_NDIM, (Stable, AnyContiguous)>) -> Result<Vec<f64>> {
    Ok(x.as_slice_memory_order()?.to_vec())
}

#[pyfunction]
fn columns(x: PyTensorOf<f64, 2, (Stable, ColumnMajor)>) -> Result<Vec<f64>> {
    Ok(x.as_slice_memory_order()?.to_vec())
}

#[pyfunction]
fn number(mut x: PyTensorOf<f64, ANY_NDIM, (Stable, AnyContiguous, Writable)>) -> Result<()> {
    let values = x.as_slice_memory_order_mut()?;
    values.iter_mut().enumerate().for_each(|(index, value)| *value = index as f64);
    Ok(())
}

/// A marker that accepts read-only memory, and says that it does not.
struct SaysWritable;

impl Constraint for SaysWritable {
    const WRITABLE: bool = true;

    fn is_met(_: Metadata<'_>) -> bool {
        true
    }

    fn name(_: &mut String) {}
}

// SAFETY: no other thread has the arrays of this program.
unsafe impl Promised for SaysWritable {}

impl ToWrite for SaysWritable {}

#[test]
fn booleans_are_written_in_place() {
    Python::attach(|py| -> Result<()> {
        let numpy = py.import("numpy")?;
        let bytes = numpy.call_method1("array", ([0, 1, 2], "uint8"))?;
        let array = bytes.call_method1("view", ("bool",))?;
        let mut mask: PyTensorOf<bool, 1, (Stable, Writable)> = array.extract()?;
        assert!(mask.as_bools_mut().expect_err("no boolean").to_string().contains("found 2"));
        bytes.set_item(2, 0)?;
        mask.as_bools_mut()?.iter_mut().for_each(|flag| *flag = !*flag);
        assert_eq!(bytes.call_method0("tolist")?.extract::<Vec<u8>>()?, [1, 0, 1]);
        drop(mask);
        let columns = numpy.call_method1("zeros", ((2, 3), "bool"))?.getattr("T")?;
        let mut mask: PyTensorOf<bool, 2, (Stable, Writable)> = columns.extract()?;
        mask.as_bools_mut().expect_err("in column-major order");
        let mut mask: PyTensorOf<bool, 1, (Stable, Writable)> =
            numpy.call_method1("zeros", (0, "bool"))?.extract()?;
        assert!(mask.as_bools_mut()?.is_empty());
        let bytes = numpy.call_method1("frombuffer", (PyBytes::new(py, &[0]), "bool"))?;
        let mut mask: PyTensorOf<bool, 1, SaysWritable> = bytes.extract()?;
        mask.as_bools_mut().expect_err("read-only");
        Ok(())
    })
    .expect("an array");
}

#[test]
fn an_argument_is_shown_with_a_marker_that_is_not() {
    Python::attach(|py| {
        let x = py
            .import("numpy")
            .and_then(|numpy| numpy.call_method1("ones", (2,)))
            .expect("an array");
        let tensor: ArrayMut<f64, 1> = x.extract().expect("an argument");
        assert!(format!("{tensor:?}").starts_with("PyTensorOf(Tensor {"), "{tensor:?}");
        drop(tensor);
        let array: CallerArray<'_, f64, 1, Stable> = x.extract().expect("an argument");
        assert!(format!("{array:?}").starts_with("CallerArray(PyTensorOf(Tensor {"), "{array:?}");
    });
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
        module.add_function(wrap_pyfunction!(ndim, py)?)?;
        module.add_function(wrap_pyfunction!(in_memory, py)?)?;
        module.add_function(wrap_pyfunction!(columns, py)?)?;
        module.add_function(wrap_pyfunction!(number, py)?)?;
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
assert m.ndim(np.float32(0).reshape(())) == 0 and m.ndim(np.zeros((1,) * 8, 'float32')) == 8

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
refused(TypeError, 'elements that may overlap', m.double, windows)
out = np.zeros(4)[::2]
refused(BufferError, 'np.ascontiguousarray(x), or another framework\\'s x.contiguous(), and read the result', m.product, matrix, matrix[0].copy(), out)
refused(TypeError, 'writable', m.double, np.broadcast_to(x, (2, 6)))
if torch:
    tensor = torch.ones(2, 3, dtype=torch.float64)
    m.double(tensor)
    assert m.array_sum(tensor.T) == 12

cube = np.arange(24.0).reshape(2, 3, 4)
for layout in [cube, cube.T, cube[:1], cube[1], cube[1].T, cube[0, 0], cube[0, 0, 0:0], np.array(1.0)]:
    assert m.in_memory(layout) == layout.ravel('K').tolist()
    m.number(layout.copy('K'))
refused(TypeError, 'contiguous in either order, found', m.in_memory, cube.transpose(0, 2, 1))
refused(TypeError, 'contiguous in either order, found', m.in_memory, cube[..., ::2])
refused(TypeError, 'contiguous in either order, found', m.in_memory, cube[::-1])
m.number(cube.T)
assert (cube.ravel() == np.arange(24)).all()
assert m.columns(cube[0].T) == list(range(12))
refused(TypeError, 'pass np.asfortranarray(x)', m.columns, cube[0])

assert m.count(np.array([True, False, True])) == 2 and m.count(np.zeros((0, 2), bool)) == 0
refused(BufferError, 'found 2', m.count, np.array([0, 2], 'uint8').view(bool))
refused(BufferError, 'np.ascontiguousarray(x)', m.count, np.zeros(4, bool)[::2])
";
        py.run(program, Some(&names), None)
    })
}

// A producer's copy (`IS_COPIED`) gives no slice: Python code may have kept the copy.

/// NumPy shows each copy that it makes to `__array_finalize__`.
const KEEPS: &std::ffi::CStr = c"
import numpy

kept = []

class Keeps(numpy.ndarray):
    def __array_finalize__(self, obj):
        kept.append(self)

    def __dlpack__(self, **keywords):
        return super().__dlpack__(max_version=(1, 0), copy=True)

array = numpy.ones(3).view(Keeps)
";

/// Writes to the copy that NumPy exported last.
fn write(module: &Bound<'_, PyModule>, value: f64) {
    let kept = module.getattr("kept").and_then(|kept| kept.get_item(-1)).expect("NumPy's copy");
    kept.call_method1("fill", (value,)).expect("a writable copy");
}

fn module(py: Python<'_>) -> Option<Bound<'_, PyModule>> {
    if py.import("numpy").is_err() {
        println!("skipped: numpy is not installed");
        return None;
    }
    Some(PyModule::from_code(py, KEEPS, c"keeps.py", c"keeps").expect("it runs"))
}

fn is_refused<T>(result: std::result::Result<T, dlbridge::Error>) -> bool {
    matches!(result, Err(dlbridge::Error::SharedMemory))
}

#[test]
fn a_copy_that_numpy_showed_to_a_subclass_is_shared() {
    Python::attach(|py| {
        let Some(module) = module(py) else { return };
        let array = module.getattr("array").expect("an array");
        let tensor: PyTensor = array.extract().expect("a producer");
        assert!(tensor.is_copied());
        let mut tensor = tensor.into_inner();
        assert!(is_refused(tensor.as_slice::<f64>()));
        assert!(is_refused(tensor.as_slice_mut::<f64>()));
        write(&module, 42.0);
        let values = tensor.view::<f64>().expect("host memory").to_vec();
        assert_eq!(values, [42.0; 3], "Python has the same memory");
    });
}

#[test]
fn a_copy_that_is_asked_for_is_made_by_rust() {
    Python::attach(|py| {
        let Some(module) = module(py) else { return };
        let array = module.getattr("array").expect("an array");
        let options = ImportOptions { copy: CopyMode::Always, ..ImportOptions::default() };
        let tensor = import(array.as_borrowed(), options).expect("a copy").tensor;
        assert_eq!((tensor.access(), tensor.is_copied()), (Access::Exclusive, true));
        write(&module, 42.0);
        assert_eq!(tensor.as_slice::<f64>(), Ok(&[1.0; 3][..]));
    });
}
