//! Target `view`: reads and writes typed views of every element size, at any address and with any
//! strides, and compares them with the model, element by element. Target `gate` has hostile
//! descriptors.
//! Invariant: the owner's memory ends with the elements, so AddressSanitizer detects reads past it.

use dlbridge::{Access, Error, Plain, ShapeField, Tensor};
use dlbridge_testing::CountingOwner;
use ndarray::ArrayViewD;

use crate::elements;
use crate::input::Input;
use crate::model;
use crate::value::{ForType, Value, bits, for_type};

/// Reads and writes one tensor.
///
/// # Panics
///
/// If an element differs from the model.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let dtype = input.plain_dtype();
    for_type(dtype, Run(input));
}

struct Run<'a>(Input<'a>);

/// A layout over memory of exactly its elements' span.
struct Placed {
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// The offset of element `[0, 0, ...]`.
    at: usize,
    /// The offset of each element, in row-major order.
    places: Vec<usize>,
    /// The number of elements in the memory.
    owner: usize,
}

impl Placed {
    fn new(input: &mut Input<'_>) -> Self {
        let shape = input.small_shape();
        let strides: Vec<i64> = match input.below(4) {
            0 => model::contiguous(&shape).into_iter().flatten().collect(),
            _ => shape.iter().map(|_| input.small_stride()).collect(),
        };
        let span = model::measure(&shape, &strides).expect("small numbers");
        let owner = if span.len == 0 { 0 } else { (span.high - span.low + 1) as usize };
        let at = (-span.low) as usize;
        let place = |i| (at as i128 + model::offset_of_nth(i, &shape, &strides)) as usize;
        let places = (0..span.len as usize).map(place).collect();
        Self { places, at, owner, shape, strides }
    }

    /// The elements that this layout selects from the memory.
    fn shown<T: Copy>(&self, memory: &[T]) -> Vec<T> {
        self.places.iter().map(|&place| memory[place]).collect()
    }
}

/// The bytes of this many elements.
fn bytes<T>(count: usize, input: &mut Input<'_>) -> Vec<u8> {
    let first = input.any::<u8>();
    (0..count * size_of::<T>()).map(|i| first.wrapping_add((i * 41) as u8)).collect()
}

impl ForType for Run<'_> {
    type Output = ();

    fn plain<T: Value + Plain + Default>(mut self) {
        let input = &mut self.0;
        let placed = Placed::new(input);
        let raw = bytes::<T>(placed.owner, input);
        let memory: Vec<T> = raw.chunks_exact(size_of::<T>()).map(T::of).collect();
        if input.rarely(3) {
            misaligned(&placed, &raw, &memory, input);
        } else {
            aligned(&placed, memory, input);
        }
    }

    fn bool(mut self) {
        let input = &mut self.0;
        let placed = Placed::new(input);
        // Every byte but 0 is true.
        let raw = bytes::<u8>(placed.owner, input);
        let memory: Vec<bool> = raw.iter().map(|&byte| byte != 0).collect();
        let tensor = Tensor::builder(raw)
            .dtype(dlbridge::DType::BOOL)
            .shape(&placed.shape)
            .strides(&placed.strides)
            .offset(placed.at)
            .build::<u8>()
            .expect("the memory is as large");
        let view = tensor.view::<bool>().expect("truth values");
        elements::check_view(view, &placed.shown(&memory), true, input);
    }

    fn none(self) {
        unreachable!("it has a Rust type");
    }
}

/// Bytes that hold elements at a misaligned address.
fn misaligned<T: Value + Plain + Default>(
    placed: &Placed,
    raw: &[u8],
    memory: &[T],
    input: &mut Input<'_>,
) {
    // A tensor of bytes that starts inside its owner, exported again as elements.
    let shift = input.below(16);
    let shifted = [&vec![0; shift], raw].concat();
    let owner = Tensor::builder(shifted).offset(shift).build::<u8>().expect("the bytes after it");
    let bytes = owner.into_slice_mut::<u8>().expect("exclusive bytes");
    let mut tensor = Tensor::builder(bytes)
        .dtype(T::DTYPE)
        .shape(&placed.shape)
        .strides(&placed.strides)
        .offset(placed.at)
        .build::<u8>()
        .expect("the memory is as large");
    let wanted = placed.shown(memory);
    let aligned = wanted.is_empty() || tensor.data_ptr().addr() % align_of::<T>() == 0;
    elements::check_view(tensor.view::<T>().expect("of this type"), &wanted, aligned, input);
    let whole = aligned && model::is_contiguous(&placed.shape, &placed.strides);
    assert_eq!(tensor.as_slice::<T>().is_ok(), whole);
    written(&mut tensor, placed, memory.to_vec(), input);
}

/// Elements in a `Vec`.
fn aligned<T: Value + Plain + Default>(placed: &Placed, memory: Vec<T>, input: &mut Input<'_>) {
    let owner = CountingOwner::new(memory.clone());
    let drops = owner.drops();
    let mut tensor = Tensor::builder(owner)
        .shape(&placed.shape)
        .strides(&placed.strides)
        .offset(placed.at)
        .build::<T>()
        .expect("the memory is as large");
    assert_eq!(tensor.access(), Access::Exclusive);
    let wanted = placed.shown(&memory);
    elements::check_view(tensor.view::<T>().expect("of this type"), &wanted, true, input);
    let array = tensor.view_as::<ArrayViewD<T>>().expect("exclusive and aligned");
    assert_eq!(bits(array.iter().copied()), bits(wanted.iter().copied()), "an array");
    let memory = written(&mut tensor, placed, memory, input);
    let wanted = bits(placed.shown(&memory));
    let contiguous = model::is_contiguous(&placed.shape, &placed.strides);
    match input.below(4) {
        0 => {
            // The whole memory, including elements that the layout does not select.
            let owner = tensor.into_owner::<CountingOwner<T>>().expect("what it was made of");
            drops.expect(0, "given back");
            let all: &[T] = owner.as_ref();
            assert_eq!(bits(all.iter().copied()), bits(memory), "the owner's memory");
        }
        1 => {
            assert_eq!(tensor.as_slice::<T>().is_ok(), contiguous);
            if let Ok(slice) = tensor.into_slice::<T>() {
                drops.expect(0, "a slice that owns it");
                assert_eq!(bits(slice.iter().copied()), wanted);
                drop(slice.into_tensor());
            }
        }
        2 => {
            if let Ok(mut slice) = tensor.into_slice_mut::<T>() {
                slice.reverse();
                slice.reverse();
                let tensor = slice.into_tensor();
                assert_eq!(bits(tensor.as_slice::<T>().expect("as before").to_vec()), wanted);
            }
        }
        _ => {
            let contiguous = tensor.to_contiguous().expect("host memory");
            drop(tensor);
            drops.expect(1, "a copy needs no owner");
            assert_eq!(bits(contiguous.view::<T>().expect("of this type")), wanted);
        }
    }
    drops.expect(1, "done");
}

/// Writes through every method, and returns the expected memory.
fn written<T: Value + Plain + Default>(
    tensor: &mut Tensor,
    placed: &Placed,
    mut memory: Vec<T>,
    input: &mut Input<'_>,
) -> Vec<T> {
    for _ in 0..input.below(6) {
        let mut view = tensor.view_mut::<T>().expect("exclusive");
        assert_eq!((view.len(), view.shape()), (placed.places.len(), &placed.shape[..]));
        let value = T::of(&bytes::<T>(1, input));
        match input.below(4) {
            0 => {
                view.fill(value);
                placed.places.iter().for_each(|&place| memory[place] = value);
            }
            1 => {
                let values: Vec<T> =
                    bytes::<T>(view.len(), input).chunks_exact(size_of::<T>()).map(T::of).collect();
                view.copy_from_slice(&values).expect("as long");
                placed.places.iter().zip(&values).for_each(|(&place, &new)| memory[place] = new);
                let longer = [&values[..], &[value]].concat();
                let error = Error::ShapeMismatch {
                    field: ShapeField::Length,
                    expected: values.len(),
                    found: longer.len(),
                };
                assert_eq!(view.copy_from_slice(&longer), Err(error));
            }
            2 => {
                // Each element once, in no particular order.
                let mut count = 0;
                view.map_inplace(|_| {
                    count += 1;
                    value
                });
                assert_eq!(count, placed.places.len());
                for &place in &placed.places {
                    memory[place] = value;
                }
            }
            _ => {
                let ndim = placed.shape.len();
                let index: Vec<usize> = (0..ndim).map(|_| input.below(6)).collect();
                let inside = index.iter().zip(&placed.shape).all(|(&i, &n)| (i as i64) < n);
                let set = view.set(&index, value);
                assert_eq!(set.is_ok(), inside, "{index:?} of {:?}", placed.shape);
                assert_eq!(view.get(&index).map(Value::bits), inside.then(|| value.bits()));
                if inside {
                    let offset = model::offset_of(&index, &placed.strides);
                    memory[(placed.at as i128 + offset) as usize] = value;
                }
            }
        }
        let found = bits(tensor.view::<T>().expect("of this type"));
        assert_eq!(found, bits(placed.shown(&memory)), "after writing");
    }
    memory
}
