//! Fixed extents beside free ones, and parallel loops while detached, with real arrays of NumPy.

use dlbridge_pyo3::{ANY_RANK, Contiguous, PyTensorOf, Result, Shape, Writable};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use rayon::prelude::*;

const CHANNELS: i64 = 3;

type Picture = PyTensorOf<u8, 3, Shape![_, _, CHANNELS]>;
type ToWrite = PyTensorOf<u8, 3, (Contiguous, Writable, Shape![2, _, 3])>;
type OfAnyRank = PyTensorOf<u8, ANY_RANK, Shape![4]>;

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
        let mut to_write: ToWrite = picture.extract().expect("two rows, three channels");
        to_write.view_mut().fill(1);
        let transposed = zeros(py, &[3, 5, 2]).expect("NumPy").getattr("T").expect("an array");
        let message = refusal::<ToWrite>(&transposed);
        let wanted =
            "expected uint8[2, ?, 3] on the host, contiguous, writable, found uint8[2, 5, 3]";
        assert!(message.contains(wanted), "{message}");

        assert_eq!(zeros(py, &[4]).expect("NumPy").extract::<OfAnyRank>().expect("four").len(), 4);
        let message = refusal::<OfAnyRank>(&zeros(py, &[4, 1]).expect("NumPy"));
        let wanted = "expected uint8[4] on the host, found uint8[4, 1] on cpu";
        assert!(message.contains(wanted), "{message}");
    });
}

#[test]
fn arrays_are_computed_with_on_many_threads_while_detached() -> Result<()> {
    Python::attach(|py| {
        let source = c"m.arange(60000, dtype='float32').reshape(200, 300)[::-1, ::3]";
        let names = pyo3::types::PyDict::new(py);
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
