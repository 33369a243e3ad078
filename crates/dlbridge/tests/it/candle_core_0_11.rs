//! `candle-core` 0.11: tensors on the CPU, both ways.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::import;
use candle_core::op::BackpropOp;
use candle_core::{
    CpuStorage, DType as CandleType, Device as CandleDevice, InplaceOp1, Layout, Storage,
    Tensor as Candle, Var,
};
use dlbridge::{Access, DType, Device, Error, Flags, Tensor};
use dlbridge_testing::conformance::{self, Expected};
use dlbridge_testing::{CountingOwner, Foreign};

fn counted(shape: &[usize]) -> Candle {
    let count = shape.iter().product::<usize>() as i64;
    Candle::arange(0, count, &CandleDevice::Cpu).expect("small").reshape(shape).expect("it fits")
}

/// Where Candle says that a tensor's first element lies.
fn start(tensor: &Candle) -> *const i64 {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cpu(storage) = &*storage else { panic!("on the CPU") };
    storage.as_slice::<i64>().expect("int64").as_ptr().wrapping_add(layout.start_offset())
}

#[track_caller]
fn conforms(shape: &[i64], strides: &[i64], values: &[i64], make: impl Fn() -> Candle) {
    conformance::owner(|| {
        let tensor = make();
        let expected = Expected::new(shape, values).strides(strides).at(start(&tensor)).read_only();
        (Tensor::try_from(tensor).expect("on the CPU"), expected)
    });
}

#[test]
fn tensors_of_every_layout_conform() {
    conforms(&[2, 3], &[3, 1], &[0, 1, 2, 3, 4, 5], || counted(&[2, 3]));
    conforms(&[3, 2], &[1, 3], &[0, 3, 1, 4, 2, 5], || counted(&[2, 3]).t().expect("2-d"));
    conforms(&[2, 2], &[3, 1], &[1, 2, 4, 5], || {
        counted(&[2, 3]).narrow(1, 1, 2).expect("in bounds")
    });
    conforms(&[2, 3], &[0, 1], &[0, 1, 2, 0, 1, 2], || {
        counted(&[3]).broadcast_as((2, 3)).expect("it broadcasts")
    });
    conforms(&[], &[], &[0], || counted(&[1]).reshape(()).expect("one element"));
    conforms(&[3, 0], &[1, 1], &[], || counted(&[3, 1]).narrow(1, 0, 0).expect("none"));
}

#[test]
fn every_type_is_the_same_memory() {
    for (name, dtype) in [
        ("uint8", CandleType::U8),
        ("uint32", CandleType::U32),
        ("int16", CandleType::I16),
        ("int32", CandleType::I32),
        ("int64", CandleType::I64),
        ("bfloat16", CandleType::BF16),
        ("float16", CandleType::F16),
        ("float32", CandleType::F32),
        ("float64", CandleType::F64),
        ("float8_e4m3fn", CandleType::F8E4M3),
    ] {
        let candle = Candle::ones((2, 2), dtype, &CandleDevice::Cpu).expect("small");
        let tensor = Tensor::try_from(candle.clone()).expect(name);
        assert_eq!(tensor.dtype().to_string(), name);
        assert_eq!(tensor.access(), Access::Frozen);
        if dtype != CandleType::F8E4M3 {
            let again = tensor.copy_as::<candle_core::Tensor>().expect(name);
            assert_eq!((again.dtype(), again.dims()), (dtype, &[2, 2][..]));
            let same =
                |one: &Candle| one.to_dtype(CandleType::F64).and_then(|one| one.to_vec2::<f64>());
            assert_eq!(same(&again).expect("numbers"), same(&candle).expect("numbers"));
        }
    }
}

/// An operation that puts another storage in place of the tensor's.
struct Replace;

impl InplaceOp1 for Replace {
    fn name(&self) -> &'static str {
        "replace"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, _: &Layout) -> candle_core::Result<()> {
        *storage = CpuStorage::I64(vec![-1]);
        Ok(())
    }
}

#[test]
#[cfg_attr(miri, ignore = "a lock that is waited for makes pointers of integers")]
fn an_operation_in_place_waits_for_the_tensor() {
    let candle = counted(&[1000]);
    let tensor = Tensor::try_from(candle.clone()).expect("on the CPU");
    let (done, finished) = mpsc::channel();
    let other = candle.clone();
    let writer = thread::spawn(move || {
        other.inplace_op1(&Replace).expect("it runs");
        done.send(()).expect("somebody waits");
    });
    let waited = finished.recv_timeout(Duration::from_millis(100));
    assert!(waited.is_err(), "the storage was replaced under a tensor that shows it");
    assert_eq!(tensor.as_slice::<i64>().expect("frozen")[999], 999);
    assert_eq!(
        candle.sum_all().and_then(|sum| sum.to_scalar::<i64>()).expect("readers do not wait"),
        499_500
    );
    // dropped on a third thread, and the writer goes on
    thread::spawn(move || drop(tensor)).join().expect("no panic");
    writer.join().expect("no panic");
    finished.recv().expect("it was done");
}

#[test]
fn each_tensor_holds_its_own_lock() {
    let var = Var::from_vec(vec![1_i64, 2], 2, &CandleDevice::Cpu).expect("small");
    let first = Tensor::try_from(var.as_detached_tensor()).expect("on the CPU");
    let second = Tensor::try_from(var.as_detached_tensor()).expect("on the CPU");
    assert_eq!(first.data_ptr(), second.data_ptr());
    drop(first);
    assert_eq!(second.as_slice::<i64>(), Ok(&[1, 2][..]));
    drop(second);
    // would hang if a reader's share were left
    var.set(&counted(&[2])).expect("the same shape");
    assert_eq!(var.to_vec1::<i64>().expect("int64"), [0, 1]);
}

/// `Var::set` would wait for as long as a consumer keeps the memory.
#[test]
fn a_variable_is_refused_and_can_be_set() {
    let var = Var::from_vec(vec![1_i64, 2], 2, &CandleDevice::Cpu).expect("small");
    let part = var.narrow(0, 1, 1).expect("inside");
    for (tensor, found) in
        [(var.as_tensor().clone(), "a variable"), (part, "one computed from a variable")]
    {
        let error = Tensor::try_from(tensor).map(drop).expect_err("it tracks gradients");
        assert!(error.to_string().contains(&format!("found {found}")), "{error}");
    }
    let copy = var.as_tensor().copy().expect("host memory").detach();
    let tensor = Tensor::try_from(copy).expect("without gradients");
    var.set(&counted(&[2])).expect("nothing has its memory");
    assert_eq!(tensor.as_slice::<i64>(), Ok(&[1, 2][..]));
}

#[test]
fn a_tensor_that_is_not_moved_keeps_its_class() {
    let make = || Tensor::builder(vec![1_i64, 2, 3]).shape([2]).offset(1).build().expect("it fits");
    let frozen = || Tensor::from(make().into_frozen());
    let shared = || Tensor::from(make().into_shared());
    for tensor in [make(), frozen(), shared(), Tensor::from(shared().into_frozen())] {
        let before = (tensor.access(), tensor.is_read_only());
        let again = tensor.into_as::<Candle>().expect_err("not the first of the vector");
        assert_eq!((again.access(), again.is_read_only()), before);
        assert_eq!(again.view::<i64>().expect("int64").to_vec(), [2, 3]);
    }
}

#[test]
fn a_refused_tensor_is_not_locked() {
    let wrong = Candle::from_storage(
        Storage::Cpu(CpuStorage::I64(vec![1, 2])),
        3,
        BackpropOp::none(),
        false,
    );
    let error = Tensor::try_from(wrong.clone()).map(drop).expect_err("two values, not three");
    assert!(matches!(error, Error::OutOfBounds { .. }), "{error}");
    wrong.inplace_op1(&Replace).expect("nobody reads");
    let lost = counted(&[1]);
    lost.inplace_op1(&Retype).expect("nobody reads");
    let error = Tensor::try_from(lost.clone()).map(drop).expect_err("another type");
    let wanted = "dtype: expected one of the tensor's own type, found a storage of U8";
    assert_eq!(error.to_string(), wanted);
    lost.inplace_op1(&Replace).expect("nobody reads");
}

/// An operation that leaves values of another type.
struct Retype;

impl InplaceOp1 for Retype {
    fn name(&self) -> &'static str {
        "retype"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, _: &Layout) -> candle_core::Result<()> {
        *storage = CpuStorage::U8(vec![1]);
        Ok(())
    }
}

#[test]
fn a_copy_takes_every_layout_and_class() {
    let refused = conformance::reader(|tensor| {
        let candle = tensor.copy_as::<candle_core::Tensor>()?;
        let shape: Vec<usize> = tensor.shape().iter().map(|&extent| extent as usize).collect();
        assert_eq!(candle.dims(), shape);
        Ok(candle.flatten_all().and_then(|flat| flat.to_vec1::<f32>()).expect("float32"))
    });
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn types_that_candle_lacks_are_refused() {
    for name in ["bool", "int8", "uint64", "complex64", "float8_e5m2"] {
        let dtype: DType = name.parse().expect("a name");
        let tensor = Tensor::zeros(dtype, [2]).expect("small");
        let error = tensor.copy_as::<candle_core::Tensor>().map(drop).expect_err(name);
        let error = error.to_string();
        assert!(error.starts_with("dtype: expected uint8"), "{error}");
        assert!(error.ends_with(&format!(", found {name}")), "{error}");
    }
    let narrow =
        Candle::from_storage(Storage::Cpu(CpuStorage::F4(vec![0])), 2, BackpropOp::none(), false);
    assert!(matches!(Tensor::try_from(narrow), Err(Error::NotConvertible { .. })));
}

#[test]
fn a_vector_moves_into_candle() {
    let values = vec![1_i64, 2, 3, 4, 5];
    let address = values.as_ptr();
    let tensor = Tensor::builder(values).shape([2, 2]).build::<i64>().expect("it fits");
    let candle = tensor.into_as::<candle_core::Tensor>().expect("a vector");
    assert_eq!((start(&candle), candle.dims()), (address, &[2, 2][..]));
    assert_eq!(candle.to_vec2::<i64>().expect("int64"), [[1, 2], [3, 4]]);
    let tensor = Tensor::try_from(candle).expect("on the CPU");
    assert_eq!(tensor.data_ptr().addr(), address.addr(), "and out again");
}

#[test]
fn what_is_no_such_vector_comes_back_as_it_was() {
    let vector = || vec![1_i64, 2, 3, 4];
    for tensor in [
        Tensor::builder(vector()).shape([3]).offset(1).build::<i64>().expect("it fits"),
        Tensor::builder(vector()).shape([2]).strides([2]).build::<i64>().expect("it fits"),
        Tensor::builder(vector()).shape([0]).build::<i64>().expect("it fits"),
        Tensor::builder(vector()).dtype(DType::F64).build::<i64>().expect("it fits"),
        Tensor::from([1_i64, 2]),
        Tensor::from(vec![true]),
        import(Foreign::new(&[2], &[1_i64, 2]).device(Device::cuda(0))).expect("legal"),
    ] {
        let said = format!("{tensor:?}");
        let tensor = tensor
            .into_as::<candle_core::Tensor>()
            .expect_err("it is not made of a vector from its start");
        assert_eq!(format!("{tensor:?}"), said);
    }
    let owner = CountingOwner::new([1_i64]);
    let drops = owner.drops();
    let tensor = Tensor::builder(owner).build::<i64>().expect("it fits");
    let tensor = tensor.into_as::<candle_core::Tensor>().expect_err("its owner is no vector");
    drops.expect(0, "given back");
    drop(tensor);
    drops.expect(1, "dropped");
}

#[test]
fn a_read_only_foreign_tensor_is_copied() {
    let foreign = Foreign::new(&[2], &[1_i64, 2]).flags(Flags::READ_ONLY);
    let releases = foreign.releases();
    let tensor = import(foreign).expect("legal");
    let candle = Candle::try_from(&tensor).expect("int64");
    drop(tensor);
    releases.expect(1, "Candle has a copy");
    assert_eq!(candle.to_vec1::<i64>().expect("int64"), [1, 2]);
}
