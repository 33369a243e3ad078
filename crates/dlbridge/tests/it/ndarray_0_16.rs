//! `ndarray` 0.16: the tests of 0.17 with its types, and both versions in one program.

mod ndarray {
    pub(crate) use ::ndarray_0_16::*;

    // This version has no type that all arrays dereference to.

    pub(crate) fn by_ref<D: Dimension>(array: &Array<i32, D>) -> &Array<i32, D> {
        array
    }

    pub(crate) fn by_mut<D: Dimension>(array: &mut Array<i32, D>) -> &mut Array<i32, D> {
        array
    }
}

#[allow(clippy::duplicate_mod, reason = "one suite for every version of the crate")]
#[path = "ndarray_0_17.rs"]
mod arrays;

#[cfg(feature = "ndarray-0_17")]
#[test]
fn an_array_of_one_version_is_a_view_of_the_other_and_back() {
    use ::ndarray as new;
    use dlbridge::{ReadCell, Tensor, TensorMut, TensorRef};

    let mut array = ndarray::array![[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]].reversed_axes();
    let data = array.as_ptr();
    {
        let mut tensor = TensorMut::from(&mut array);
        tensor.view_mut_as::<new::ArrayViewMut2<f32>>().expect("exclusive")[[2, 1]] = 60.0;
    }
    let mut tensor = Tensor::from(array);
    let view = tensor.view_as::<new::ArrayView2<f32>>().expect("exclusive");
    assert_eq!(view, new::array![[1.0, 4.0], [2.0, 5.0], [3.0, 60.0]]);
    assert_eq!((view.as_ptr(), view.strides()), (data, &[1, 3][..]));
    {
        // The view of one version is borrowed as a tensor, which is a view of the other.
        let borrowed = TensorRef::from(&view);
        let old: ndarray::ArrayView2<'_, f32> = borrowed.into_as().expect("frozen");
        assert_eq!((old.as_ptr(), old.strides()), (data, &[1, 3][..]));
    }
    tensor.view_mut_as::<ndarray::ArrayViewMut2<f32>>().expect("exclusive").fill(0.5);
    let copy = tensor.copy_as::<new::Array2<f32>>().expect("host");
    assert_eq!(copy, new::Array2::from_elem((3, 2), 0.5));

    let again: ndarray::Array2<f32> = tensor.into_owner().expect("it is the owner");
    assert_eq!(again.as_ptr(), data);

    let shared = Tensor::from(copy).into_shared();
    let cells = shared.view_as::<ndarray::ArrayView2<ReadCell<f32>>>().expect("aligned");
    let others = shared.view_as::<new::ArrayView2<ReadCell<f32>>>().expect("aligned");
    assert_eq!((cells[[2, 1]].get(), others[[2, 1]].get()), (0.5, 0.5));
}
