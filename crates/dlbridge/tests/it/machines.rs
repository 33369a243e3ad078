//! What only machines of 32 bits or of the other byte order meet.

#[cfg(target_pointer_width = "32")]
mod of_32_bits {
    //! More elements or bytes than a 32-bit `usize` counts, as a 32-bit process meets them.

    use dlbridge::{DType, DescriptorError, Device, Error, Flags, Tensor};
    use dlbridge_testing::Foreign;

    use crate::common::import;

    const ELEMENTS: Error =
        Error::Descriptor(DescriptorError::SizeOverflow { what: "element count" });
    const BYTES: Error = Error::Descriptor(DescriptorError::SizeOverflow { what: "byte size" });

    #[test]
    fn new_memory_is_refused_where_it_does_not_fit() {
        for shape in [&[1 << 32][..], &[1 << 16, 1 << 16], &[i64::MAX], &[1 << 62, 0, 1 << 62]] {
            let found = Tensor::zeros(DType::U8, shape).map(drop);
            assert_eq!(found, Err(ELEMENTS), "{shape:?}");
        }
        assert_eq!(Tensor::zeros(DType::U8, &[1_i64 << 31]).map(drop), Err(ELEMENTS));
        assert_eq!(Tensor::zeros(DType::F64, &[1 << 28]).map(drop), Err(BYTES));
    }

    #[test]
    fn a_producers_layout_is_refused_where_it_does_not_fit() {
        let import = |foreign: Foreign| import(foreign).map(drop);
        let of = |shape: &[i64]| Foreign::new(shape, &[0_u64; 2]);
        assert_eq!(import(of(&[1 << 32]).strides(&[0])), Err(ELEMENTS));
        assert_eq!(import(of(&[1 << 16, 1 << 16]).strides(&[0, 0])), Err(ELEMENTS));
        assert_eq!(import(of(&[1 << 28]).strides(&[0])), Err(BYTES));
        assert!(import(of(&[2]).strides(&[1 << 32])).is_err());
        assert!(import(of(&[2]).byte_offset(1 << 32)).is_err());
        let device = of(&[1 << 28]).strides(&[0]).device(Device::cuda(0)).flags(Flags::NONE);
        assert_eq!(import(device), Err(BYTES));
        assert_eq!(import(of(&[1 << 27]).strides(&[0])), Ok(()));
    }
}
