//! What needs a duty of the caller, or of an implementation, is `unsafe`.

#![allow(dead_code)]

mod element_is_unsafe {
    //! A type that lies about its bytes would be unsound, so saying so is `unsafe`.

    use dlbridge::{DType, Element, Plain};

    #[derive(Clone, Copy)]
    struct Padded(u8, u32);

    impl Element for Padded { //~ E0200
        const DTYPE: DType = DType::U64;
    }

    impl Plain for Padded {} //~ E0200
}

mod import_is_unsafe {
    //! Nothing that trusts a pointer, or the caller's word, is safe to call.

    use dlbridge::{Device, Flags, Tensor, TensorRef};

    fn main() {
        let (versioned, legacy) = (Tensor::from([1]).into_raw(), Tensor::from([1]).into_raw_legacy());
        let _ = Tensor::from_raw(versioned); //~ E0133
        let _ = dlbridge::ffi::release_raw(legacy.unwrap()); //~ E0133
        let _ = TensorRef::from_raw(std::ptr::null()); //~ E0133
        let _ = Tensor::builder(()).build_raw(std::ptr::null_mut(), Device::CPU, Flags::NONE); //~ E0133
        let mut tensor = Tensor::from(vec![1]);
        let _ = tensor.assume_frozen(); //~ E0133
        let _ = tensor.assume_exclusive(); //~ E0133
        let _ = dlbridge::ffi::view_mut_unchecked::<i32>(&tensor); //~ E0133
        let _ = dlbridge::ffi::give(Tensor::from(vec![1]), |_| unreachable!()); //~ E0133
        let _ = dlbridge::ffi::give_shared(Tensor::from(vec![1]), |_| unreachable!()); //~ E0133
        let kept = dlbridge::ffi::Kept { number: 0, start: 0, end: |_, _| {} };
        let _ = dlbridge::ffi::keep_borrowed(tensor, kept); //~ E0133
    }
}

fn main() {}
