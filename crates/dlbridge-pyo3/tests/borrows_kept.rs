//! Tensors that Rust keeps beside arguments: no argument writes their memory meanwhile.
//! Arguments among themselves are in `borrows.rs`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dlbridge::{ArcTensor, Parts, Tensor};
use dlbridge_pyo3::{
    ExportDlpack, ImportOptions, PyTensor, PyTensorMut, Result, TensorObject, dlpack_methods,
    import,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

fn zeros(py: Python<'_>, len: usize) -> Bound<'_, PyAny> {
    let numpy = py.import("numpy").expect("NumPy");
    numpy.call_method1("zeros", (len, "uint64")).expect("an array")
}

/// The same memory as objects of each way to import: a NumPy array, a tensor of PyTorch, a buffer, a
/// `dlbridge.Tensor` and a list of one part.
fn objects<'py>(array: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
    let py = array.py();
    let mut objects = vec![array.clone()];
    match py.import("torch") {
        Ok(torch) => objects.push(torch.call_method1("from_numpy", (array,)).expect("a tensor")),
        Err(_) => println!("without torch"),
    }
    let bytes = py.import("builtins").and_then(|names| names.call_method1("memoryview", (array,)));
    objects.push(bytes.expect("a buffer"));
    let imported = TensorObject::import(array.as_borrowed(), ImportOptions::default());
    objects.push(Bound::new(py, imported.expect("a tensor")).expect("an object").into_any());
    objects
}

fn kept(object: &Bound<'_, PyAny>) -> Tensor {
    import(object.as_borrowed(), ImportOptions::default()).expect("readable").tensor
}

/// The message of a refusal to write, if it is refused.
fn refusal(object: &Bound<'_, PyAny>) -> Option<String> {
    let error = PyErr::from(object.extract::<PyTensorMut<u64>>().err()?);
    assert!(error.is_instance_of::<PyTypeError>(object.py()), "{error}");
    Some(error.to_string())
}

fn may_write(object: &Bound<'_, PyAny>) -> bool {
    refusal(object).is_none()
}

/// Counts torn values, read from a tensor while an argument over the same memory is written on another
/// thread; or says that the argument is refused.
fn torn(tensor: &Tensor, to_write: &Bound<'_, PyAny>) -> std::result::Result<usize, PyErr> {
    let mut to_write: PyTensorMut<u64> = to_write.extract()?;
    let is_done = AtomicBool::new(false);
    let view = tensor.view::<u64>().expect("uint64");
    Ok(to_write.py_detached(|to_write| {
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..1000 {
                    to_write.view_mut().fill(if round % 2 == 0 { u64::MAX } else { 0 });
                }
                is_done.store(true, Ordering::Relaxed);
            });
            let mut torn = 0;
            while !is_done.load(Ordering::Relaxed) {
                torn += view.iter().filter(|&value| value != 0 && value != u64::MAX).count();
            }
            torn
        })
    }))
}

/// Detached, so that other threads can attach meanwhile.
trait Detached: Sized + Send {
    fn py_detached<R: Send>(&mut self, work: impl FnOnce(&mut Self) -> R + Send) -> R;
}

impl Detached for PyTensorMut<u64> {
    fn py_detached<R: Send>(&mut self, work: impl FnOnce(&mut Self) -> R + Send) -> R {
        Python::attach(|py| py.detach(|| work(self)))
    }
}

/// A tensor from an earlier call (from `import`, `into_inner`, a clone of an `ArcTensor`) was read
/// on a thread while an argument over the same memory was written.
#[test]
fn an_imported_tensor_is_not_read_on_a_thread_while_an_argument_is_written() {
    Python::attach(|py| {
        let array = zeros(py, 1000);
        for kept_of in &objects(&array) {
            let tensor = kept(kept_of);
            for object in &objects(&array)[..2] {
                torn(&tensor, object).expect_err("refused");
            }
            let argument = array.extract::<PyTensor>().expect("readable").into_inner();
            torn(&argument, &array).expect_err("refused");
        }
        // What only Python has is written.
        assert!(objects(&array)[..2].iter().all(may_write));
    });
}

#[test]
fn the_error_says_that_rust_keeps_a_tensor_and_what_to_do() {
    Python::attach(|py| {
        let array = zeros(py, 6).call_method1("reshape", (2, 3)).expect("an array");
        let tensor = kept(&array);
        let message = refusal(&array.get_item(0).expect("a row")).expect("refused");
        let address = format!("{:#x}", tensor.data_ptr().addr());
        assert!(message.contains("a tensor that Rust keeps, 48 bytes at"), "{message}");
        assert!(message.contains(&address) && message.contains("found uint64[3] at"), "{message}");
        assert!(message.contains("delete the object that keeps it"), "{message}");
    });
}

#[test]
fn a_borrow_lives_as_long_as_any_handle_or_part_in_rust() {
    Python::attach(|py| {
        for of in 0..objects(&zeros(py, 4)).len() {
            let array = zeros(py, 4);
            let tensor = kept(&objects(&array)[of]);
            let shared = tensor.into_shared();
            let (clone, part) = (shared.clone(), shared.slice(0, 1..2).expect("inside"));
            let frozen = Tensor::from(shared.clone()).into_frozen();
            drop(shared);
            assert!(!may_write(&array));
            let flipped = part.flip(0).expect("an axis");
            drop((clone, frozen, part));
            assert!(!may_write(&array), "a part keeps the whole");
            // On another thread, which is not attached.
            py.detach(|| thread::spawn(move || drop(flipped)).join().expect("no panic"));
            assert!(may_write(&array), "{of}");
            // Through the part alone, owned.
            let part = kept(&array).slice(0, 2..).expect("inside");
            assert!(!may_write(&array));
            drop(part);
            assert!(may_write(&array));
        }
    });
}

#[test]
fn what_rust_gives_back_is_borrowed_only_while_rust_keeps_it_as_well() {
    Python::attach(|py| {
        for of in 0..objects(&zeros(py, 4)).len() {
            let array = zeros(py, 4);
            let object = &objects(&array)[of];
            // Given up, as it is or a part of it.
            let result = PyTensor::new(kept(object)).into_pyobject(py).expect("an object");
            let part = kept(object).slice(0, 1..3).expect("inside");
            let part = PyTensor::new(part).into_numpy(py).expect("an array");
            assert!(may_write(&array) && may_write(result.as_any()) && may_write(&part), "{of}");
            // Kept as well.
            let shared = kept(object).into_shared();
            let part = shared.slice(0, 1..).expect("inside");
            let results = [
                PyTensor::new(shared.clone()).into_pyobject(py).expect("an object").into_any(),
                PyTensor::new(shared.clone()).into_numpy(py).expect("an array"),
                PyTensor::new(part).to_caller(&array).expect("an array"),
            ];
            assert!(results.iter().all(|result| !may_write(result)) && !may_write(&array), "{of}");
            drop(shared);
            assert!(results.iter().all(may_write) && may_write(&array), "{of}");
            assert_eq!(results[2].len().expect("a length"), 3);
        }
    });
}

#[test]
fn memory_of_rust_is_written_once_rust_has_no_handle_to_it() {
    Python::attach(|py| {
        let shared = Tensor::from(vec![0_u64; 1000]).into_shared();
        let part = shared.slice(0, 10..20).expect("inside");
        let ways: [fn(Python<'_>, Tensor) -> Bound<'_, PyAny>; 2] = [
            |py, tensor| PyTensor::new(tensor).into_pyobject(py).expect("an object").into_any(),
            |py, tensor| PyTensor::new(tensor).into_numpy(py).expect("an array"),
        ];
        let objects = ways.map(|way| way(py, shared.clone().into()));
        for object in &objects {
            torn(&shared, object).expect_err("refused");
        }
        drop(shared);
        assert!(!objects.iter().any(may_write), "there is a part");
        let other = ways[0](py, Tensor::from(part.clone()));
        assert!(!may_write(&other));
        drop(part);
        assert!(objects.iter().all(may_write) && may_write(&other));
        // Never in Rust and in Python at once, in parts too.
        let tensor = Tensor::from(vec![0_u64; 8]).into_shared().slice(0, 2..6).expect("inside");
        assert!(may_write(&ways[1](py, tensor.into())));
        // The owner comes back once no other code has the memory.
        let shared = Tensor::from(vec![1_u64, 2]).into_shared();
        let object = ways[0](py, shared.clone().into());
        let shared = Tensor::from(shared).into_owner::<Vec<u64>>().expect_err("Python has it");
        assert!(!may_write(&object));
        drop(object);
        assert_eq!(shared.into_owner::<Vec<u64>>().expect("a vector"), [1, 2]);
    });
}

/// Keeps a tensor of its own, or of an argument.
#[pyclass(frozen)]
struct Kept(ArcTensor);

impl ExportDlpack for Kept {
    fn tensor(&self) -> Result<Tensor> {
        Ok(self.0.clone().into())
    }
}

dlpack_methods!(Kept);

#[test]
fn an_object_that_keeps_a_tensor_refuses_writers_until_it_is_deleted() {
    Python::attach(|py| {
        let array = zeros(py, 10);
        let (of_numpy, own) = (kept(&array), Tensor::from(vec![0_u64; 10]));
        for tensor in [of_numpy, own] {
            let object = Bound::new(py, Kept(tensor.into_shared())).expect("an object");
            let numpy = py.import("numpy").expect("NumPy");
            let imported = [
                numpy.call_method1("from_dlpack", (&object,)).expect("an array"),
                numpy.call_method1("asarray", (&object,)).expect("an array"),
                object.clone().into_any(),
            ];
            for object in &imported {
                let message = refusal(object).expect("refused");
                assert!(message.contains("a tensor that Rust keeps"), "{message}");
            }
            let [first, second, last] = imported;
            drop((object, last));
            assert!(may_write(&first) && may_write(&second), "only Python has the memory");
        }
        assert!(may_write(&array));
    });
}

/// The table of borrows had addresses of descriptors. A tensor from dlbridge's own capsule or from
/// a user's class was entered by one that its lease could free: writers missed it, or read freed
/// memory (an attack's program; this project's test of such tensors passed before as well). With
/// more than 32,768 kept tensors, all writers were refused.
#[test]
fn a_tensor_from_a_capsule_or_a_class_is_borrowed_whatever_becomes_of_its_descriptor() {
    Python::attach(|py| {
        let versioned = PyDict::new(py);
        versioned.set_item("max_version", (1, 3)).expect("a dict");
        for round in 0..10 {
            let array = zeros(py, 1000);
            let object = objects(&array).pop().expect("a dlbridge.Tensor");
            let class = Bound::new(py, Given(object.clone().unbind())).expect("an object");
            let capsule = object.call_method("__dlpack__", (), Some(&versioned)).expect("capsule");
            let sources = [capsule, object, class.into_any()];
            let ways: [fn(&Bound<'_, PyAny>) -> Tensor; 3] = [
                kept,
                |object| object.extract::<PyTensor>().expect("readable").into_inner(),
                |object| {
                    let mut argument = object.extract::<PyTensor>().expect("readable");
                    std::mem::replace(&mut *argument, Tensor::from(vec![0_u8]))
                },
            ];
            let tensor = ways[round % 3](&sources[round % 2 * 2]);
            drop(sources);
            // Other memory, where a descriptor of the source was.
            drop(kept(
                &Bound::new(py, Kept(Tensor::from(vec![0]).into_shared())).expect("an object"),
            ));
            let others: Vec<_> = (0..4000).map(|at| vec![1_u8; at % 500]).collect();
            assert!(!may_write(&array), "round {round}");
            drop((tensor, others));
            assert!(may_write(&array));
        }
    });
}

/// Exports an object that Python has.
#[pyclass(frozen)]
struct Given(Py<PyAny>);

impl ExportDlpack for Given {
    fn tensor(&self) -> Result<Tensor> {
        Python::attach(|py| Ok(self.0.extract::<PyTensor>(py)?.into_inner()))
    }
}

dlpack_methods!(Given);

/// `TensorObject::tensor` gave a `&Tensor` of Python's memory, to read while an argument was
/// written.
#[test]
fn python_objects_are_read_under_a_borrow() {
    Python::attach(|py| {
        let array = zeros(py, 3);
        let object = objects(&array).pop().expect("a dlbridge.Tensor");
        let tensor = object.cast::<TensorObject>().expect("one");
        let shared = tensor.get().to_tensor().expect("readable");
        assert!(!may_write(&array));
        drop(shared);
        let to_write: PyTensorMut<u64> = array.extract().expect("writable");
        tensor.get().to_tensor().expect_err("it is to be written");
        for method in ["tolist", "tobytes", "copy"] {
            let error = object.call_method0(method).expect_err("it is to be written");
            assert!(error.to_string().contains("writes a part"), "{error}");
        }
        assert!(!object.repr().expect("text").to_string().contains("[0, 0, 0]"));
        import(array.as_borrowed(), ImportOptions::default()).expect_err("it is to be written");
        drop(to_write);
        assert_eq!(object.call_method0("tolist").expect("a list").len().expect("its length"), 3);
    });
}

#[test]
fn a_tensor_goes_to_python_and_back_any_number_of_times() {
    Python::attach(|py| {
        let array = zeros(py, 3);
        let list = PyList::new(py, [&array]).expect("a list");
        for _ in 0..10_000 {
            let tensor = kept(&list.get_item(0).expect("one")).into_shared();
            let clone = Tensor::from(tensor.clone());
            let object = PyTensor::new(clone).into_pyobject(py).expect("an object");
            list.set_item(0, object).expect("a list");
        }
        let last = list.get_item(0).expect("one");
        assert!(may_write(&last));
        // A chain would have one more owner for each round.
        let address = |object: &Bound<'_, PyAny>| kept(object).data_ptr().addr();
        assert_eq!(address(&last), address(&array));
    });
}
