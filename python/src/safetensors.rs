//! `open_safetensors`, `save_safetensors` and `seal_safetensors`: files of tensors.
//! Invariant: Python gets no read-only page, so that a consumer that ignores `readonly` writes to a
//! copy of the page.

use dlbridge_pyo3::error_of;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use dlbridge::Tensor;
use dlbridge_pyo3::{Error, PyTensor, Result};
use dlbridge_sealed::safetensors_0_8::{self, Archive, FileError};
use pyo3::exceptions::{PyMemoryError, PyOSError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::Items;
use crate::sealed::{SealedObject, dict, entry, supported};

type Metadata = BTreeMap<String, String>;

/// The tensors of a file, its metadata and its size.
#[pyfunction]
pub(crate) fn open_safetensors(
    py: Python<'_>,
    path: PathBuf,
    private: bool,
) -> Result<(Bound<'_, PyDict>, Metadata, usize)> {
    let archive = py.detach(|| Archive::open(path)).map_err(exception)?;
    let (metadata, nbytes) = (archive.metadata().clone(), archive.nbytes());
    let tensors = if private {
        dict(py, archive.into_private()?.into_iter().map(Ok))
    } else {
        dict(py, archive.names().map(|name| Ok((name, archive.tensor(name)?))))
    };
    Ok((tensors?, metadata, nbytes))
}

/// Write arrays of any framework to a safetensors file, from their own memory.
///
/// >>> import dlbridge, os, tempfile
/// >>> path = os.path.join(tempfile.mkdtemp(), "x.safetensors")
/// >>> dlbridge.save_safetensors(path, {"x": dlbridge.zeros(3)}, metadata={"step": "7"})
/// >>> dlbridge.open_safetensors(path)["x"].tolist()
/// [0.0, 0.0, 0.0]
///
/// The file gets its name once it is complete, so that an error leaves the old one, and the arrays may be
/// those of the old file. A symbolic link stays one: the file that it leads to is written. With `fsync`, it is on the disk when this returns.
#[pyfunction]
#[pyo3(signature = (path, tensors, /, *, metadata=None, fsync=false))]
pub(crate) fn save_safetensors(
    path: PathBuf,
    py: Python<'_>,
    tensors: Items<'_>,
    metadata: Option<Items<'_>>,
    fsync: bool,
) -> Result<()> {
    let tensor = |item: &Bound<'_, PyAny>| {
        let (name, x) = entry(item)?;
        match x.extract::<PyTensor>() {
            Ok(x) => Ok((name, x)),
            Err(error) => {
                let error = PyErr::from(error);
                // Of any type, which stays; Python 3.10 has no notes.
                let note = format!("This is about the tensor {name:?}.");
                let _ =
                    error.value(item.py()).call_method1(intern!(item.py(), "add_note"), (note,));
                Err(error.into())
            }
        }
    };
    let arrays = tensors.0.iter().map(tensor).collect::<Result<Vec<_>>>()?;
    let texts = metadata.iter().flat_map(|texts| &texts.0);
    let texts = texts.map(|item| item.extract::<(String, String)>());
    let texts = texts.collect::<PyResult<Metadata>>()?;
    let named: Vec<(&str, &Tensor)> = arrays.iter().map(|(name, x)| (&**name, &**x)).collect();
    let save = || safetensors_0_8::save(path, named, &texts, fsync);
    py.detach(save).map_err(exception)
}

/// Copy a safetensors file into sealed memory: one copy for all processes of a machine (Linux).
///
/// None of them can change it or be ended by a change of the file. Other processes get it by
/// `SealedTensors.handle`, or in a pickle. `path` may be that of the index of a sharded model.
#[pyfunction]
#[pyo3(signature = (path, /))]
pub(crate) fn seal_safetensors(py: Python<'_>, path: PathBuf) -> Result<SealedObject> {
    supported()?;
    let sealed = py.detach(|| dlbridge_sealed::seal_file(path));
    Ok(SealedObject(sealed.map_err(exception)?))
}

/// What the system says is an `OSError` with the file's name, anything else a `ValueError` that names it.
fn exception(error: io::Error) -> Error {
    let of_file = error.get_ref().and_then(|inner| inner.downcast_ref::<FileError>());
    if let Some(FileError { path, error }) = of_file {
        if let Some(code) = error.raw_os_error() {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            // A `str`, as Python names files in its own errors.
            let path = path.clone().into_os_string();
            return PyOSError::new_err((code, text, path)).into();
        }
    }
    let message = error.to_string();
    match error.kind() {
        ErrorKind::OutOfMemory => error_of::<PyMemoryError>(message).into(),
        ErrorKind::UnexpectedEof => error_of::<PyOSError>(message).into(),
        _ => match error.downcast::<dlbridge::Error>() {
            Ok(error) => crate::timer::exception(error),
            Err(_) => error_of::<PyValueError>(message).into(),
        },
    }
}
