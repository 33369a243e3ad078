//! NumPy's C API, and the C struct of its arrays.
//! Its type numbers belong to `dtypes::numpy`.
//! Invariants: the entries are those of `numpy/__multiarray_api.h`, which never move. Where there is
//! an `Api`, the head of an object is measured. Only objects of `numpy.ndarray` and of classes derived from it are read,
//! of a NumPy whose C API version has this layout.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use dlbridge::ffi::KeepAlive;
use dlbridge::sys::DLTensor;
use dlbridge::{Device, Flags, Tensor};
use pyo3::exceptions::PyModuleNotFoundError;
use pyo3::ffi::{self, PyObject, PyTypeObject};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyMemoryView, PyType};
use pyo3::{Borrowed, intern};

use super::buffer::KeepsExtents;
use super::class::is_named;
use super::{borrow, capsule};
use crate::Result;
use crate::dtypes::numpy::{DTYPES, TYPES};
use crate::error::unless_refused;
use crate::interpreter::Once;
use crate::interpreter::head::Head;

/// The results of `PyArray_GetNDArrayCVersion` for NumPy 1.x and NumPy 2.x.
const VERSIONS: [c_uint; 2] = [0x0100_0009, 0x0200_0000];

/// `NPY_ARRAY_WRITEABLE`.
const WRITEABLE: c_int = 0x0400;

/// The most axes: those of NumPy 1, which is lower than that of NumPy 2 (64).
pub(crate) const MAX_NDIM: usize = 32;

/// `PyArray_NewFromDescr(type, descriptor, ndim, extents, strides, data, flags, object)`, which steals the descriptor.
/// `PyArray_New` calls it, and takes 30 instructions more.
type New = unsafe extern "C" fn(
    *mut PyTypeObject,
    *mut PyObject,
    c_int,
    *const isize,
    *const isize,
    *mut c_void,
    c_int,
    *mut PyObject,
) -> *mut PyObject;

/// `PyArray_DescrFromType(number)`, a new reference.
type Describe = unsafe extern "C" fn(c_int) -> *mut PyObject;

/// Keeps the memory of an object alive, without the object, for an array whose first element, if it has one, is at this
/// address. Runs no Python code.
pub(crate) type KeepOf = fn(Borrowed<'_, '_, PyAny>, Option<usize>) -> Option<KeepAlive>;

/// The functions of a NumPy whose layout is known.
pub(crate) struct Api {
    /// `numpy.ndarray`.
    array: *mut PyTypeObject,
    new: New,
    /// Those of the type numbers that have a dtype. NumPy never frees them.
    descriptors: [Option<NonNull<PyObject>>; TYPES],
}

// SAFETY: never written, and NumPy is never unloaded; the functions are called on attached
// threads only (F6, R9).
unsafe impl Send for Api {}
// SAFETY: the same.
unsafe impl Sync for Api {}

impl Api {
    /// The API of the installed NumPy; `None` for an unknown version.
    #[inline]
    pub(crate) fn get(py: Python<'_>) -> PyResult<Option<&Self>> {
        static API: Once<Option<Api>> = Once::new();
        Ok(API.get_or_make(py, || Self::load(py))?.as_ref())
    }

    /// An array of a type number over a tensor's memory, which its base keeps. It is read-only if the tensor is.
    #[inline]
    pub(crate) fn array_over<'py>(
        &self,
        py: Python<'py>,
        number: c_int,
        tensor: Tensor,
    ) -> Result<Bound<'py, PyAny>> {
        let array = self.without_base(py, number, &tensor)?;
        Ok(based_on(array, capsule::keeper(py, tensor)?))
    }

    /// An array over the tensor of an object, which is the base; `None` if `number_of` has no type number for it.
    #[inline]
    pub(crate) fn array_of<'py, T: KeepsExtents>(
        &self,
        object: &Bound<'py, T>,
        number_of: fn(&Tensor) -> Option<c_int>,
    ) -> Result<Option<Bound<'py, PyAny>>> {
        let (tensor, _) = T::parts(object)?;
        let Some(number) = number_of(tensor) else { return Ok(None) };
        let array = self.without_base(object.py(), number, tensor)?;
        Ok(Some(based_on(array, object.clone().into_any())))
    }

    /// An array over memory that its base, which it does not have yet, keeps.
    #[inline(always)]
    fn without_base<'py>(
        &self,
        py: Python<'py>,
        number: c_int,
        tensor: &Tensor,
    ) -> PyResult<Bound<'py, PyAny>> {
        let shape = tensor.shape();
        let mut space = [const { MaybeUninit::uninit() }; MAX_NDIM];
        // NumPy writes those of contiguous memory itself.
        let strides =
            if tensor.is_contiguous() { ptr::null() } else { in_bytes(tensor, &mut space) };
        let flags = if tensor.is_read_only() { 0 } else { WRITEABLE };
        let descriptor = self.descriptors[number as usize].expect("it has a dtype").as_ptr();
        // SAFETY: attached, and an object that NumPy never frees (F1, F6).
        unsafe { ffi::Py_INCREF(descriptor) };
        // SAFETY: attached (F1); as many extents, and strides if any, as axes, in numbers of 64 bits (`Api`), whose
        // elements all lie in the tensor's memory (R1), which is not null and outlives the array.
        let array = unsafe {
            (self.new)(
                self.array,
                descriptor,
                shape.len() as c_int,
                shape.as_ptr().cast(),
                strides,
                tensor.data_ptr().cast(),
                flags,
                ptr::null_mut(),
            )
        };
        // SAFETY: a new reference, or null with an exception set (F3).
        unsafe { Bound::from_owned_ptr_or_err(py, array) }
    }

    #[cold]
    fn load(py: Python<'_>) -> PyResult<Option<Self>> {
        if cfg!(not(target_pointer_width = "64")) || Head::measure(py).is_none() {
            return Ok(None);
        }
        let module = match py.import("numpy._core._multiarray_umath") {
            // The name in NumPy 1.x, whose stub in NumPy 2.x has an exception of its own for each error.
            Err(error) if error.is_instance_of::<PyModuleNotFoundError>(py) => {
                py.import("numpy.core._multiarray_umath")?
            }
            module => module?,
        };
        let capsule = module.getattr("_ARRAY_API")?.cast_into::<PyCapsule>()?;
        let table = capsule.pointer_checked(None)?.cast::<*mut c_void>();
        let entry = |index| {
            // SAFETY: the table of NumPy's C API, which is longer than any index here (F5).
            let entry = unsafe { table.add(index) };
            // SAFETY: the same.
            unsafe { entry.read() }
        };
        // SAFETY: the entry is `unsigned int PyArray_GetNDArrayCVersion(void)` (F5).
        let version: extern "C" fn() -> c_uint = unsafe { std::mem::transmute(entry(0)) };
        if !VERSIONS.contains(&version()) {
            return Ok(None);
        }
        // SAFETY: the entry is `PyArray_NewFromDescr` (F5).
        let new: New = unsafe { std::mem::transmute(entry(94)) };
        // SAFETY: the entry is `PyArray_DescrFromType` (F5).
        let describe: Describe = unsafe { std::mem::transmute(entry(45)) };
        let mut descriptors = [None; TYPES];
        for (number, place) in descriptors.iter_mut().enumerate() {
            if DTYPES[number].bits != 0 {
                // SAFETY: attached (F1); any number may be asked.
                let descriptor = unsafe { describe(number as c_int) };
                // SAFETY: a new reference, or null with an exception set (F3).
                let descriptor = unsafe { Bound::from_owned_ptr_or_err(py, descriptor) }?;
                *place = NonNull::new(descriptor.into_ptr());
            }
        }
        Ok(Some(Self { array: entry(2).cast(), new, descriptors }))
    }
}

/// Writes the strides of a tensor in bytes. Not inline, since nearly all memory is contiguous.
#[inline(never)]
fn in_bytes(tensor: &Tensor, space: &mut [MaybeUninit<i64>; MAX_NDIM]) -> *const isize {
    let itemsize = i64::from(tensor.dtype().bits / 8);
    for (bytes, &stride) in space.iter_mut().zip(tensor.strides()) {
        // Of an axis along which there is at most one element, the stride may be any.
        bytes.write(stride.wrapping_mul(itemsize));
    }
    space.as_ptr().cast()
}

/// Gives a new array of [`Api`]'s its base, which is not an array. `PyArray_SetBaseObject` does the same in 50 instructions
/// more.
#[inline]
fn based_on<'py>(array: Bound<'py, PyAny>, base: Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    // SAFETY: NumPy's own type, from a NumPy whose layout is known (F5).
    let fields = unsafe { Array::new(array.as_borrowed()) }.fields();
    // SAFETY: the same; null in a new array, which no other code has, and which frees the reference (F3).
    unsafe { (*fields).base = base.into_ptr() };
    array
}

/// Whether a type is NumPy's array type, with the layout that `import` reads.
#[cold]
pub(crate) fn is_array_type(kind: &Bound<'_, PyType>) -> Result<bool> {
    let py = kind.py();
    if !is_named(kind, |module| module == "numpy", "ndarray")? {
        return Ok(false);
    }
    let api = unless_refused(py, Api::get(py))?.flatten();
    Ok(api.is_some_and(|api| api.array == kind.as_type_ptr()))
}

/// `PyArrayObject_fields` behind its head, the same in every NumPy that `Api` knows.
#[repr(C)]
struct ArrayFields {
    data: *mut c_void,
    ndim: c_int,
    extents: *mut isize,
    /// In bytes.
    strides: *mut isize,
    base: *mut PyObject,
    descriptor: *mut PyObject,
    flags: c_int,
}

/// The first fields of `PyArray_Descr` behind its head, in the same order in each such NumPy.
#[repr(C)]
struct DescrFields {
    scalar_type: *mut PyTypeObject,
    kind: c_char,
    letter: c_char,
    byte_order: c_char,
    old_flags: c_char,
    number: c_int,
}

/// The fields of an object of NumPy.
///
/// # Safety
///
/// A type passed `is_array_type`, which measures the head.
#[inline(always)]
unsafe fn fields<T>(object: *mut PyObject) -> *mut T {
    // SAFETY: the caller's duty.
    unsafe { Head::measured() }.fields(object)
}

/// An array of `numpy.ndarray`, or of a class derived from it, with the layout that is read here.
#[derive(Clone, Copy)]
pub(crate) struct Array<'a, 'py>(Borrowed<'a, 'py, PyAny>);

impl<'a, 'py> Array<'a, 'py> {
    /// The array that an object is; `None` for an object of any other type.
    #[cold]
    pub(crate) fn of(object: Borrowed<'a, 'py, PyAny>) -> Result<Option<Self>> {
        Ok(is_array_type(&object.get_type())?.then_some(Self(object)))
    }

    /// # Safety
    ///
    /// The object's type passed [`is_array_type`], or is derived from one that did: the objects of a class begin with the
    /// fields of its base.
    #[inline(always)]
    pub(crate) unsafe fn new(object: Borrowed<'a, 'py, PyAny>) -> Self {
        Self(object)
    }

    #[inline(always)]
    fn fields(self) -> *mut ArrayFields {
        // SAFETY: an array (the duty of the caller of `new`).
        unsafe { fields(self.0.as_ptr()) }
    }

    /// Imports the array, as [`memory`](Self::memory) does, for code that keeps the tensor.
    pub(crate) fn tensor(self, keep_of: KeepOf) -> Result<Option<Tensor>> {
        Ok(self.memory(keep_of, false)?.map(borrow::Borrowed::into_given))
    }

    /// Imports the array, as an argument of a call if it is `in_frame`; `None` if `__dlpack__` must be called. `keep_of` keeps
    /// the memory of a base that is an object of this library's class.
    #[inline(always)]
    pub(crate) fn memory(
        self,
        keep_of: KeepOf,
        in_frame: bool,
    ) -> Result<Option<borrow::Borrowed>> {
        let mut strides = [const { MaybeUninit::uninit() }; dlbridge::MAX_NDIM];
        // From here on no Python code runs that could change the array.
        let Some((descriptor, flags)) = self.read(&mut strides) else { return Ok(None) };
        let descriptor = &descriptor;
        if let Some(keep) = self.export_behind(descriptor, keep_of) {
            // SAFETY: the array has no memory of its own, and `keep` keeps what its base does (T3).
            let tensor = unsafe { dlbridge::ffi::from_owner_raw(keep, descriptor, flags) }?;
            return Ok(Some(borrow::Borrowed::unborrowed(tensor)));
        }
        // SAFETY: the array keeps the memory that it describes (T3), as long as no
        // Python code moves it (T12): `resize` refuses while there are other references, but not with
        // `refcheck=False`, and `__setstate__` does not look at all.
        unsafe { borrow::Borrowed::of_object(self.0, descriptor, flags, in_frame) }.map(Some)
    }

    /// Keeps the memory of an array over an export of this library, without the array, so that a tensor
    /// that is exchanged with NumPy repeatedly does not grow a chain.
    #[inline]
    fn export_behind(self, tensor: &DLTensor, keep_of: KeepOf) -> Option<KeepAlive> {
        // SAFETY: an array of this layout (F5), whose fields nobody changes now (T12).
        let base = unsafe { (*self.fields()).base };
        if base.is_null() { None } else { self.export_in(base, tensor, keep_of) }
    }

    /// The export in a base of this array, which is this `tensor`.
    #[cold]
    fn export_in(
        self,
        mut base: *mut PyObject,
        tensor: &DLTensor,
        keep_of: KeepOf,
    ) -> Option<KeepAlive> {
        // SAFETY: an object (F1).
        let of_base = unsafe { ffi::Py_TYPE(base) };
        // SAFETY: the same.
        if of_base == unsafe { ffi::Py_TYPE(self.0.as_ptr()) } {
            // A view of an array: NumPy makes views of views views of the first array.
            // SAFETY: of the same type, so of this layout (F5).
            let first: *mut ArrayFields = unsafe { fields(base) };
            // SAFETY: the same.
            base = unsafe { (*first).base };
        }
        // SAFETY: the array keeps its base, and the base its own (T12); null if there is none.
        let base = unsafe { Borrowed::from_ptr_or_opt(self.0.py(), base) }?;
        let is_empty = (0..tensor.ndim as usize).any(|axis| {
            // SAFETY: an array has as many extents as axes (F5).
            let extent = unsafe { tensor.shape.add(axis) };
            // SAFETY: the same.
            0 == unsafe { extent.read() }
        });
        let first = (!is_empty).then(|| tensor.data.addr());
        if base.is_exact_instance_of::<PyMemoryView>() {
            // NumPy makes an array of a buffer over a memoryview of the exporter.
            let exporter = base.getattr(intern!(base.py(), "obj")).ok()?;
            return keep_of(exporter.as_borrowed(), first);
        }
        keep_of(base, first).or_else(|| capsule::keep(base))
    }

    /// The descriptor of the array, whose strides are written to `space`, and the flags of its memory.
    #[inline(always)]
    fn read(self, space: &mut [MaybeUninit<i64>; dlbridge::MAX_NDIM]) -> Option<(DLTensor, Flags)> {
        // SAFETY: an array of this layout (F5), whose fields nobody changes now (T12).
        let ArrayFields { data, ndim, extents, strides: in_bytes, descriptor, flags, .. } =
            unsafe { ptr::read(self.fields()) };
        // SAFETY: the array's type passed `is_array_type` (F5).
        let descriptor = unsafe { fields(descriptor) };
        // SAFETY: every array has a descriptor (F5).
        let DescrFields { number, byte_order, .. } = unsafe { ptr::read(descriptor) };
        let dtype = *DTYPES.get(usize::try_from(number).ok()?)?;
        let foreign = if cfg!(target_endian = "little") { b'>' } else { b'<' };
        if dtype.bits == 0 || byte_order as u8 == foreign {
            return None;
        }
        let itemsize = i64::from(dtype.bits / 8);
        let shift = itemsize.trailing_zeros();
        for (axis, stride) in space.iter_mut().enumerate().take(usize::try_from(ndim).ok()?) {
            // SAFETY: an array has as many strides as axes (F5).
            let bytes = unsafe { in_bytes.add(axis) };
            // SAFETY: the same.
            let bytes = unsafe { bytes.read() } as i64;
            if bytes & (itemsize - 1) != 0 {
                return None;
            }
            stride.write(bytes >> shift);
        }
        let device = Device::CPU.into();
        let (shape, strides) = (extents.cast(), space.as_mut_ptr().cast());
        let byte_offset = 0;
        let flags = if flags & WRITEABLE == 0 { Flags::READ_ONLY } else { Flags::NONE };
        Some((DLTensor { data, device, ndim, dtype, shape, strides, byte_offset }, flags))
    }
}
