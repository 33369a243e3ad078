//! Data at an odd address: readable by value, never borrowed by reference.
//! Other layouts are in `strides.rs`.
#![allow(unsafe_code, reason = "the unchecked forms are tested too")]

use crate::common::import;
use dlbridge::{Access, DType, Error, Tensor};
use dlbridge_testing::Foreign;

/// Three numbers, the first of them at an address that is `odd` bytes from an aligned one.
fn at(odd: usize) -> Tensor {
    let mut bytes = vec![0; odd];
    bytes.extend([1.5_f64, -2.5, 3.5].iter().flat_map(|number| number.to_ne_bytes()));
    let foreign = Foreign::of_bytes(DType::F64, &[3], &bytes).data_at(odd);
    import(foreign.class(Access::Exclusive)).expect("legal")
}

fn misaligned(tensor: &Tensor) -> Error {
    Error::Misaligned { address: tensor.data_ptr().addr(), align: align_of::<f64>() }
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "float64 is aligned to 4 bytes")]
fn unaligned_data_is_read_by_value() {
    for odd in 1..8 {
        let tensor = at(odd);
        let view = tensor.view::<f64>().expect("host");
        assert_eq!(view.to_vec(), [1.5, -2.5, 3.5]);
        assert!(view.iter().eq([1.5, -2.5, 3.5]));
        assert_eq!(view.get(&[2]), Some(3.5));
        let mut target = [0.0; 3];
        view.copy_to_slice(&mut target).expect("as long");
        assert_eq!(target, [1.5, -2.5, 3.5]);
        assert!(view.is_contiguous());
        assert!(view.as_cells().is_none(), "a cell has the alignment of its element");
    }
}

#[test]
fn unaligned_data_is_written_by_value() {
    for odd in 0..8 {
        let mut tensor = at(odd);
        let mut view = tensor.view_mut::<f64>().expect("exclusive");
        view.map_inplace(|x| x * 2.0);
        view.set(&[1], 0.25).expect("inside");
        assert_eq!(tensor.view::<f64>().expect("host").to_vec(), [3.0, 0.25, 7.0]);
    }
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "float64 is aligned to 4 bytes")]
fn unaligned_data_is_never_borrowed() {
    for odd in 1..8 {
        let mut tensor = at(odd);
        let wanted = misaligned(&tensor);
        assert_eq!(tensor.as_slice::<f64>(), Err(wanted.clone()));
        assert_eq!(tensor.as_slice_mut::<f64>(), Err(wanted.clone()));
        // SAFETY: nobody writes.
        assert_eq!(unsafe { tensor.assume_frozen() }.into_as::<&[f64]>(), Err(wanted.clone()));
        // SAFETY: nobody else has it.
        let tensor = unsafe { tensor.assume_exclusive() };
        assert_eq!(tensor.and_then(|tensor| tensor.into_as::<&mut [f64]>()), Err(wanted));
    }
    assert_eq!(at(0).as_slice::<f64>(), Ok(&[1.5, -2.5, 3.5][..]));
    assert_eq!(at(8).as_slice::<f64>(), Ok(&[1.5, -2.5, 3.5][..]));
}

#[test]
fn a_copy_of_unaligned_data_is_aligned() {
    let copy = at(3).to_contiguous().expect("host");
    assert_eq!(copy.data_ptr().addr() % 64, 0);
    assert_eq!(copy.as_slice::<f64>(), Ok(&[1.5, -2.5, 3.5][..]));
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "float64 is aligned to 4 bytes")]
fn a_byte_offset_may_misalign() {
    let foreign = Foreign::of_bytes(DType::F64, &[3], &[0; 32]).byte_offset(4);
    let tensor = import(foreign.class(Access::Exclusive)).expect("legal");
    assert_eq!(tensor.as_slice::<f64>(), Err(misaligned(&tensor)));
}

#[test]
fn bytes_reread_as_numbers_may_be_misaligned() {
    let mut tensor = Tensor::builder(vec![0_u8; 33])
        .dtype(DType::F64)
        .shape(&[4])
        .build::<u8>()
        .expect("it fits");
    tensor.view_mut::<f64>().expect("exclusive").fill(2.0);
    match tensor.as_slice::<f64>() {
        Ok(slice) => assert_eq!(slice, [2.0; 4]),
        Err(error) => assert_eq!(error, misaligned(&tensor)),
    }
}

#[test]
fn an_empty_tensor_is_never_misaligned() {
    let odd = std::ptr::without_provenance_mut(0x1001);
    let foreign = Foreign::new::<f64>(&[0, 2], &[]).data(odd).class(Access::Exclusive);
    let mut tensor = import(foreign).expect("legal");
    assert_eq!(tensor.as_slice::<f64>(), Ok(&[][..]));
    assert_eq!(tensor.as_slice_mut::<f64>(), Ok(&mut [][..]));
    assert_eq!(tensor.view::<f64>().expect("host").as_cells().map(<[_]>::len), Some(0));
}
