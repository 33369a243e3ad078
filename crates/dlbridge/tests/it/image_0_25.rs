//! `image` 0.25: images of every pixel type to tensors, and tensors to images.
//! Slices that own a tensor, which images are made over, are in `owned_slice.rs`.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{import, other_extent, other_ndim, take_back};
use dlbridge::{
    Access, DType, Error, Plain, ShapeField, Tensor, TensorMut, TensorRef, TensorSlice,
    TensorSliceMut,
};
use dlbridge_testing::conformance::{self, Expected};
use dlbridge_testing::{CountingOwner, Foreign};
use image::{
    DynamicImage, ImageBuffer, Luma, LumaA, Pixel, Primitive, Rgb, RgbImage, Rgba, RgbaImage,
};

/// So many samples that differ.
fn samples<T: Primitive>(count: usize) -> Vec<T> {
    (0..count).map(|i| T::from(i + 1).expect("a small number")).collect()
}

/// All conversions of images of one pixel type.
fn conforms<P>()
where
    P: Pixel<Subpixel: Plain + Debug + PartialEq> + Send + Sync + 'static,
{
    let sizes: &[(usize, usize)] = &[(4, 3), (0, 3), (1, 1), (3, 0), (0, 0)];
    // Miri takes minutes for all of them.
    let sizes = if cfg!(miri) { &sizes[..2] } else { sizes };
    for &(width, height) in sizes {
        let channels = usize::from(P::CHANNEL_COUNT);
        let count = width * height * channels;
        let shape = [height as i64, width as i64, channels as i64];
        let make = || {
            let samples = samples::<P::Subpixel>(count);
            let expected = Expected::new(&shape, &samples).at(samples.as_ptr());
            let image = ImageBuffer::<P, _>::from_raw(width as u32, height as u32, samples);
            (image.expect("as many samples as it needs"), expected)
        };
        conformance::owner(|| {
            let (image, expected) = make();
            (Tensor::from(image), expected)
        });
        conformance::owner(|| {
            let (image, expected) = make();
            (Tensor::from(Arc::new(image)), expected.read_only())
        });
        let (mut image, expected) = make();
        conformance::borrowed(&TensorRef::from(&image), &expected);
        let mut tensor = TensorMut::from(&mut image);
        assert_eq!(tensor.access(), Access::Exclusive);
        tensor.view_mut::<P::Subpixel>().expect("exclusive").fill(samples(1)[0]);
        assert!(image.iter().all(|&sample| sample == samples(1)[0]));
    }
}

#[test]
fn images_of_every_pixel_type_conform() {
    conforms::<LumaA<u8>>();
    conforms::<Rgb<f32>>();
    if cfg!(miri) {
        return;
    }
    conforms::<Luma<u8>>();
    conforms::<Rgb<u8>>();
    conforms::<Rgba<u8>>();
    conforms::<Luma<u16>>();
    conforms::<LumaA<u16>>();
    conforms::<Rgb<u16>>();
    conforms::<Rgba<u16>>();
    conforms::<Rgba<f32>>();
    conforms::<Luma<i64>>();
    conforms::<Rgb<f64>>();
}

#[test]
fn whatever_is_in_a_dynamic_image_is_moved() {
    let image = |color| DynamicImage::new(4, 3, color);
    use image::ColorType::{L8, L16, La8, La16, Rgb8, Rgb16, Rgb32F, Rgba8, Rgba16, Rgba32F};
    for (color, channels, dtype) in [
        (L8, 1, DType::U8),
        (La8, 2, DType::U8),
        (Rgb8, 3, DType::U8),
        (Rgba8, 4, DType::U8),
        (L16, 1, DType::U16),
        (La16, 2, DType::U16),
        (Rgb16, 3, DType::U16),
        (Rgba16, 4, DType::U16),
        (Rgb32F, 3, DType::F32),
        (Rgba32F, 4, DType::F32),
    ] {
        let image = image(color);
        let data = image.as_bytes().as_ptr();
        let tensor = Tensor::try_from(image).expect("a known kind");
        assert_eq!((tensor.shape(), tensor.dtype()), (&[3, 4, channels][..], dtype), "{color:?}");
        assert_eq!(tensor.data_ptr().cast_const().cast(), data, "{color:?}");
    }
}

#[test]
fn samples_that_an_image_does_not_use_stay_out() {
    let image = RgbImage::from_raw(2, 2, samples(20)).expect("more than it needs");
    let tensor = TensorRef::from(&image);
    assert_eq!((tensor.shape(), tensor.len()), (&[2, 2, 3][..], 12));
    assert_eq!(Tensor::from(image).as_slice::<u8>().expect("exclusive"), samples::<u8>(12));
}

#[test]
fn an_image_comes_back_out_as_it_was() {
    let image = RgbImage::from_raw(2, 2, samples(12)).expect("it fits");
    let data = image.as_ptr();
    let mut tensor = Tensor::from(image);
    let mut view = tensor.view_mut_as::<ImageBuffer<Rgb<u8>, &mut [u8]>>().expect("exclusive");
    view.put_pixel(1, 0, Rgb([9, 9, 9]));
    let again: RgbImage = tensor.into_owner().expect("it is the owner");
    assert_eq!((again.as_ptr(), again.get_pixel(1, 0).0), (data, [9, 9, 9]));
}

#[test]
fn an_image_is_the_tensors_own_memory() {
    let mut tensor = Tensor::builder(samples::<u16>(24)).shape([2, 3, 4]).build::<u16>();
    let tensor = tensor.as_mut().expect("it fits");
    let data = tensor.data_ptr().cast::<u16>().cast_const();
    let image = tensor.view_as::<ImageBuffer<Rgba<u16>, &[u16]>>().expect("exclusive");
    assert_eq!((image.dimensions(), image.as_ptr()), ((3, 2), data));
    assert_eq!(image.get_pixel(2, 1).0, [21, 22, 23, 24]);
    let copy = tensor.copy_as::<ImageBuffer<Rgba<u16>, Vec<u16>>>().expect("host");
    assert_eq!(copy.as_raw(), image.as_raw());
    assert_ne!(copy.as_ptr(), data);
    let gray = Tensor::builder(samples::<u8>(6)).shape([2, 3]).build::<u8>().expect("it fits");
    let image =
        gray.view_as::<ImageBuffer<Luma<u8>, &[u8]>>().expect("two axes do for one channel");
    assert_eq!((image.dimensions(), image.get_pixel(0, 1).0), ((3, 2), [4]));
}

#[test]
fn images_take_what_a_slice_takes() {
    let refused = conformance::reader(|tensor| {
        Ok(tensor.view_as::<ImageBuffer<Luma<f64>, &[f64]>>()?.into_raw().to_vec())
    });
    let error = |name| refused.iter().find(|refusal| refusal.tensor == name).map(|r| &r.error);
    for name in ["contiguous", "contiguous, read-only", "null strides", "byte offset"] {
        assert_eq!(error(name), None, "{name}");
    }
    assert_eq!(error("contiguous, shared"), Some(&Error::SharedMemory));
    for name in ["column-major", "rows reversed", "broadcast", "sliding windows"] {
        assert!(matches!(error(name), Some(Error::NotContiguous { .. })), "{name}");
    }
    assert_eq!(error("one axis"), Some(&other_ndim(3, 1)));
    let wanted = other_extent(2, 1, 2);
    assert_eq!(error("3-d"), Some(&wanted));
    let refused = conformance::reader(|tensor| {
        Ok(tensor.copy_as::<ImageBuffer<Luma<f64>, Vec<f64>>>()?.into_raw())
    });
    let shape = |error: &Error| {
        matches!(
            error,
            Error::ShapeMismatch { field: ShapeField::Ndim, expected: 3, .. }
                | Error::ShapeMismatch { field: ShapeField::Extent { .. }, .. }
        )
    };
    assert!(refused.iter().all(|refusal| shape(&refusal.error)), "{refused:?}");
}

#[test]
fn each_class_allows_its_own_borrows() {
    for class in [Access::Shared, Access::Exclusive, Access::Frozen] {
        let make = || import(Foreign::new(&[2, 2, 3], &samples::<u8>(12)).class(class));
        let make = || make().expect("legal");
        let mut tensor = make();
        let access = tensor.access();
        let (can_read, can_write) = match access {
            Access::Exclusive => (Ok(()), Ok(())),
            Access::Frozen => (Ok(()), Err(Error::ReadOnly)),
            Access::Shared => (Err(Error::SharedMemory), Err(Error::SharedMemory)),
        };
        assert_eq!(
            tensor.view_as::<ImageBuffer<Rgb<u8>, &[u8]>>().map(|_| ()),
            can_read,
            "{access}"
        );
        assert_eq!(
            tensor.view_mut_as::<ImageBuffer<Rgb<u8>, &mut [u8]>>().map(|_| ()),
            can_write,
            "{access}"
        );
        assert_eq!(
            make().into_as::<ImageBuffer<Rgb<u8>, TensorSlice<u8>>>().map(|_| ()),
            can_read,
            "{access}"
        );
        assert_eq!(
            make().into_as::<ImageBuffer<Rgb<u8>, TensorSliceMut<u8>>>().map(|_| ()),
            can_write,
            "{access}"
        );
        let copy = tensor.copy_as::<ImageBuffer<Rgb<u8>, Vec<u8>>>().expect("every class");
        assert_eq!(copy.into_raw(), samples::<u8>(12));
    }
}

#[test]
fn another_pixel_type_is_refused() {
    let mut tensor = Tensor::from(RgbImage::new(2, 2));
    let wanted = other_extent(2, 4, 3);
    assert_eq!(tensor.view_as::<ImageBuffer<Rgba<u8>, &[u8]>>().map(|_| ()), Err(wanted.clone()));
    assert_eq!(
        tensor.view_mut_as::<ImageBuffer<Rgba<u8>, &mut [u8]>>().map(|_| ()),
        Err(wanted.clone())
    );
    assert_eq!(tensor.copy_as::<ImageBuffer<Rgba<u8>, Vec<u8>>>().map(|_| ()), Err(wanted.clone()));
    assert_eq!(tensor.into_as::<ImageBuffer<Rgba<u8>, TensorSlice<u8>>>().map(|_| ()), Err(wanted));
    let tensor = Tensor::from(RgbImage::new(2, 2));
    let wanted = Error::DTypeMismatch { found: DType::U8, expected: DType::U16 };
    assert_eq!(tensor.view_as::<ImageBuffer<Rgb<u16>, &[u16]>>().map(|_| ()), Err(wanted));
    let gray = Tensor::from([0_u8; 4]);
    let wanted = other_ndim(3, 1);
    assert_eq!(gray.view_as::<ImageBuffer<Luma<u8>, &[u8]>>().map(|_| ()), Err(wanted));
    let builder = Tensor::builder([0_u8; 0]).shape([1_i64 << 32, 0, 3]);
    let wide = builder.build::<u8>().expect("no elements");
    let wanted = Error::ShapeMismatch {
        field: ShapeField::ExtentAtMost { axis: 0 },
        expected: u32::MAX as usize,
        found: 1 << 32,
    };
    assert_eq!(wide.view_as::<ImageBuffer<Rgb<u8>, &[u8]>>().map(|_| ()), Err(wanted));
}

#[test]
fn an_owning_image_releases_its_tensor_once_on_another_thread() {
    let owner = CountingOwner::new(samples::<u8>(12));
    let drops = owner.drops();
    let tensor = Tensor::builder(owner).shape([2, 2, 3]).build::<u8>().expect("it fits");
    let data = tensor.data_ptr().cast::<u8>().cast_const();
    let image = tensor.into_as::<ImageBuffer<Rgb<u8>, TensorSliceMut<u8>>>().expect("exclusive");
    assert_eq!(image.as_ptr(), data);
    let image = std::thread::spawn(move || {
        let mut image = image;
        image.put_pixel(0, 0, Rgb([7, 8, 9]));
        image
    });
    let image = image.join().expect("no panic");
    assert_eq!(image.get_pixel(0, 0).0, [7, 8, 9]);
    drops.expect(0, "before the drop");
    std::thread::spawn(move || drop(image)).join().expect("no panic");
    drops.expect(1, "after the drop");
}

#[test]
fn an_exported_image_is_copied_not_borrowed() {
    let image = RgbaImage::from_raw(2, 1, samples(8)).expect("it fits");
    let tensor = take_back(Tensor::from(image.clone()).into_raw());
    assert_eq!(
        tensor.view_as::<ImageBuffer<Rgba<u8>, &[u8]>>().map(|_| ()),
        Err(Error::SharedMemory)
    );
    assert_eq!(tensor.copy_as::<ImageBuffer<Rgba<u8>, Vec<u8>>>(), Ok(image));
}

/// A container that returns fewer samples each time it is asked.
struct Shrinking(Vec<u8>, AtomicUsize);

impl Deref for Shrinking {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let asked = self.1.fetch_add(1, Ordering::SeqCst);
        &self.0[..self.0.len() >> asked]
    }
}

#[test]
#[should_panic(expected = "a container that do not change")]
fn a_container_that_returns_less_than_it_did_is_found_out() {
    let container = Shrinking(samples(12), AtomicUsize::new(0));
    let image = ImageBuffer::<Rgb<u8>, _>::from_raw(2, 2, container).expect("the first time");
    let _ = TensorRef::from(&image);
}

#[test]
#[should_panic(expected = "OutOfBounds")]
fn an_owned_container_that_returns_less_than_it_did_is_found_out() {
    let container = Shrinking(samples(12), AtomicUsize::new(0));
    let image = ImageBuffer::<Rgb<u8>, _>::from_raw(2, 2, container).expect("the first time");
    let _ = Tensor::from(Arc::new(image));
}
