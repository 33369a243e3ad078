//! For those who know the crate `dlpackrs` 0.2: everything that it documents, step by step, with
//! what it is called there and what it is called here.
//!
//! Two things need no care any more. There is nothing to write by hand between `ndarray` and DLPack
//! (there: four `From` impls with `unsafe` blocks), and there is no deleter to write: an owner
//! moves in, and is dropped when the last consumer is done.
//!
//! `cargo run -p dlbridge --example coming_from_dlpackrs --features ndarray-0_17`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dlbridge::sys::{DLManagedTensor, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
use dlbridge::{
    DType, Device, DeviceKind, Error, ReadCell, Tensor, TensorMut, TensorRef, TypeCode,
};
use ndarray::{ArrayD, ArrayView, ArrayViewD, ArrayViewMut, IxDyn};

fn main() -> Result<(), Error> {
    println!("a plain tensor, which is a view of an array");
    a_plain_tensor()?;
    println!("a managed tensor, which owns an array");
    a_managed_tensor()?;
    println!("a managed tensor with something of your own to do at its end");
    a_managed_tensor_with_a_deleter()?;
    println!("raw descriptors in and out");
    raw_descriptors()?;
    println!("dtypes and devices");
    dtypes_and_devices()
}

fn ping() -> ArrayD<f32> {
    ArrayD::from_shape_vec(IxDyn(&[2, 3]), vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("2 x 3")
}

/// There: `Tensor<'tensor>`, made by `Tensor::new` from pointers. Here: [`TensorMut`], and
/// [`TensorRef`] for what is only read.
fn a_plain_tensor() -> Result<(), Error> {
    let mut ping = ping();
    let data = ping.as_ptr();

    // there: impl From<&mut ArrayD<f32>> for Tensor, by hand; here it is done, for every Element
    let mut tensor = TensorMut::from(&mut ping);
    // there: data()
    assert_eq!(tensor.data_ptr().cast_const(), data.cast(), "the array's own memory");
    // there: ndim(), shape().unwrap(), strides().unwrap(); here they are always there
    assert_eq!((tensor.ndim(), tensor.shape(), tensor.strides()), (2, &[2, 3][..], &[3, 1][..]));
    // there: dtype(), itemsize(), size().unwrap()
    assert_eq!(
        (tensor.dtype(), tensor.dtype().itemsize(), tensor.nbytes()),
        (DType::F32, Some(4), 24)
    );
    // there: device(), byte_offset()
    assert_eq!((tensor.device(), tensor.byte_offset()), (Device::CPU, 0));

    // there: impl From<&mut Tensor> for ArrayD<f32>, by hand and with a copy; here a view is free,
    let view = tensor.view_as::<ArrayView<f32, IxDyn>>()?;
    assert_eq!(view.as_ptr(), data, "no copy");
    // and a copy is asked for by name
    let pong: ArrayD<f32> = tensor.copy_as()?;
    assert_ne!(pong.as_ptr(), data);
    // there: writing through data() as *mut f32
    tensor.view_mut_as::<ArrayViewMut<f32, IxDyn>>()?[[1, 2]] = 60.0;
    assert_eq!((ping[[1, 2]], pong[[1, 2]]), (60.0, 6.0));

    // there: a Tensor of a shared array needs a cast; here it is read-only
    let tensor = TensorRef::from(&ping);
    assert!(tensor.is_read_only());
    Ok(())
}

/// There: `ManagedTensor<'tensor, C>` over a borrowed array, whose context nobody frees. Here:
/// [`Tensor`], which the array moves into.
fn a_managed_tensor() -> Result<(), Error> {
    let ping = ping();
    let data = ping.as_ptr();

    // there: ManagedTensor::new(tensor, None)
    let tensor = Tensor::from(ping);
    assert_eq!(tensor.data_ptr().cast_const(), data.cast(), "the array moved, its memory did not");

    // there: impl From<&mut ManagedTensor> for ArrayD<f32>, by hand
    let view = ArrayView::<f32, IxDyn>::try_from(&tensor)?;
    assert_eq!(view.as_ptr(), data);
    let pong = ArrayD::<f32>::try_from(&tensor)?;
    assert_eq!(pong, view);

    // there: into_tensor(), whose result may outlive its memory; here the compiler says no
    let plain: TensorRef<'_> = tensor.as_tensor_ref();
    assert_eq!(plain.data_ptr(), tensor.data_ptr());

    // there: no way back; here the array comes out as it went in
    let again: ArrayD<f32> = tensor.into_owner().expect("the owner is that array");
    assert_eq!(again.as_ptr(), data);
    Ok(())
}

/// There: `set_deleter` with a Rust function, which is transmuted to a C one. Here: `Drop`.
fn a_managed_tensor_with_a_deleter() -> Result<(), Error> {
    /// There: what `ManagerContext` points to. Here: the owner.
    struct Context {
        array: ArrayD<f32>,
        is_dropped: Arc<AtomicBool>,
    }

    impl AsMut<[f32]> for Context {
        fn as_mut(&mut self) -> &mut [f32] {
            self.array.as_slice_mut().expect("in standard order")
        }
    }

    impl Drop for Context {
        fn drop(&mut self) {
            println!("    the deleter is called");
            self.is_dropped.store(true, Ordering::SeqCst);
        }
    }

    let is_dropped = Arc::new(AtomicBool::new(false));
    let context = Context { array: ping(), is_dropped: Arc::clone(&is_dropped) };
    let data = context.array.as_ptr();

    // there: ManagedTensor::new(tensor, Some(context)), then set_deleter(deleter)
    let tensor = Tensor::builder(context).shape([2, 3]).build::<f32>()?;
    assert_eq!(tensor.data_ptr().cast_const(), data.cast());
    // there: manager_ctx(), as a pointer to cast
    let context = tensor.into_owner::<Context>().expect("that is the owner");
    assert!(!is_dropped.load(Ordering::SeqCst));

    let tensor = Tensor::builder(context).shape([3, 2]).strides([1, 3]).build::<f32>()?;
    let transposed = tensor.view_as::<ArrayView<f32, IxDyn>>()?;
    assert_eq!((transposed.as_ptr(), transposed[[2, 0]]), (data, 3.0));
    // there: the proxy's drop calls the deleter with a pointer to a copy of the descriptor
    drop(tensor);
    assert!(is_dropped.load(Ordering::SeqCst), "called once, when the tensor was dropped");
    Ok(())
}

/// There: `into_raw`, which returns a pointer to a local, and `from_raw`. Here: giving away is
/// safe, and taking is `unsafe`, since nobody can check what the producer promises.
fn raw_descriptors() -> Result<(), Error> {
    let ping = ping();
    let data = ping.as_ptr();

    // there: ManagedTensor::into_raw
    let managed: *mut DLManagedTensor = Tensor::from(ping).into_raw_legacy()?;
    // there: ManagedTensor::from_raw; here the deleter is called even if the tensor is refused
    let tensor = take(managed)?;
    assert_eq!(tensor.data_ptr().cast_const(), data.cast(), "there and back without a copy");

    // what has been in other hands may be written by them, so it is not borrowed as a slice
    assert_eq!(tensor.as_slice::<f32>(), Err(Error::SharedMemory));
    // but values are read from it, in any layout
    assert_eq!(tensor.view::<f32>()?.to_vec(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let cells = tensor.view_as::<ArrayViewD<ReadCell<f32>>>()?;
    assert_eq!(cells[[1, 0]].get(), 4.0);

    // there: Tensor::into_inner, From<Tensor> for DLTensor
    let descriptor = tensor.as_raw();
    assert_eq!(descriptor.data.cast_const(), data.cast());
    // or, for the length of a call
    tensor.as_tensor_ref().with_raw(|descriptor| {
        println!("    a C function would get {descriptor:?}");
    });
    // there: From<DLTensor> for Tensor and Tensor::from_raw, the first of them safe to call
    assert_eq!(elements_behind(&descriptor)?, 6);

    // there: DLPack before 1.0 alone; here versioned descriptors too, which can say read-only
    let managed = Tensor::from(&[1.0_f32, 2.0][..]).into_raw();
    let tensor = take_versioned(managed)?;
    assert!(tensor.is_read_only());
    Ok(())
}

#[allow(unsafe_code, reason = "only the caller knows what a pointer points to")]
fn take(tensor: *mut DLManagedTensor) -> Result<Tensor, Error> {
    // SAFETY: it was made by `into_raw_legacy` and has no other owner.
    unsafe { Tensor::from_raw(tensor) }
}

#[allow(unsafe_code, reason = "only the caller knows what a pointer points to")]
fn take_versioned(tensor: *mut dlbridge::sys::DLManagedTensorVersioned) -> Result<Tensor, Error> {
    // SAFETY: it was made by `into_raw` and has no other owner.
    unsafe { Tensor::from_raw(tensor) }
}

#[allow(unsafe_code, reason = "only the caller knows what a pointer points to")]
fn elements_behind(descriptor: &dlbridge::sys::DLTensor) -> Result<usize, Error> {
    // SAFETY: the tensor that it describes is alive.
    let tensor = unsafe { TensorRef::from_raw(descriptor) }?;
    Ok(tensor.len())
}

/// There: functions and enums. Here: constants, and numbers that newer producers may add to.
fn dtypes_and_devices() -> Result<(), Error> {
    // there: DataType::f32(), i32(), ...
    assert_eq!((DType::F32.bits, DType::F32.lanes), (32, 1));
    // there: DataType::int(8, 4), bfloat(16, 1), complex(64, 1), opaque_handle(64, 1)
    assert_eq!(DType::I8.with_lanes(4).to_string(), "int8x4");
    assert_eq!(DType::BF16.code, TypeCode::BFLOAT);
    assert_eq!(DType::COMPLEX64, DType::new(TypeCode::COMPLEX, 64));
    assert_eq!(DType::new(TypeCode::OPAQUE_HANDLE, 64).to_string(), "opaque64");
    assert_eq!("float32".parse::<DType>()?, DType::F32);

    // there: Device::default(), Device::cpu(0), Device::cuda(1), Device::new(DeviceType::CUDA, 1)
    assert_eq!(Device::cuda(1), Device::new(DeviceKind::CUDA, 1));
    // there: Device::from_str("cuda"), which knows no number, and "cuda(0)" the other way
    assert_eq!("cuda:1".parse::<Device>()?, Device::cuda(1));
    assert_eq!(
        (Device::CPU.to_string(), Device::cuda(0).to_string()),
        ("cpu".into(), "cuda:0".into())
    );
    // there: UnsupportedDeviceError, or a panic by way of From<&str>
    assert!("abacus".parse::<Device>().is_err());
    // there: a panic for a device that the enum does not list; here it is carried
    assert_eq!(Device::new(DeviceKind(99), 0).to_string(), "kind99:0");

    // there: version(), abi_version()
    assert_eq!((DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION), (1, 3));
    Ok(())
}
