//! An image over a tensor's memory is borrowed from it, and so is a tensor over an image's.

use dlbridge::{Tensor, TensorRef};
use image::{ImageBuffer, Rgb, RgbImage};

fn main() {
    let mut tensor = Tensor::from(RgbImage::new(2, 2));
    let image = tensor.view_as::<ImageBuffer<Rgb<u8>, &[u8]>>().unwrap();
    let mut other = tensor.view_mut_as::<ImageBuffer<Rgb<u8>, &mut [u8]>>().unwrap();
    other.put_pixel(0, 0, Rgb([1, 2, 3]));
    println!("{:?}", image.get_pixel(0, 0));

    let mut image = RgbImage::new(2, 2);
    let tensor = TensorRef::from(&image);
    image.put_pixel(0, 0, Rgb([1, 2, 3]));
    println!("{tensor:?}");
}
