//! The paths that are measured, in the order of the table, and what each may cost.
//! Invariant: the keys are those of `benches/python/measure.py`.

/// The frameworks with paths, each measured in a process of its own.
pub(crate) const FRAMEWORKS: [&str; 3] = ["numpy", "torch", "jax"];

/// One way of a tensor.
#[derive(Debug)]
pub(crate) struct Path {
    /// Its name in records and files.
    pub(crate) key: &'static str,
    /// Its name for people.
    pub(crate) title: &'static str,
    /// What dlbridge may cost, in instructions of the floor.
    pub(crate) budget: Option<f64>,
}

/// What everybody is compared on.
pub(crate) const PATHS: [Path; 9] = [
    path("numpy-in", "NumPy in, one element read, dropped", Some(1.10)),
    path("torch-in", "PyTorch in, owned, read, dropped", Some(1.10)),
    path("torch-borrowed", "PyTorch borrowed for a call, read", Some(1.10)),
    path("jax-in", "JAX in, read, dropped", None),
    path("rust-share", "a new tensor, read and dropped, in Rust", Some(1.3)),
    path("object-out", "a new tensor to a Python object", Some(1.5)),
    path("numpy-out", "a new tensor to NumPy", Some(1.10)),
    path("torch-out", "a new tensor to PyTorch, from_dlpack", None),
    path("torch-out-exchange", "the same by the C exchange API", None),
];

/// Ways in for NumPy's arrays, written in C: which is the quickest?
pub(crate) const WAYS_IN: [Path; 10] = [
    path("numpy-in", "DLPack: capsule of __dlpack__", None),
    path("numpy-new", "DLPack, a new array each time", None),
    path("numpy-buffer", "buffer protocol, owned", None),
    path("numpy-buffer-new", "buffer protocol, a new array each time", None),
    path("numpy-buffer-call", "buffer protocol, for a call", None),
    path("numpy-array-struct", "__array_struct__", None),
    path("numpy-array-interface", "__array_interface__", None),
    path("numpy-array-object", "the array's own C struct", None),
    path("numpy-array-object-new", "the same, a new array each time", None),
    path("numpy-array-object-call", "the same, for a call", None),
];

const fn path(key: &'static str, title: &'static str, budget: Option<f64>) -> Path {
    Path { key, title, budget }
}

#[cfg(test)]
mod tests {
    use super::{FRAMEWORKS, PATHS, WAYS_IN};
    use crate::project;

    #[test]
    fn every_path_is_measured() {
        let script = project::read(&project::path("benches/python/measure.py")).unwrap();
        for path in PATHS.iter().chain(&WAYS_IN) {
            assert!(script.contains(&format!("\"{}\":", path.key)), "{}", path.key);
        }
        for framework in FRAMEWORKS {
            assert!(script.contains(&format!("\"{framework}\":")), "{framework}");
        }
    }
}
