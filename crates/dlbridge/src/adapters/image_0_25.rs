//! `image` 0.25, both ways: buffers of every pixel type, as tensors of height, width and channels.
//! Feature `image-0_25`.
//!
//! | from | to | copies |
//! | --- | --- | --- |
//! | `ImageBuffer`, `DynamicImage`; `Arc<ImageBuffer>`, read-only | [`Tensor`], by `From`, `TryFrom` | no |
//! | `&image`, `&mut image` | [`TensorRef`], [`TensorMut`], by `From` | no |
//! | a contiguous tensor that no other code writes | `ImageBuffer<P, &[S]>`, or an owning `ImageBuffer<P, TensorSlice<S>>` | no |
//! | a contiguous tensor that no other code has | `ImageBuffer<P, &mut [S]>`, or an owning `ImageBuffer<P, TensorSliceMut<S>>` | no |
//! | any tensor in host memory, or its [`View`] | `ImageBuffer<P, Vec<S>>`: `RgbImage`, ... | yes |
//!
//! The channels must be those of the pixel type; for pixels of one channel, a tensor of height and
//! width is accepted.
//!
//! ```
//! use dlbridge::{Tensor, TensorSliceMut};
//! use image::{ImageBuffer, Rgb, RgbImage};
//!
//! let tensor = Tensor::from(RgbImage::from_pixel(4, 2, Rgb([255, 128, 0])));
//! assert_eq!(tensor.shape(), [2, 4, 3]);
//! let image = tensor.view_as::<ImageBuffer<Rgb<u8>, &[u8]>>()?;
//! assert_eq!(image.get_pixel(3, 1).0, [255, 128, 0]);
//!
//! let mut image = tensor.into_as::<ImageBuffer<Rgb<u8>, TensorSliceMut<u8>>>()?;
//! image.put_pixel(3, 1, Rgb([1, 2, 3]));
//! assert_eq!(image.into_raw().into_tensor().copy_as::<RgbImage>()?.get_pixel(3, 1).0, [1, 2, 3]);
//! # Ok::<(), dlbridge::Error>(())
//! ```

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use image::{DynamicImage, ImageBuffer, Pixel};

use crate::layout::{Placement, contiguous_strides, count};
use crate::memory::owner::{export_slice, export_slice_mut};
use crate::{
    Element, Error, Flags, Parts, Plain, ShapeField, Tensor, TensorMut, TensorRef, TensorSlice,
    TensorSliceMut, View,
};

/// Why describing an image cannot fail.
const FITS: &str = "an image of an extent and a container that do not change";

/// An image becomes a tensor of height, width and channels, without a copy.
///
/// # Panics
///
/// If the extents of an image without samples overflow.
///
/// ```
/// use dlbridge::Tensor;
/// use image::{Rgb, RgbImage};
///
/// let image = RgbImage::from_pixel(4, 2, Rgb([255, 128, 0]));
/// let tensor = Tensor::from(image);
/// assert_eq!(tensor.shape(), [2, 4, 3]);
/// assert_eq!(tensor.view::<u8>()?.get([1, 3, 1]), Some(128));
/// assert!(tensor.into_owner::<RgbImage>().is_ok());
/// # Ok::<(), dlbridge::Error>(())
/// ```
impl<P> From<ImageBuffer<P, Vec<P::Subpixel>>> for Tensor
where
    P: Pixel<Subpixel: Plain> + Send + 'static,
{
    fn from(image: ImageBuffer<P, Vec<P::Subpixel>>) -> Self {
        let place = Place::of(&image);
        let handle = export_slice_mut(image, &place.placement(), |image| &mut **image);
        Self(handle.expect(FITS))
    }
}

/// A shared image becomes a read-only tensor of height, width and channels, without a copy.
///
/// # Panics
///
/// If the extents of an image without samples overflow.
impl<P, C> From<Arc<ImageBuffer<P, C>>> for Tensor
where
    P: Pixel<Subpixel: Element> + Send + Sync + 'static,
    C: Deref<Target = [P::Subpixel]> + Send + Sync + 'static,
{
    fn from(image: Arc<ImageBuffer<P, C>>) -> Self {
        let place = Place::of(&image);
        let handle = export_slice(image, &place.placement(), |image| image);
        Self(handle.expect(FITS))
    }
}

impl TryFrom<DynamicImage> for Tensor {
    type Error = Error;

    /// Moves the image that is inside, whatever its pixel type, without a copy.
    ///
    /// # Errors
    ///
    /// [`UnknownName`](Error::UnknownName) for a kind of image that is newer than this crate.
    fn try_from(image: DynamicImage) -> Result<Self, Error> {
        Ok(match image {
            DynamicImage::ImageLuma8(image) => image.into(),
            DynamicImage::ImageLumaA8(image) => image.into(),
            DynamicImage::ImageRgb8(image) => image.into(),
            DynamicImage::ImageRgba8(image) => image.into(),
            DynamicImage::ImageLuma16(image) => image.into(),
            DynamicImage::ImageLumaA16(image) => image.into(),
            DynamicImage::ImageRgb16(image) => image.into(),
            DynamicImage::ImageRgba16(image) => image.into(),
            DynamicImage::ImageRgb32F(image) => image.into(),
            DynamicImage::ImageRgba32F(image) => image.into(),
            other => {
                let name = format!("{:?}", other.color());
                return Err(Error::UnknownName { what: "image colour type", name });
            }
        })
    }
}

/// An image is described as it lies, read-only.
///
/// # Panics
///
/// If the image's container returns fewer samples than when the image was made.
impl<'a, P, C> From<&'a ImageBuffer<P, C>> for TensorRef<'a>
where
    P: Pixel<Subpixel: Element>,
    C: Deref<Target = [P::Subpixel]>,
{
    fn from(image: &'a ImageBuffer<P, C>) -> Self {
        let Place { shape, len, .. } = Place::of(image);
        TensorRef::from(image.get(..len).expect(FITS)).reshape(shape).expect(FITS)
    }
}

/// An image is described as it lies, writable.
///
/// # Panics
///
/// If the image's container returns fewer samples than when the image was made.
impl<'a, P, C> From<&'a mut ImageBuffer<P, C>> for TensorMut<'a>
where
    P: Pixel<Subpixel: Plain>,
    C: DerefMut<Target = [P::Subpixel]>,
{
    fn from(image: &'a mut ImageBuffer<P, C>) -> Self {
        let Place { shape, len, .. } = Place::of(image);
        TensorMut::from(image.get_mut(..len).expect(FITS)).reshape(shape).expect(FITS)
    }
}

/// Where the samples of an image lie.
struct Place<T> {
    shape: [i64; 3],
    strides: [i64; 3],
    /// The number of samples, which the container may have more of.
    len: usize,
    samples: std::marker::PhantomData<T>,
}

impl<T: Element> Place<T> {
    fn of<P, C>(image: &ImageBuffer<P, C>) -> Self
    where
        P: Pixel<Subpixel = T>,
        C: Deref<Target = [T]>,
    {
        let shape = [image.height().into(), image.width().into(), P::CHANNEL_COUNT.into()];
        let mut strides = [0; 3];
        contiguous_strides(&shape, &mut strides);
        let len = count(&shape);
        Self { shape, strides, len, samples: std::marker::PhantomData }
    }

    fn placement(&self) -> Placement<'_> {
        let (shape, strides) = (&self.shape, &self.strides);
        Placement::new(T::DTYPE, shape, strides, 0, Flags::NONE).expect(FITS)
    }
}

/// Width and height, if the tensor has the channels of `P`.
fn size<P: Pixel>(shape: &[i64]) -> Result<(u32, u32), Error> {
    let channels = P::CHANNEL_COUNT;
    let (height, width) = match *shape {
        [height, width] if channels == 1 => (height, width),
        [height, width, found] if found == i64::from(channels) => (height, width),
        [_, _, found] => {
            return Err(Error::extent(2, channels.into(), found));
        }
        _ => {
            return Err(Error::ndim(3, shape.len()));
        }
    };
    let fits = |axis, extent: i64| {
        u32::try_from(extent).map_err(|_| Error::ShapeMismatch {
            field: ShapeField::ExtentAtMost { axis },
            expected: u32::MAX as usize,
            found: usize::try_from(extent).unwrap_or(usize::MAX),
        })
    };
    Ok((fits(1, width)?, fits(0, height)?))
}

/// An image over a container that has the samples of a tensor of this size.
fn over<P, C>((width, height): (u32, u32), samples: C) -> ImageBuffer<P, C>
where
    P: Pixel,
    C: Deref<Target = [P::Subpixel]>,
{
    let image = ImageBuffer::from_raw(width, height, samples);
    image.expect("as many samples as the shape has")
}

views!(['a, P: Pixel<Subpixel: Plain>] ImageBuffer<P, &'a [P::Subpixel]>, tensor => {
    let size = size::<P>(tensor.shape());
    let samples = tensor.try_into()?;
    Ok(over(size?, samples))
});
views_mut!(['a, P: Pixel<Subpixel: Plain>] ImageBuffer<P, &'a mut [P::Subpixel]>, tensor => {
    let size = size::<P>(tensor.shape());
    let samples = tensor.try_into()?;
    Ok(over(size?, samples))
});
copies!([P: Pixel<Subpixel: Element>] P::Subpixel => ImageBuffer<P, Vec<P::Subpixel>>, copied);

fn copied<P: Pixel<Subpixel: Element>>(
    view: &View<'_, P::Subpixel>,
) -> Result<ImageBuffer<P, Vec<P::Subpixel>>, Error> {
    Ok(over(size::<P>(view.shape())?, view.elements.to_vec()?))
}

try_from!([P: Pixel<Subpixel: Plain>] Tensor => ImageBuffer<P, TensorSlice<P::Subpixel>>, tensor => {
    let size = size::<P>(tensor.shape());
    let samples = tensor.into_slice()?;
    Ok(over(size?, samples))
});
try_from!([P: Pixel<Subpixel: Plain>] Tensor => ImageBuffer<P, TensorSliceMut<P::Subpixel>>,
tensor => {
    let size = size::<P>(tensor.shape());
    let samples = tensor.into_slice_mut()?;
    Ok(over(size?, samples))
});
