//! The minimum cost of sharing: one box with the descriptor, shape, strides and the owner, as
//! written by hand for this one type and ndim. It checks nothing.

use std::ffi::c_void;

use dlbridge::sys::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensorVersioned, DLPackVersion,
    DLTensor,
};
use ndarray::{Array2, ArrayView2, ShapeBuilder};

#[repr(C)]
struct OneBox {
    managed: DLManagedTensorVersioned,
    shape: [i64; 2],
    strides: [i64; 2],
    owner: Array2<f32>,
}

/// A managed tensor that owns an array.
pub fn share(owner: Array2<f32>) -> *mut DLManagedTensorVersioned {
    let (data, dim) = (owner.as_ptr().cast_mut().cast::<c_void>(), owner.dim());
    let strides = [owner.strides()[0] as i64, owner.strides()[1] as i64];
    let boxed = Box::into_raw(Box::new(OneBox {
        managed: DLManagedTensorVersioned {
            version: DLPackVersion::CURRENT,
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(delete),
            flags: 0,
            dl_tensor: DLTensor {
                data,
                device: DLDevice { device_type: DLDeviceType(1), device_id: 0 },
                ndim: 2,
                dtype: DLDataType { code: DLDataTypeCode(2), bits: 32, lanes: 1 },
                shape: std::ptr::null_mut(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            },
        },
        shape: [dim.0 as i64, dim.1 as i64],
        strides,
        owner,
    }));
    // SAFETY: just boxed.
    let fields = unsafe { &mut *boxed };
    fields.managed.dl_tensor.shape = fields.shape.as_mut_ptr();
    fields.managed.dl_tensor.strides = fields.strides.as_mut_ptr();
    fields.managed.manager_ctx = boxed.cast();
    boxed.cast()
}

unsafe extern "C" fn delete(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: the box that `share` made, freed once.
    drop(unsafe { Box::from_raw((*managed).manager_ctx.cast::<OneBox>()) });
}

/// Views the tensor as an array.
///
/// # Safety
///
/// The tensor came from [`share`] and is alive for `'a`.
pub unsafe fn view<'a>(managed: *mut DLManagedTensorVersioned) -> ArrayView2<'a, f32> {
    // SAFETY: the caller's duty, for this and the next three.
    let tensor = unsafe { &(*managed).dl_tensor };
    let shape = unsafe { &*tensor.shape.cast::<[i64; 2]>() };
    let strides = unsafe { &*tensor.strides.cast::<[i64; 2]>() };
    let shape = (shape[0] as usize, shape[1] as usize);
    let shape = shape.strides((strides[0] as usize, strides[1] as usize));
    unsafe { ArrayView2::from_shape_ptr(shape, tensor.data.cast::<f32>()) }
}

/// Releases the tensor.
///
/// # Safety
///
/// The tensor came from [`share`], and is no longer used.
pub unsafe fn release(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: the caller's duty.
    unsafe { (*managed).deleter.expect("a deleter")(managed) }
}
