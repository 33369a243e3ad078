//! Python objects that are made once: names, and the requested version.
//! Invariant: never partially initialised, changed or freed. Python is expected to start only once.

use std::sync::OnceLock;

use dlbridge::protocol;

use super::api::Pointer;
use super::attached::{Object, Python};
use super::exception::Exception;

pub(super) struct Constants {
    /// `"__dlpack__"`.
    pub(super) dlpack: Pointer,
    /// `"__dlpack_c_exchange_api__"`.
    pub(super) exchange: Pointer,
    /// `"__dlpack_device__"`.
    pub(super) dlpack_device: Pointer,
    /// `"is_conj"`.
    pub(super) is_conj: Pointer,
    /// `"is_neg"`.
    pub(super) is_neg: Pointer,
    /// `"_is_zerotensor"`.
    pub(super) is_zeros: Pointer,
    /// `"requires_grad"`.
    pub(super) requires_grad: Pointer,
    /// `"stop_gradient"`.
    pub(super) stop_gradient: Pointer,
    /// `"itemsize"`.
    pub(super) itemsize: Pointer,
    /// `"numel"`, `"untyped_storage"` and `"data_ptr"`.
    pub(super) memory: [Pointer; 3],
    /// `"__mro__"`.
    pub(super) mro: Pointer,
    /// `"__dict__"`.
    pub(super) dict: Pointer,
    /// `"torch._C"`.
    pub(super) torch: Pointer,
    /// `"__torch_function__"`, and PyTorch's function that switches it off.
    pub(super) torch_function: (Pointer, Pointer),
    /// `"__torch_dispatch__"`.
    pub(super) torch_dispatch: Pointer,
    /// `"__getattribute__"`.
    pub(super) getattribute: Pointer,
    /// `(1, 3)`.
    pub(super) version: Pointer,
    /// `("max_version",)`.
    pub(super) keywords: Pointer,
    /// `("max_version", "stream")`.
    pub(super) keywords_with_stream: Pointer,
    /// `("stream",)`.
    pub(super) keywords_legacy: Pointer,
}

// SAFETY: addresses of objects, which are used where a thread is attached (F1, R9).
unsafe impl Send for Constants {}
// SAFETY: the same.
unsafe impl Sync for Constants {}

static CONSTANTS: OnceLock<Constants> = OnceLock::new();

impl Constants {
    #[inline]
    pub(super) fn get(python: Python) -> Result<&'static Self, Exception> {
        match CONSTANTS.get() {
            Some(constants) => Ok(constants),
            None => Self::make(python),
        }
    }

    /// Two threads may get here, since Python may switch threads in between: nothing is locked while
    /// Python runs. The second one's objects are leaked, which happens at most once a thread.
    #[cold]
    fn make(python: Python) -> Result<&'static Self, Exception> {
        let name = |name| python.intern(name).map(Object::into_raw);
        let number = |number: u32| python.integer(number.into());
        let max_version = || python.intern(c"max_version");
        let (major, minor) = protocol::VERSION;
        let version = [number(major)?, number(minor)?];
        let made = Self {
            dlpack: name(c"__dlpack__")?,
            exchange: name(c"__dlpack_c_exchange_api__")?,
            dlpack_device: name(c"__dlpack_device__")?,
            is_conj: name(c"is_conj")?,
            is_neg: name(c"is_neg")?,
            is_zeros: name(c"_is_zerotensor")?,
            requires_grad: name(c"requires_grad")?,
            stop_gradient: name(c"stop_gradient")?,
            itemsize: name(c"itemsize")?,
            memory: [name(c"numel")?, name(c"untyped_storage")?, name(c"data_ptr")?],
            mro: name(c"__mro__")?,
            dict: name(c"__dict__")?,
            torch: name(c"torch._C")?,
            torch_function: (name(c"__torch_function__")?, name(c"_disabled_torch_function_impl")?),
            torch_dispatch: name(c"__torch_dispatch__")?,
            getattribute: name(c"__getattribute__")?,
            version: python.tuple(version)?.into_raw(),
            keywords: python.tuple([max_version()?])?.into_raw(),
            keywords_with_stream: python
                .tuple([max_version()?, python.intern(c"stream")?])?
                .into_raw(),
            keywords_legacy: python.tuple([python.intern(c"stream")?])?.into_raw(),
        };
        Ok(CONSTANTS.get_or_init(|| made))
    }
}
