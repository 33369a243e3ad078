//! A Python in this process, with the little that the tests ask of it.
//! Of the library under test, it has what the tests share: an exported tensor and an exchange table.
#![allow(dead_code, reason = "each test program uses a part")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::process::Command;
use std::ptr;

use dlbridge::sys::{
    DLPackCurrentWorkStream, DLPackExchangeAPI, DLPackExchangeAPIHeader,
    DLPackManagedTensorFromPyObjectNoSync, DLPackVersion,
};
use dlbridge_capi::*;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

const QUESTIONS: &str = "\
import sys, sysconfig
print(sysconfig.get_config_var('LIBDIR'), sysconfig.get_config_var('LDLIBRARY'), sep='/')
import numpy
print([path for path in sys.path if path])
";

/// `Py_eval_input` and `Py_file_input`.
const EXPRESSION: c_int = 258;
const STATEMENTS: c_int = 257;

/// A running Python; this thread holds its lock.
pub(crate) struct Host {
    library: Library,
    globals: *mut PyObject,
}

macro_rules! call {
    ($host:expr, $name:ident($($value:expr),*) as fn($($kind:ty),*) $(-> $result:ty)?) => {{
        let name = concat!(stringify!($name), "\0");
        // SAFETY: the type is that of CPython's headers.
        let function = unsafe {
            $host.library.get::<unsafe extern "C" fn($($kind),*) $(-> $result)?>(name.as_bytes())
        };
        let function = function.expect(name);
        // SAFETY: on the thread that started Python, with live objects.
        unsafe { function($($value),*) }
    }};
}

/// Gives up the GIL: PyTorch's exit handlers wait for it.
impl Drop for Host {
    fn drop(&mut self) {
        call!(self, PyEval_SaveThread() as fn() -> *mut c_void);
    }
}

impl Host {
    /// Starts the Python that tests use, or tells why there is none.
    pub(crate) fn start() -> Result<Self, String> {
        let named = std::env::var_os("DLBRIDGE_PYTHON").or(std::env::var_os("PYO3_PYTHON"));
        let python = named.unwrap_or_else(|| "python3".into());
        let output = Command::new(python).args(["-c", QUESTIONS]).output();
        let output = output.map_err(|error| format!("no Python: {error}"))?;
        if !output.status.success() {
            return Err(format!("no NumPy: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let answers = String::from_utf8(output.stdout).unwrap();
        let (library, path) = answers.split_once('\n').unwrap();
        // SAFETY: libpython does nothing before it is started.
        let library = unsafe { Library::open(Some(library), RTLD_NOW | RTLD_GLOBAL) };
        let library = library.map_err(|error| format!("no shared libpython: {error}"))?;
        let mut host = Self { library, globals: ptr::null_mut() };
        call!(host, Py_InitializeEx(0) as fn(c_int));
        let name = c"__main__".as_ptr();
        let main = call!(host, PyImport_AddModule(name) as fn(*const c_char) -> *mut PyObject);
        host.globals = call!(host, PyModule_GetDict(main) as fn(*mut PyObject) -> *mut PyObject);
        host.run(&format!("import sys; sys.path[:] = {path}"));
        Ok(host)
    }

    fn evaluate(&self, code: &str, start: c_int) -> *mut PyObject {
        let text = CString::new(code).unwrap();
        let globals = self.globals;
        let object = call!(
            self,
            PyRun_String(text.as_ptr(), start, globals, globals)
                as fn(*const c_char, c_int, *mut PyObject, *mut PyObject) -> *mut PyObject
        );
        if object.is_null() {
            call!(self, PyErr_Print() as fn());
            panic!("Python raised at: {code}");
        }
        object
    }

    /// A new reference to an expression's value.
    pub(crate) fn eval(&self, code: &str) -> *mut PyObject {
        self.evaluate(code, EXPRESSION)
    }

    /// Runs statements.
    pub(crate) fn run(&self, code: &str) {
        self.drop(self.evaluate(code, STATEMENTS));
    }

    /// Whether an expression is true.
    pub(crate) fn truth(&self, code: &str) -> bool {
        let object = self.eval(code);
        let answer = call!(self, PyObject_IsTrue(object) as fn(*mut PyObject) -> c_int);
        self.drop(object);
        answer == 1
    }

    /// Names an object.
    pub(crate) fn set(&self, name: &str, object: *mut PyObject) {
        let name = CString::new(name).unwrap();
        let globals = self.globals;
        let answer = call!(
            self,
            PyDict_SetItemString(globals, name.as_ptr(), object)
                as fn(*mut PyObject, *const c_char, *mut PyObject) -> c_int
        );
        assert_eq!(answer, 0);
    }

    /// Gives a reference back.
    pub(crate) fn drop(&self, object: *mut PyObject) {
        call!(self, Py_DecRef(object) as fn(*mut PyObject));
    }

    /// Whether an exception of this class is set, which is cleared.
    pub(crate) fn raised(&self, class: *mut PyObject) -> bool {
        let answer = call!(self, PyErr_ExceptionMatches(class) as fn(*mut PyObject) -> c_int);
        call!(self, PyErr_Clear() as fn());
        answer == 1
    }

    /// A function of Python that is called without arguments.
    pub(crate) fn function(&self, name: &str) -> unsafe extern "C" fn() {
        // SAFETY: a function without parameters, whose result is not used.
        *unsafe { self.library.get(name.as_bytes()) }.expect(name)
    }

    /// A capsule without a destructor.
    pub(crate) fn capsule(&self, pointer: *const c_void, name: &'static CStr) -> *mut PyObject {
        call!(
            self,
            PyCapsule_New(pointer.cast_mut(), name.as_ptr(), ptr::null_mut())
                as fn(*mut c_void, *const c_char, *mut c_void) -> *mut PyObject
        )
    }

    /// Whether no exception is set.
    pub(crate) fn is_calm(&self) -> bool {
        call!(self, PyErr_Occurred() as fn() -> *mut PyObject).is_null()
    }
}

/// Two numbers, which no test writes.
pub(crate) fn memory(
    device: i32,
    flags: u64,
    release: Option<unsafe extern "C" fn(*mut c_void)>,
) -> Memory {
    static NUMBERS: [f64; 2] = [1.0, 2.0];
    static SHAPE: [i64; 1] = [2];
    Memory {
        struct_size: size_of::<Memory>(),
        data: NUMBERS.as_ptr().cast_mut().cast(),
        byte_offset: 0,
        shape: SHAPE.as_ptr(),
        strides: ptr::null(),
        flags,
        device: DeviceId { kind: device, id: 0 },
        dtype: DataType { code: DLB_TYPE_FLOAT, bits: 64, lanes: 1 },
        ndim: 1,
        token: ptr::null_mut(),
        release,
        queue: ptr::null_mut(),
    }
}

pub(crate) fn export(
    device: i32,
    flags: u64,
    release: Option<unsafe extern "C" fn(*mut c_void)>,
) -> *mut TensorHandle {
    let memory = memory(device, flags, release);
    let mut tensor = ptr::null_mut();
    // SAFETY: static numbers.
    assert_eq!(unsafe { dlb_export(&memory, &mut tensor) }, Status::Ok);
    tensor
}

/// An exchange table that a class may publish, whatever its objects are.
pub(crate) struct Table(DLPackExchangeAPI);

// SAFETY: never written.
unsafe impl Sync for Table {}

impl Table {
    pub(crate) const fn new(
        give: DLPackManagedTensorFromPyObjectNoSync,
        stream: DLPackCurrentWorkStream,
    ) -> Self {
        let (version, prev_api) = (DLPackVersion::CURRENT, ptr::null_mut());
        Self(DLPackExchangeAPI {
            header: DLPackExchangeAPIHeader { version, prev_api },
            managed_tensor_allocator: None,
            managed_tensor_from_py_object_no_sync: Some(give),
            managed_tensor_to_py_object_no_sync: None,
            dltensor_from_py_object_no_sync: None,
            current_work_stream: Some(stream),
        })
    }

    /// Names a capsule with the table.
    pub(crate) fn publish(&'static self, host: &Host, name: &str) {
        let capsule = host.capsule((&raw const self.0).cast(), c"dlpack_exchange_api");
        host.set(name, capsule);
        host.drop(capsule);
    }
}
