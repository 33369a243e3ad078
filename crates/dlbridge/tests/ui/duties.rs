//! What needs a duty of the caller, or of an implementation, is `unsafe`.

#![allow(dead_code)]

mod element_is_unsafe {
    //! A type that lies about its bytes would be unsound, so saying so is `unsafe`.

    use dlbridge::{DType, Element, Plain};

    #[derive(Clone, Copy)]
    struct Padded(u8, u32);

    impl Element for Padded {
        const DTYPE: DType = DType::U64;
    }

    impl Plain for Padded {}
}

mod import_is_unsafe {
    //! Nothing that trusts a pointer, or the caller's word, is safe to call.

    use dlbridge::{Device, Flags, Tensor, TensorRef};

    fn main() {
        let (versioned, legacy) = (Tensor::from([1]).into_raw(), Tensor::from([1]).into_raw_legacy());
        let _ = Tensor::from_raw(versioned);
        let _ = dlbridge::ffi::release_raw(legacy.unwrap());
        let _ = TensorRef::from_raw(std::ptr::null());
        let _ = Tensor::builder(()).build_raw(std::ptr::null_mut(), Device::CPU, Flags::NONE);
        let mut tensor = Tensor::from(vec![1]);
        let _ = tensor.assume_frozen();
        let _ = tensor.assume_exclusive();
        let _ = dlbridge::ffi::view_mut_unchecked::<i32>(&tensor);
        let _ = dlbridge::ffi::give(Tensor::from(vec![1]), |_| unreachable!());
        let _ = dlbridge::ffi::give_shared(Tensor::from(vec![1]), |_| unreachable!());
        let kept = dlbridge::ffi::Kept { number: 0, start: 0, end: |_, _| {} };
        let _ = dlbridge::ffi::keep_borrowed(tensor, kept);
    }
}

fn main() {}
