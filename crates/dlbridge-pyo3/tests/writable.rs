//! Writing the caller's array in place, and what the constraint `Writable` refuses.
//! Other constraints are shown where they are documented.

use std::ffi::CStr;

use dlbridge::Parts;
use dlbridge_pyo3::{
    ANY_NDIM, Contiguous, ImportOptions, PyTensorMut, PyTensorOf, Result, Shape, TensorObject,
    Writable,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rayon::prelude::*;

type ToWrite = PyTensorMut<f32, 1>;

fn torch(py: Python<'_>) -> Option<Bound<'_, PyModule>> {
    let torch = py.import("torch").ok();
    if torch.is_none() {
        println!("skipped: torch is not installed");
    }
    torch
}

#[test]
fn a_tensor_that_requires_grad_is_read_but_not_written() {
    Python::attach(|py| {
        let Some(torch) = torch(py) else { return };
        let ones = || torch.call_method1("ones", (3,)).expect("a tensor");
        let leaf = ones().call_method0("requires_grad_").expect("floats have gradients");
        let inner = leaf.call_method1("__mul__", (2,)).expect("a product");
        let parameter = torch.getattr("nn").and_then(|nn| nn.call_method1("Parameter", (ones(),)));
        for tensor in [&leaf, &inner, &parameter.expect("a parameter")] {
            let error = PyErr::from(tensor.extract::<ToWrite>().map(drop).expect_err("refused"));
            assert!(error.is_instance_of::<PyTypeError>(py), "{error}");
            assert!(error.to_string().ends_with("requires grad: pass x.detach()"), "{error}");
            let both = tensor.extract::<PyTensorOf<f32, 1, (Contiguous, Writable)>>();
            assert!(both.is_err(), "in a tuple of constraints too");
            assert_eq!(tensor.extract::<PyTensorOf<f32, 1>>().expect("reading").len(), 3);
            let detached = tensor.call_method0("detach").expect("a tensor");
            assert_eq!(detached.extract::<ToWrite>().expect("writing").len(), 3);
        }
        assert_eq!(ones().extract::<ToWrite>().expect("no gradient").len(), 3);
    });
}

/// An array that an expression makes with a framework; `None` without the framework.
fn array<'py>(py: Python<'py>, framework: &str, source: &CStr) -> Option<Bound<'py, PyAny>> {
    let Ok(module) = py.import(framework) else {
        println!("skipped: {framework} is not installed");
        return None;
    };
    let names = PyDict::new(py);
    names.set_item("m", module).expect("a dict");
    Some(py.eval(source, Some(&names), None).expect("an array"))
}

fn values(array: &Bound<'_, PyAny>) -> Vec<Vec<f32>> {
    array.call_method0("tolist").and_then(|list| list.extract()).expect("two axes")
}

#[test]
fn arrays_of_any_layout_are_written_in_place() {
    Python::attach(|py| {
        let zeros = |framework: &str, source| array(py, framework, source);
        let arrays = [
            zeros("numpy", c"m.zeros((2, 3), 'float32')"),
            zeros("numpy", c"m.zeros((3, 2), 'float32').T"),
            zeros("numpy", c"m.zeros((4, 6), 'float32')[::-2, 1::2]"),
            zeros("torch", c"m.zeros(2, 3)"),
            zeros("torch", c"m.zeros(4, 6)[::2, 1::2]"),
        ];
        for array in arrays.into_iter().flatten() {
            let mut tensor: PyTensorMut<f32> = array.extract().expect("writable");
            let mut view = tensor.view_mut();
            assert_eq!((view.shape(), view.len(), view.is_empty()), (&[2, 3][..], 6, false));
            for (row, column) in (0..2).flat_map(|row| (0..3).map(move |column| (row, column))) {
                view.set([row, column], (3 * row + column) as f32).expect("it has this element");
            }
            // In no particular order.
            view.map_inplace(|value| value + 1.0);
            assert_eq!(values(&array), [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
            view.set([1, 2], 60.0).expect("it has this element");
            assert!(view.set([2, 0], 0.0).is_err());
            view.reborrow().select(0, 0).expect("a row").fill(7.0);
            view.reborrow().transpose().for_each_row(|mut column| {
                let top = column.get([0]).expect("an element");
                column.map_inplace(|value| value - top);
            });
            assert_eq!(view.as_view().to_vec(), [0.0, 0.0, 0.0, -3.0, -2.0, 53.0]);
            let (mut front, mut back) = view.split_at(1, 1).expect("three columns");
            front.copy_from_slice(&[1.0, 2.0]).expect("two elements");
            assert!(front.copy_from_slice(&[1.0]).is_err());
            back.fill(3.0);
            assert_eq!(values(&array), [[1.0, 3.0, 3.0], [2.0, 3.0, 3.0]]);
        }
    });
}

#[test]
fn python_writes_and_reads_between_two_calls_of_a_view() {
    Python::attach(|py| {
        let Some(array) = array(py, "numpy", c"m.zeros((1, 2), 'float32')") else { return };
        let mut tensor: PyTensorOf<f32, 2, (Contiguous, Writable)> =
            array.extract().expect("writable");
        let mut view = tensor.view_mut();
        view.fill(1.0);
        array.call_method1("__imul__", (3.0,)).expect("NumPy writes");
        view.map_inplace(|value| value + 1.0);
        assert_eq!((view.get([0, 1]), values(&array)), (Some(4.0), vec![vec![4.0, 4.0]]));
    });
}

#[test]
fn immutable_arrays_are_not_written() {
    Python::attach(|py| {
        let arrays = [
            array(py, "numpy", c"m.broadcast_to(m.float32(1), (3,))"),
            array(py, "jax.numpy", c"m.zeros(3, 'float32')"),
        ];
        for array in arrays.into_iter().flatten() {
            let error = PyErr::from(array.extract::<ToWrite>().map(drop).expect_err("read-only"));
            assert!(error.is_instance_of::<PyTypeError>(py), "{error}");
            assert!(error.to_string().contains(", writable, found float32[3] on cpu"), "{error}");
        }
    });
}

/// `PyTensorMut` accepted elements that overlap: `v + 1` in place counted the one element of
/// `torch.ones(1).expand(5)` five times.
#[test]
fn elements_that_overlap_are_not_written() {
    Python::attach(|py| {
        let cases = [
            ("torch", c"m.ones(1).expand(5)", false),
            ("torch", c"m.ones(1).expand(1)", true),
            ("torch", c"m.ones(4).as_strided((2, 2), (1, 1))", false),
            ("torch", c"m.ones(4).as_strided((0, 2), (1, 1))", true),
            ("torch", c"m.ones(4, 1)[:, :0].expand(4, 0)", true),
            ("torch", c"m.ones(3, 4).t()[1:, ::2]", true),
            ("numpy", c"m.lib.stride_tricks.as_strided(m.ones(5, 'f4'), (3, 3), (4, 4))", false),
            (
                "numpy",
                c"m.lib.stride_tricks.as_strided(m.ones(5, 'f4')[3:], (2, 2), (-4, -4))",
                false,
            ),
            ("numpy", c"m.lib.stride_tricks.as_strided(m.ones(5, 'f4'), (2,), (0,))", false),
            ("numpy", c"m.lib.stride_tricks.as_strided(m.ones(5, 'f4'), (1,), (0,))", true),
            ("numpy", c"m.ones((2, 3, 4), 'f4').transpose(2, 0, 1)[::-1]", true),
            ("numpy", c"m.ones((), 'f4')", true),
        ];
        for (framework, source, is_accepted) in cases {
            let Some(array) = array(py, framework, source) else { continue };
            let error = match (array.extract::<PyTensorMut<f32>>(), is_accepted) {
                (Ok(_), true) => continue,
                (Err(error), false) => PyErr::from(error),
                (found, _) => panic!("{source:?}: {found:?}"),
            };
            assert!(error.is_instance_of::<PyTypeError>(py), "{error}");
            let text = error.to_string();
            assert!(
                text.contains(", elements that may overlap; pass a copy: np.array(x)"),
                "{text}"
            );
            array.extract::<PyTensorOf<f32>>().expect("reading");
        }
    });
}

#[test]
fn a_copy_to_write_to_is_where_the_result_is() {
    Python::attach(|py| {
        type Result = PyTensorOf<f64, 1, (Contiguous, Writable)>;
        let cases = [
            (c"m.ones(4)[::2]", "pass np.ascontiguousarray(x), and read the result from that copy"),
            (c"m.broadcast_to(1.0, 1)", "x.clone(), and read the result from that copy"),
            (
                c"m.broadcast_to(m.float32(1), 1)",
                "x.to(torch.float64), and read the result from that copy",
            ),
            (c"m.ones((4, 4))[::2]", "with 1 axis, and read the result from that copy"),
            // A view.
            (c"m.ones((4, 4))", "pass x.reshape(...) with 1 axis"),
        ];
        for (source, expected) in cases {
            let Some(array) = array(py, "numpy", source) else { return };
            let error = array.extract::<Result>().map(drop).expect_err("refused").to_string();
            assert!(error.ends_with(expected), "{error}");
            // A function that reads needs no result.
            let read =
                array.extract::<PyTensorOf<f32, 3, Contiguous>>().map(drop).expect_err("refused");
            assert!(!read.to_string().contains("result"), "{read}");
        }
    });
}

#[test]
fn an_object_says_whether_python_may_write_to_its_memory() {
    Python::attach(|py| {
        let cases = [
            ("numpy", c"m.ones(3)", None),
            (
                "numpy",
                c"m.broadcast_to(m.ones(()), 3)",
                Some("expected writable memory, found read-only"),
            ),
            ("numpy", c"m.ones(3).__dlpack__()", Some("JAX or from a legacy capsule")),
            ("torch", c"m.ones(3, requires_grad=True)", Some("requires grad: pass x.detach()")),
        ];
        for (framework, source, expected) in cases {
            let Some(array) = array(py, framework, source) else { continue };
            let object = TensorObject::import(array.as_borrowed(), ImportOptions::default());
            match (object.expect("a tensor").check_writable(), expected) {
                (Ok(()), None) => {}
                (Err(error), Some(expected)) => {
                    let error = PyErr::from(error);
                    let is_of_gradient = expected.starts_with("requires grad");
                    assert_eq!(error.is_instance_of::<PyTypeError>(py), is_of_gradient, "{error}");
                    assert!(error.to_string().contains(expected), "{error}");
                }
                (found, expected) => panic!("{source:?}: expected {expected:?}, found {found:?}"),
            }
        }
    });
}

// Fixed extents beside free ones, and parallel loops while detached, with real arrays of NumPy.

const CHANNELS: i64 = 3;

type Picture = PyTensorOf<u8, 3, Shape![_, _, CHANNELS]>;
type TwoRows = PyTensorOf<u8, 3, (Contiguous, Shape![2, _, 3], Writable)>;
type OfAnyNdim = PyTensorOf<u8, ANY_NDIM, Shape![4]>;

fn zeros<'py>(py: Python<'py>, shape: &[usize]) -> Option<Bound<'py, PyAny>> {
    let Ok(numpy) = py.import("numpy") else {
        println!("skipped: numpy is not installed");
        return None;
    };
    Some(numpy.call_method1("zeros", (shape.to_vec(), "uint8")).expect("an array"))
}

fn refusal<'py, T: for<'a> FromPyObject<'a, 'py, Error = dlbridge_pyo3::Error>>(
    array: &Bound<'py, PyAny>,
) -> String {
    let error = PyErr::from(array.extract::<T>().map(drop).expect_err("refused"));
    assert!(error.is_instance_of::<PyTypeError>(array.py()), "{error}");
    error.to_string()
}

#[test]
fn a_shape_of_fixed_and_free_extents_is_required() {
    Python::attach(|py| {
        for (shape, found) in [(&[4, 5, 4][..], "[4, 5, 4]"), (&[5, 3], "[5, 3]"), (&[3], "[3]")] {
            let Some(array) = zeros(py, shape) else { return };
            let wanted = format!("expected uint8[?, ?, 3] on the host, found uint8{found} on cpu");
            let message = refusal::<Picture>(&array);
            assert!(message.contains(&wanted), "{message}");
        }
        let picture = zeros(py, &[4, 0, 3]).expect("NumPy");
        assert_eq!(picture.extract::<Picture>().expect("three channels").extents(), [4, 0, 3]);

        let picture = zeros(py, &[2, 5, 3]).expect("NumPy");
        let mut to_write: TwoRows = picture.extract().expect("two rows, three channels");
        to_write.view_mut().fill(1);
        let transposed = zeros(py, &[3, 5, 2]).expect("NumPy").getattr("T").expect("an array");
        let message = refusal::<TwoRows>(&transposed);
        let wanted =
            "expected uint8[2, ?, 3] on the host, contiguous, writable, found uint8[2, 5, 3]";
        assert!(message.contains(wanted), "{message}");

        assert_eq!(zeros(py, &[4]).expect("NumPy").extract::<OfAnyNdim>().expect("four").len(), 4);
        let message = refusal::<OfAnyNdim>(&zeros(py, &[4, 1]).expect("NumPy"));
        let wanted = "expected uint8[4] on the host, found uint8[4, 1] on cpu";
        assert!(message.contains(wanted), "{message}");
    });
}

#[test]
fn arrays_are_computed_with_on_many_threads_while_detached() -> Result<()> {
    Python::attach(|py| {
        let source = c"m.arange(60000, dtype='float32').reshape(200, 300)[::-1, ::3]";
        let names = PyDict::new(py);
        let Ok(numpy) = py.import("numpy") else {
            println!("skipped: numpy is not installed");
            return Ok(());
        };
        names.set_item("m", numpy)?;
        let array = py.eval(source, Some(&names), None)?;
        let x: PyTensorOf<f32, 2> = array.extract()?;
        let (doubled, sums) = py.detach(|| -> Result<_> {
            let view = x.view();
            let sums: Vec<f64> =
                view.par_rows().map(|row| row.iter().map(f64::from).sum()).collect();
            Ok((view.par_map_to_tensor(|x| 2.0 * x)?, sums))
        })?;
        assert_eq!(doubled.as_slice::<f32>()?, x.view().map(|x| 2.0 * x));
        let wanted: Vec<f64> = array.call_method1("sum", (1, "float64"))?.extract()?;
        assert_eq!(sums, wanted);
        Ok(())
    })
}
