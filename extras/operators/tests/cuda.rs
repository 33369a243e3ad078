//! Operators on CUDA memory, on the stream that the framework gives. The tests need no GPU: a fake driver runs the work
//! of a stream as late as CUDA permits. XLA's call frame and PyTorch's C shim are fakes as well, because JAX and
//! PyTorch call no kernel for CUDA without a GPU.
#![cfg(feature = "cudarc-0_19")]
#![allow(unsafe_code, reason = "queues work of a driver")]

use std::ffi::CString;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use cudarc::driver::result::{memcpy_dtod_async, memset_d8_async};
use dlbridge_operators::{
    AddOperator, DeviceStream, DeviceView, DeviceViewMut, Failure, Strided, operator,
};
use dlbridge_testing::FakeDriver;
use pyo3::prelude::*;
use pyo3::types::PyDict;

operator! {
    /// Copies a tensor.
    fn copy<T: f32 | f64>(x: View<T>, out: ViewMut<T>) -> Result<(), dlbridge::Error>
    as "(...)->(...)", cuda = copy_on_cuda {
        out.copy_from_slice(&x.to_vec())
    }
}

fn copy_on_cuda<T>(
    stream: &DeviceStream<'_>,
    x: DeviceView<'_, T>,
    out: DeviceViewMut<'_, T>,
) -> Result<(), Failure> {
    let (from, to) = (x.pointer(), out.pointer());
    let queue = stream.cudarc()?.cu_stream();
    // SAFETY: as many bytes each, alive until the stream has run this.
    Ok(unsafe { memcpy_dtod_async(to, from, x.nbytes(), queue) }?)
}

operator! {
    /// Copies the second tensor.
    fn second(_x: View<f32>, y: View<f32>, out: ViewMut<f32>) -> Result<(), dlbridge::Error>
    as "(...),(...)->(...)", cuda = copy_second_on_cuda {
        out.copy_from_slice(&y.to_vec())
    }
}

fn copy_second_on_cuda(
    stream: &DeviceStream<'_>,
    _x: DeviceView<'_, f32, Strided>,
    y: DeviceView<'_, f32>,
    out: DeviceViewMut<'_, f32>,
) -> Result<(), Failure> {
    copy_on_cuda(stream, y, out)
}

operator! {
    /// The same on the default stream: a mistake.
    fn hasty(x: View<f32>, out: ViewMut<f32>) -> Result<(), dlbridge::Error>
    as "(...)->(...)", cuda = copy_hastily {
        out.copy_from_slice(&x.to_vec())
    }
}

fn copy_hastily(
    stream: &DeviceStream<'_>,
    x: DeviceView<'_, f32>,
    out: DeviceViewMut<'_, f32>,
) -> Result<(), Failure> {
    let queue = stream.cudarc()?.context().default_stream().cu_stream();
    // SAFETY: as many bytes each; on the wrong stream.
    Ok(unsafe { memcpy_dtod_async(out.pointer(), x.pointer(), x.nbytes(), queue) }?)
}

operator! {
    /// Makes the elements zero.
    fn clear_(x: InPlace<f32>) as "(...)->", cuda = clear_on_cuda {
        x.fill(0.0);
    }
}

fn clear_on_cuda(stream: &DeviceStream<'_>, x: DeviceViewMut<'_, f32>) -> Result<(), Failure> {
    let queue = stream.cudarc()?.cu_stream();
    // SAFETY: the tensor's bytes, alive until the stream has run this.
    Ok(unsafe { memset_d8_async(x.pointer(), 0, x.nbytes(), queue) }?)
}

operator! {
    /// Adds a tensor to another one.
    fn add_(y: View<f32>, x: InPlace<f32>) -> Result<(), dlbridge::Error> as "(n),(n)->" {
        x.zip_inplace(&y, |x, y| x + y)
    }
}

operator! {
    /// Fails with what it is called with.
    fn tells(x: View<f32>, y: View<f32>, z: Option<View<f32>>, factor: f64, out: ViewMut<f32>)
    as "(n),(n),()->()", cuda = tell {
        let _ = (x, y, z, factor, out);
    }
}

fn tell(
    stream: &DeviceStream<'_>,
    x: DeviceView<'_, f32, Strided>,
    y: DeviceView<'_, f32, Strided>,
    z: Option<DeviceView<'_, f32, Strided>>,
    factor: f64,
    out: DeviceViewMut<'_, f32, Strided>,
) -> Result<(), Failure> {
    assert!(factor >= 0.0, "a negative factor");
    assert!(x.view::<f32>().is_err(), "the host cannot read it");
    let seen: [Option<&DeviceView<'_, f32, Strided>>; 4] =
        [Some(&x), Some(&y), z.as_ref(), Some(&out)];
    let seen = seen.map(|view| view.map(|view| (view.shape().to_vec(), view.strides().to_vec())));
    Err(format!("{seen:?} {factor} on {} of {}", x.device(), stream.device()).into())
}

operator! {
    /// Has no CUDA function.
    fn hosts(_x: View<f32>, _out: ViewMut<f32>) as "(...)->(...)" {}
}

/// Builds the fake of PyTorch's library.
fn fake_torch() -> String {
    let library =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("libfake_torch.so").display().to_string();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda/fake_torch.c");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(compiler);
    let done = command.args(["-shared", "-fPIC", "-o", &library]).arg(source).status();
    assert!(done.expect("a compiler, which built the driver").success());
    library
}

fn check(program: &str) {
    Python::attach(|py| {
        let module = PyModule::new(py, "my").expect("a module");
        module.add_operator(copy).expect("added");
        module.add_operator(second).expect("added");
        module.add_operator(hasty).expect("added");
        module.add_operator(clear_).expect("added");
        module.add_operator(add_).expect("added");
        module.add_operator(tells).expect("added");
        module.add_operator(hosts).expect("added");
        let names = PyDict::new(py);
        names.set_item("my", module).expect("a dict");
        names.set_item("torch_library", fake_torch()).expect("a dict");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda").join(program);
        let code = fs::read_to_string(path).expect("a program");
        let driver = include_str!("cuda/driver.py");
        let code = CString::new(format!("{driver}\n{code}")).expect("no NUL");
        if let Err(error) = py.run(&code, Some(&names), None) {
            error.print(py);
            panic!("{program} failed");
        }
    });
}

#[test]
#[ignore = "needs a driver"]
fn xla_gives_its_stream() {
    check("xla_program.py");
}

#[test]
#[ignore = "needs a driver"]
fn pytorch_gives_its_stream() {
    check("torch_program.py");
}

#[test]
fn operators_queue_their_work_on_the_streams_of_a_fake_driver() {
    let Some(driver) = FakeDriver::build_or_skip() else { return };
    // XLA's handler is registered with the real JAX; PyTorch is a fake.
    let has_jax = Python::attach(|py| {
        let found =
            py.import("importlib.util").and_then(|it| it.call_method1("find_spec", ("jax",)));
        found.is_ok_and(|found| !found.is_none())
    });
    if !has_jax {
        println!("skipped: jax is not installed");
    }
    let chosen: &[_] = if has_jax { &["--ignored"] } else { &["--ignored", "--skip", "xla"] };
    let said = driver.rerun(chosen);
    let passed = format!("{} passed; 0 failed", 1 + usize::from(has_jax));
    assert!(said.contains(&passed), "{said}");
}
