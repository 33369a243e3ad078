//! The Python class of an exported tensor, with only `__dlpack__` and `__dlpack_device__`.
//! Making the capsule belongs to `answer`.
//! Invariant: an object owns one `ArcTensor`, in a box.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use dlbridge::{ArcTensor, Tensor};

use super::answer::Arguments;
use super::api::{METH_NOARGS, Method, Pointer, Slot, Spec};
use super::attached::{Object, Python};
use super::exception::{Exception, raise};
use crate::entry::{PANICKED, contained};
use crate::error::{Error, Result};

/// Our class, and where in its objects the tensor stands.
#[derive(Clone, Copy)]
pub(super) struct Class {
    class: Pointer,
    offset: usize,
}

/// What CPython's headers call these numbers (`typeslots.h`, `methodobject.h`, `object.h`).
const TP_DEALLOC: c_int = 52;
const TP_DOC: c_int = 56;
const TP_METHODS: c_int = 64;
const TP_FREE: c_int = 74;
const METH_FASTCALL_KEYWORDS: c_int = 0x0080 | 0x0002;
const DEFAULT: u32 = 1 << 18;
const DISALLOW_INSTANTIATION: u32 = 1 << 7;
const IMMUTABLE: u32 = 1 << 8;

type Fastcall = unsafe extern "C" fn(Pointer, *const Pointer, isize, Pointer) -> Pointer;
type Noargs = unsafe extern "C" fn(Pointer, Pointer) -> Pointer;

/// A table that Python keeps for as long as the class lives.
static METHODS: [Method; 3] = [
    Method {
        name: c"__dlpack__".as_ptr(),
        function: dlpack as Fastcall as *const c_void,
        flags: METH_FASTCALL_KEYWORDS,
        doc: c"Give a capsule over the same memory.".as_ptr(),
    },
    Method {
        name: c"__dlpack_device__".as_ptr(),
        function: dlpack_device as Noargs as *const c_void,
        flags: METH_NOARGS,
        doc: c"The kind and number of the device that the memory is on.".as_ptr(),
    },
    Method { name: ptr::null(), function: ptr::null(), flags: 0, doc: ptr::null() },
];

const NAME: &CStr = c"dlbridge_capi.Tensor";
const DOC: &CStr = c"A tensor for from_dlpack.";

// SAFETY: the address of an object, which is used where a thread is attached (F1, R9).
unsafe impl Send for Class {}
// SAFETY: the same.
unsafe impl Sync for Class {}

/// Made once, then never freed.
static CLASS: OnceLock<Class> = OnceLock::new();

/// The class. As for `Constants`, two threads may make it; one of the two is leaked.
#[inline]
fn class(python: Python) -> Result<Class, Exception> {
    match CLASS.get() {
        Some(&class) => Ok(class),
        None => {
            // The caller may have an exception set, which this must neither lose nor meet.
            let made = python.undisturbed(|| make(python))?;
            Ok(*CLASS.get_or_init(|| made))
        }
    }
}

/// Makes the class.
#[cold]
fn make(python: Python) -> Result<Class, Exception> {
    let offset = size_of_plain_object(python)?;
    let mut slots = [
        Slot { id: TP_DEALLOC, value: dealloc as unsafe extern "C" fn(Pointer) as *mut c_void },
        Slot { id: TP_METHODS, value: (&raw const METHODS).cast_mut().cast() },
        Slot { id: TP_DOC, value: DOC.as_ptr().cast_mut().cast() },
        Slot { id: 0, value: ptr::null_mut() },
    ];
    let mut spec = Spec {
        name: NAME.as_ptr(),
        basicsize: (offset + size_of::<*const Tensor>()) as c_int,
        itemsize: 0,
        flags: DEFAULT | DISALLOW_INSTANTIATION | IMMUTABLE,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: attached; a spec of the stable ABI, whose method table and texts are static (F1, F2).
    let class = unsafe { python.api.PyType_FromSpec(&mut spec) };
    // SAFETY: a new reference or null (F3).
    let class = unsafe { python.own(class) }?.into_raw();
    Ok(Class { class, offset })
}

/// How many bytes of an object are Python's own, which differs between builds of CPython.
fn size_of_plain_object(python: Python) -> Result<usize, Exception> {
    // SAFETY: a class that lives as long as Python (F6).
    let plain = unsafe { python.borrow(python.api.object) };
    let plain = plain.ok_or_else(|| Exception::take(python))?;
    let size = plain.attribute(python.intern(c"__basicsize__")?.as_ptr())?.integer()?;
    Ok(size as usize)
}

/// Makes a Python object of a tensor, which is taken only when nothing can fail any more. Memory
/// that was exclusive becomes shared.
pub(crate) fn new(python: Python, take: impl FnOnce() -> Tensor) -> Result<Object> {
    let class = class(python)?;
    // SAFETY: attached; our own class, which keeps to this allocator (F1).
    let object = unsafe { python.api.PyType_GenericAlloc(class.class, 0) };
    // SAFETY: a new reference or null (F3).
    let object = unsafe { python.own(object) }?;
    let tensor = Box::into_raw(Box::new(take().into_shared()));
    // SAFETY: `make` asked for room for a pointer there, aligned as all of an object is (R7).
    unsafe { place(object.as_ptr(), class).write(tensor) };
    Ok(object)
}

/// The place of an object's tensor.
fn place(object: Pointer, class: Class) -> *mut *mut ArcTensor {
    object.wrapping_byte_add(class.offset).cast()
}

/// The tensor of one of our objects.
///
/// # Safety
///
/// `object` is a live object of our class, whose existence `class` proves.
unsafe fn tensor_of(object: Pointer, class: Class) -> ArcTensor {
    // SAFETY: `new` wrote it before anybody saw the object (R7).
    let tensor = unsafe { place(object, class).read() };
    // SAFETY: the object, which is alive, owns the box; it is never written (R7).
    unsafe { &*tensor }.clone()
}

/// Runs a method: a new reference, or null with an exception set.
fn guarded(method: impl FnOnce(Python, Class) -> Result<Object>) -> Pointer {
    // SAFETY: Python calls methods of objects (F1).
    let python = unsafe { Python::in_callback() };
    let (Some(python), Some(&class)) = (python, CLASS.get()) else {
        return ptr::null_mut();
    };
    let outcome = contained(None, || Some(method(python, class)));
    match outcome {
        Some(Ok(object)) => return object.into_raw(),
        Some(Err(Error::Python(exception))) => exception.restore(),
        Some(Err(error)) => raise(python, |api| api.PyExc_BufferError, &error.to_string()),
        None => raise(python, |api| api.PyExc_BufferError, PANICKED),
    }
    ptr::null_mut()
}

unsafe extern "C" fn dlpack(
    object: Pointer,
    arguments: *const Pointer,
    positional: isize,
    names: Pointer,
) -> Pointer {
    guarded(|python, class| {
        // SAFETY: Python calls the method with an object of our class (F1).
        let tensor = unsafe { tensor_of(object, class) };
        // SAFETY: the arguments of a fast call, as Python gives them (F1).
        let request = unsafe { Arguments::read(python, arguments, positional, names) }?;
        request.answer(python, &tensor)
    })
}

unsafe extern "C" fn dlpack_device(object: Pointer, _: Pointer) -> Pointer {
    guarded(|python, class| {
        // SAFETY: Python calls the method with an object of our class (F1).
        let device = unsafe { tensor_of(object, class) }.device();
        let number = |number: i32| python.integer(number.into());
        Ok(python.tuple([number(device.kind.0)?, number(device.id)?])?)
    })
}

/// Frees an object. What its tensor's owner does must not disturb an exception on its way.
unsafe extern "C" fn dealloc(object: Pointer) {
    contained((), || {
        // SAFETY: Python calls the destructors of objects (F1).
        let python = unsafe { Python::in_callback() };
        let (Some(python), Some(&class)) = (python, CLASS.get()) else { return };
        // SAFETY: an object of our class; null if `new` failed before it wrote it (R7).
        let tensor = unsafe { place(object, class).read() };
        if !tensor.is_null() {
            // SAFETY: the object's own box, which is dropped with it (R7).
            let release = || drop(unsafe { Box::from_raw(tensor) });
            python.undisturbed(|| contained((), release));
        }
        let class = class.class;
        // SAFETY: a class that was made from a spec (F1).
        let free = unsafe { python.api.PyType_GetSlot(class, TP_FREE) };
        // SAFETY: every class has this function, of this type (`freefunc`; F5).
        let free: unsafe extern "C" fn(*mut c_void) = unsafe { std::mem::transmute(free) };
        // SAFETY: the last reference to the object is gone (R7).
        unsafe { free(object.cast()) };
        // SAFETY: objects of such classes hold a reference to their class (since Python 3.8; F1).
        unsafe { python.api.Py_DecRef(class) };
    });
}
