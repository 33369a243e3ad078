//! A Rust program that opens libjulia, and exchanges an `Array` both ways through the package.
//! Python does not belong here.
//!
//! It runs with the Julia that `DLBRIDGE_JULIA` names, or the one on the search path.
#![allow(unsafe_code, reason = "plays the host of a Julia")]

#[cfg(unix)]
#[path = "julia/host.rs"]
mod host;

/// Set in the process that starts Julia: it makes the pipes that it inherits non-blocking, and other
/// test programs write to ours.
const CHILD: &str = "DLBRIDGE_TEST_JULIA";

fn main() {
    if std::env::var_os(CHILD).is_none() {
        let program = std::env::current_exe().expect("a path");
        let done = std::process::Command::new(program).env(CHILD, "1").output().expect("it starts");
        print!("{}", String::from_utf8_lossy(&done.stdout));
        eprint!("{}", String::from_utf8_lossy(&done.stderr));
        std::process::exit(done.status.code().unwrap_or(1));
    }
    // What libtest would print, so that programs that count tests count this one.
    let (passed, ignored) = if exchange() { (1, 0) } else { (0, 1) };
    println!("\nrunning 1 test");
    println!(
        "test result: ok. {passed} passed; 0 failed; {ignored} ignored; 0 measured; 0 filtered out"
    );
}

#[cfg(not(unix))]
fn exchange() -> bool {
    eprintln!("skipped: only written for Unix");
    false
}

#[cfg(unix)]
fn exchange() -> bool {
    match host::Host::start() {
        Ok(host) => {
            rust_to_julia(&host);
            julia_to_rust(&host);
            host.finish();
            true
        }
        Err(reason) => {
            eprintln!("skipped: {reason}");
            false
        }
    }
}

/// A vector of Rust becomes a `Matrix`, is written by Julia, and is released by `close`.
#[cfg(unix)]
fn rust_to_julia(host: &host::Host) {
    use std::sync::{Arc, Mutex, Weak};

    use dlbridge::{DType, Device, Flags, Tensor};

    let numbers = Arc::new(Mutex::new(vec![1.0_f64, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let data = numbers.lock().unwrap().as_mut_ptr();
    let watch: Weak<_> = Arc::downgrade(&numbers);
    let builder = Tensor::builder(Arc::clone(&numbers)).dtype(DType::F64).shape([2, 3]);
    // SAFETY: the vector's numbers, which its owner keeps in place; no code locks it.
    let tensor = unsafe { builder.build_raw(data.cast(), Device::CPU, Flags::NONE) }.unwrap();
    drop(numbers);
    let pointer = tensor.into_raw().addr();
    host.run(&format!(
        "global x = DLBridge.unsafe_from_dlpack(Ptr{{Cvoid}}({pointer}))
         x isa Matrix{{Float64}} && x == [1 4; 2 5; 3 6] || error(\"found $x\")
         x[3, 2] = 60
         GC.gc()"
    ));
    let numbers = watch.upgrade().expect("Julia keeps the vector");
    assert_eq!(*numbers.lock().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 60.0]);
    drop(numbers);
    host.run("DLBridge.close(x); global x = nothing");
    assert!(watch.upgrade().is_none(), "close gives the vector back");
}

/// An `Array` of Julia becomes a tensor, is written by Rust, and dropped on another thread.
#[cfg(unix)]
fn julia_to_rust(host: &host::Host) {
    use dlbridge::Tensor;

    let mut pointer = 0_usize;
    let place = (&raw mut pointer).addr();
    host.run(&format!(
        "global A = [1.0f0 2.0f0 3.0f0; 4.0f0 5.0f0 6.0f0]
         unsafe_store!(Ptr{{Ptr{{Cvoid}}}}({place}), DLBridge.unsafe_share(view(A, :, 3:-1:1)))
         DLBridge.shared_count() == 1 || error(\"not kept\")
         GC.gc()"
    ));
    // SAFETY: Julia wrote it there.
    let pointer = unsafe { (&raw const pointer).read_volatile() };
    let managed: *mut dlbridge::sys::DLManagedTensorVersioned =
        std::ptr::with_exposed_provenance_mut(pointer);
    // SAFETY: a managed tensor that the package has just exported.
    let tensor = unsafe { Tensor::from_raw(managed) };
    let tensor = tensor.unwrap();
    assert_eq!((tensor.shape(), tensor.strides()), (&[3, 2][..], &[-2, 1][..]));
    assert_eq!(tensor.view::<f32>().unwrap().to_vec(), [3.0, 6.0, 2.0, 5.0, 1.0, 4.0]);
    // SAFETY: Julia waits for this call.
    let mut view = unsafe { dlbridge::ffi::view_mut_unchecked::<f32>(&tensor) }.unwrap();
    view.set([0, 1], 60.0).unwrap();
    host.run("A[2, 3] == 60 || error(\"not written\")");
    std::thread::spawn(move || drop(tensor)).join().unwrap();
    host.run("sleep(0.05); DLBridge.drain(); DLBridge.shared_count() == 0 || error(\"kept\")");
}
