//! Python producers that are wrong, override what they inherit, or are freed: in a Python that this
//! program starts itself.
//! Ordinary producers belong to `python.rs`.
#![cfg(unix)]
#![allow(unsafe_code, reason = "hosts a Python")]

#[path = "python/host.rs"]
mod host;

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use dlbridge::sys::{DLDeviceType, DLManagedTensorVersioned};
use dlbridge_capi::*;
use host::{Host, Table};

fn last_error() -> String {
    // SAFETY: a string that lives until the next failure on this thread.
    unsafe { CStr::from_ptr(dlb_last_error()) }.to_str().unwrap().to_owned()
}

fn request() -> Request {
    Request {
        struct_size: size_of::<Request>(),
        stream: 0,
        has_stream: 0,
        keep_exception: 0,
        reserved: [0; 6],
    }
}

/// Imports what an expression gives, and tells the stream that it is ready on.
fn import(host: &Host, code: &str, request: Request) -> Result<Option<usize>, (Status, String)> {
    let read = |info: &TensorInfo| (info.has_stream == 1).then_some(info.stream.addr());
    import_and(host, code, request, read)
}

fn is_read_only(host: &Host, code: &str) -> bool {
    import_and(host, code, request(), |info| info.flags & DLB_FLAG_READ_ONLY != 0).expect(code)
}

fn import_and<T>(
    host: &Host,
    code: &str,
    request: Request,
    read: impl FnOnce(&TensorInfo) -> T,
) -> Result<T, (Status, String)> {
    let object = host.eval(code);
    let mut tensor = ptr::null_mut();
    // SAFETY: a live object, on the thread that started Python.
    let status = unsafe { dlb_from_python(object, &request, &mut tensor) };
    host.drop(object);
    if status != Status::Ok {
        return Err((status, last_error()));
    }
    // SAFETY: a tensor that was imported just now.
    let info = unsafe { dlb_tensor_info(tensor) };
    // SAFETY: it belongs to the tensor.
    let found = read(unsafe { &*info });
    // SAFETY: released once.
    unsafe { dlb_release(tensor) };
    Ok(found)
}

fn refusal(host: &Host, code: &str) -> (Status, String) {
    let refused = import(host, code, request()).expect_err(code);
    assert!(host.is_calm(), "no exception stays set");
    refused
}

/// A tensor of a device, which nothing reads.
fn on_cuda() -> *mut TensorHandle {
    host::export(DLB_DEVICE_CUDA, 0, None)
}

/// One interpreter, one thread: the parts run one after the other.
#[test]
fn odd_producers_are_imported_or_refused() {
    let host = match Host::start() {
        Ok(host) => host,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    host.run("import ctypes, gc, sys, weakref\nimport numpy as np");
    messages_hold_any_text(&host);
    messages_outlive_their_exception(&host);
    exceptions_stay_set_on_demand(&host);
    legacy_tensors_are_exported_as_legacy(&host);
    elements_without_bytes_are_refused_before_numpy_divides_by_their_size(&host);
    streams_are_passed_and_told(&host);
    tables_are_called_for_their_own_class_only(&host);
    types_are_forgotten_when_they_are_freed(&host);
    torch_has_the_last_word(&host);
}

fn messages_hold_any_text(host: &Host) {
    host.run(
        "class Bad:\n def __init__(self, e): self.e = e\n def __dlpack__(self, **k): raise self.e",
    );
    let (status, message) = refusal(host, r"Bad(ValueError('a \ud800 b'))");
    assert_eq!((status, &*message), (Status::Python, r"ValueError: a \ud800 b"));
    let (_, message) = refusal(host, r"Bad(ValueError('a\0b'))");
    assert_eq!(message, r"ValueError: a\0b");
}

/// Dropping the exception runs code that fails in this library.
fn messages_outlive_their_exception(host: &Host) {
    let address = dlb_use_python as *const () as usize;
    host.run(&format!("fail = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)({address})"));
    host.run(
        "class Loud(Exception):\n dropped = 0\n def __del__(self): Loud.dropped += fail(None)\n\
         class Raises:\n def __dlpack__(self, **k): raise Loud('first')",
    );
    let (_, message) = refusal(host, "Raises()");
    assert_eq!(message, "Loud: first");
    assert!(host.truth("Loud.dropped == 1"));
}

fn exceptions_stay_set_on_demand(host: &Host) {
    host.run("class Own(Exception): pass");
    let keep = Request { keep_exception: 1, ..request() };
    for name in ["KeyboardInterrupt", "Own"] {
        let class = host.eval(name);
        let (status, message) = import(host, &format!("Bad({name}('stop'))"), keep).unwrap_err();
        assert_eq!((status, message), (Status::Python, format!("{name}: stop")));
        assert!(host.raised(class), "{name} is set");
        host.drop(class);
    }
    assert!(host.is_calm());
    let short = Request { struct_size: 8, ..request() };
    let (status, message) = import(host, "1", short).unwrap_err();
    assert_eq!(status, Status::Invalid);
    assert_eq!(message, "struct_size: expected 24, found 8; set it to sizeof the struct");
    let newer = Request { reserved: [0, 0, 1, 0, 0, 0], ..request() };
    let (status, message) = import(host, "1", newer).unwrap_err();
    assert_eq!(status, Status::Invalid);
    assert_eq!(
        message,
        "reserved: expected zeros, found another byte: zero the struct first, or the program was \
         compiled for a newer library"
    );
}

/// Also from the Python object that such a tensor becomes, which older consumers ask so.
fn legacy_tensors_are_exported_as_legacy(host: &Host) {
    let import = || {
        let object = host.eval("np.ones(2).__dlpack__()");
        let mut tensor = ptr::null_mut();
        // SAFETY: a live capsule, on the thread that started Python.
        assert_eq!(unsafe { dlb_from_python(object, ptr::null(), &mut tensor) }, Status::Ok);
        host.drop(object);
        tensor
    };
    let mut capsule = ptr::null_mut();
    // SAFETY: consumed.
    let status = unsafe { dlb_into_capsule(import(), 0, &mut capsule) };
    assert_eq!(status, Status::Ok, "{}", last_error());
    host.drop(capsule);
    let tensor = import();
    for _ in 0..2 {
        // SAFETY: a live tensor.
        let another = unsafe { dlb_retain(tensor) };
        // SAFETY: consumed.
        let status = unsafe { dlb_into_capsule(another, 0, &mut capsule) };
        assert_eq!(status, Status::Ok, "{}", last_error());
        host.drop(capsule);
    }
    let mut object = ptr::null_mut();
    // SAFETY: consumed.
    assert_eq!(unsafe { dlb_into_python(tensor, &mut object) }, Status::Ok);
    host.set("legacy", object);
    host.drop(object);
    assert!(host.truth("'\"dltensor\"' in repr(legacy.__dlpack__())"));
    host.run("del legacy");
}

/// `ndarray.__dlpack__` ended the process (SIGFPE), where the strides are not those of contiguous memory.
fn elements_without_bytes_are_refused_before_numpy_divides_by_their_size(host: &Host) {
    host.run(
        "class Derived(np.ndarray): pass\n\
         none = np.ndarray((3, 2), np.dtype([]), np.zeros(8, 'u1'), strides=(2, 1))",
    );
    let on_seven = Request { stream: 7, has_stream: 1, ..request() };
    for code in ["none", "none[:0]", "none.view(Derived)", "none.view(np.recarray)"] {
        for request in [request(), on_seven] {
            let (status, message) = import(host, code, request).expect_err(code);
            assert_eq!(status, Status::Unsupported, "{code}: {message}");
            assert!(message.starts_with("dtype: expected elements of a byte"), "{message}");
        }
    }
    import(host, "np.ones(2).view(Derived)", request()).expect("elements of 8 bytes");
}

fn streams_are_passed_and_told(host: &Host) {
    let mut object = ptr::null_mut();
    // SAFETY: exported, and owned here.
    assert_eq!(unsafe { dlb_into_python(on_cuda(), &mut object) }, Status::Ok);
    host.set("o", object);
    host.drop(object);
    host.run(
        "class P:\n asked = None\n def __dlpack_device__(self): return o.__dlpack_device__()\n \
         def __dlpack__(self, **k):\n  P.asked = k\n  return o.__dlpack__(**k)",
    );
    let on_seven = Request { has_stream: 1, stream: 7, ..request() };
    assert_eq!(import(host, "P()", on_seven), Ok(Some(7)));
    assert!(host.truth("P.asked == dict(max_version=(1, 3), stream=7)"));
    assert_eq!(import(host, "P()", request()), Ok(None));
    assert!(host.truth("P.asked == dict(max_version=(1, 3))"));
    // One that does not know `max_version` is told by a second call.
    host.run(
        "class Old(P):\n def __dlpack__(self, *, stream=None):\n  P.asked = stream\n  \
         return o.__dlpack__(stream=stream)",
    );
    assert_eq!(import(host, "Old()", on_seven), Ok(Some(7)));
    assert!(host.truth("P.asked == 7"));
    // What names no stream of the device is not passed on: 0 could mean any of three.
    host.run("P.asked = None");
    let on_zero = Request { stream: 0, ..on_seven };
    let (status, message) = import(host, "P()", on_zero).unwrap_err();
    assert_eq!(status, Status::Unsupported);
    assert!(message.starts_with("stream: expected None, -1, 1 (legacy default)"), "{message}");
    assert!(host.truth("P.asked is None"));
    // -1 asks the producer for no ordering: then no stream is known.
    let unordered = Request { stream: -1, ..on_seven };
    assert_eq!(import(host, "P()", unordered), Ok(None));
    assert!(host.truth("P.asked['stream'] == -1"));
    // Memory of the host has no streams.
    assert_eq!(import(host, "np.ones(2)", on_seven), Ok(None));
    // A capsule cannot be told one any more.
    let (status, message) = import(host, "o.__dlpack__()", on_seven).unwrap_err();
    assert_eq!(status, Status::Unsupported);
    assert!(message.starts_with("stream: expected an object with __dlpack__"), "{message}");
}

unsafe extern "C" fn give(_: *mut c_void, out: *mut *mut DLManagedTensorVersioned) -> c_int {
    let mut managed = ptr::null_mut();
    // SAFETY: exported, and owned here.
    assert_eq!(unsafe { dlb_into_versioned(on_cuda(), &mut managed) }, Status::Ok);
    // SAFETY: a place of the caller.
    unsafe { out.write(managed) };
    0
}

unsafe extern "C" fn stream(_: DLDeviceType, _: i32, out: *mut *mut c_void) -> c_int {
    // SAFETY: a place of the caller.
    unsafe { out.write(ptr::without_provenance_mut(5)) };
    0
}

/// A table that a class may publish for whatever it is.
static TABLE: Table = Table::new(give, stream);

fn tables_are_called_for_their_own_class_only(host: &Host) {
    TABLE.publish(host, "table");
    host.run(
        "class Base:\n __dlpack_c_exchange_api__ = table\n def __dlpack__(self, **k): raise KeyError('base')\n\
         class Inherits(Base): pass\n\
         class Overrides(Base):\n def __dlpack__(self, **k): raise KeyError('mine')\n\
         class Renews(Overrides):\n __dlpack_c_exchange_api__ = table\n\
         class Both(Overrides):\n __dlpack_c_exchange_api__ = table\n __dlpack__ = Base.__dlpack__\n\
         class Watched(Base):\n def __getattribute__(self, name): return super().__getattribute__(name)\n\
         class Hooked(Base):\n @classmethod\n def __torch_function__(cls, *a): pass",
    );
    for _ in 0..2 {
        // Through the table, whose producer has a current stream.
        for code in ["Base()", "Inherits()", "Renews()", "Both()"] {
            assert_eq!(import(host, code, request()), Ok(Some(5)), "{code}");
        }
        for (code, word) in [("Overrides()", "mine"), ("Watched()", "base"), ("Hooked()", "base")] {
            let refused = (Status::Python, format!("KeyError: '{word}'"));
            assert_eq!(refusal(host, code), refused, "{code}");
        }
    }
    // A method that is patched after the first import, in the class or in its base, then put back.
    host.run(
        "def patched(self, **k): return np.ones(1).__dlpack__(**k)\noriginal = Base.__dlpack__",
    );
    for (patch, put_back) in [
        ("Inherits.__dlpack__ = patched", "del Inherits.__dlpack__"),
        ("Base.__dlpack__ = patched", "Base.__dlpack__ = original"),
    ] {
        assert_eq!(import(host, "Inherits()", request()), Ok(Some(5)), "first");
        host.run(patch);
        assert_eq!(import(host, "Inherits()", request()), Ok(None), "{patch}");
        host.run(put_back);
        assert_eq!(import(host, "Inherits()", request()), Ok(Some(5)), "{put_back}");
    }
}

fn types_are_forgotten_when_they_are_freed(host: &Host) {
    // Far more types than are remembered, half of them with a table.
    host.run(
        "def ones(self, **k): return np.ones(1).__dlpack__(**k)\n\
         def make(n):\n members = {'__dlpack__': ones}\n \
         if n % 2: members['__dlpack_c_exchange_api__'] = table\n return type(f'T{n}', (), members)\n\
         types = [make(n) for n in range(200)]",
    );
    let import_all = || {
        for n in 0..200 {
            let expected = if n % 2 == 1 { Some(5) } else { None };
            assert_eq!(import(host, &format!("types[{n}]()"), request()), Ok(expected), "{n}");
        }
    };
    import_all();
    host.run("gc.collect(); before = [sys.getrefcount(t) for t in types]");
    for _ in 0..5 {
        import_all();
    }
    host.run("gc.collect(); after = [sys.getrefcount(t) for t in types]");
    assert!(host.truth("before == after"), "references leak");
    // One of `object`, which knows its subclasses, and at most one of the library.
    let watched_once = "all(weakref.getweakrefcount(t) <= 2 for t in types)";
    assert!(host.truth(watched_once), "weak references leak");
    host.run("watches = [weakref.ref(t) for t in types]; del types; gc.collect()");
    assert!(host.truth("all(watch() is None for watch in watches)"), "types are kept");
    // A method that keeps its class alive.
    host.run(
        "class Own:\n __dlpack_c_exchange_api__ = table\n \
         def __dlpack__(self, **k): return super() and np.ones(1).__dlpack__(**k)",
    );
    assert_eq!(import(host, "Own()", request()), Ok(Some(5)));
    host.run("watch = weakref.ref(Own); del Own; gc.collect()");
    assert!(host.truth("watch() is None"), "a type is kept by its method");
    // A method that is made anew each time, and one at the address of another.
    host.run(
        "class Anew:\n __dlpack_c_exchange_api__ = table\n \
         __dlpack__ = classmethod(lambda cls, **k: np.ones(1).__dlpack__(**k))\n\
         def patch(n): Anew.__dlpack__ = lambda self, **k: np.full(n, 1).__dlpack__(**k)",
    );
    let elements = |code| import_and(host, code, request(), |info| info.len).expect(code);
    let len = elements("Anew()");
    for n in 1..5 {
        host.run(&format!("patch({n})"));
        elements("Anew()");
    }
    assert_eq!(elements("Anew()"), len);
    // A type at the address of one that was freed answers for itself.
    host.run("addresses = set(); reused = 0");
    for n in 0..300 {
        host.run(&format!("t = make({n}); reused += id(t) in addresses; addresses.add(id(t))"));
        let expected = if n % 2 == 1 { Some(5) } else { None };
        assert_eq!(import(host, "t()", request()), Ok(expected), "{n}");
        host.run("del t; gc.collect()");
    }
    assert!(host.truth("reused > 0"), "no address was used again");
}

fn torch_has_the_last_word(host: &Host) {
    host.run("try: import torch\nexcept ImportError: torch = None");
    if !host.truth("torch is not None and hasattr(torch.Tensor, '__dlpack_c_exchange_api__')") {
        return eprintln!("skipped: no PyTorch with an exchange table");
    }
    host.run(
        "class Own(torch.Tensor):\n def __dlpack__(self, **k): raise BufferError('mine')\n\
         class Hook(torch.Tensor):\n @classmethod\n def __torch_function__(cls, f, types, args=(), kwargs=None):\n  \
         if f is torch.Tensor.__dlpack__: raise BufferError('hooked')\n  return super().__torch_function__(f, types, args, kwargs or {})\n\
         ones = torch.ones(2)\n\
         asked = 0\n\
         class Plain(torch.Tensor): pass",
    );
    for code in ["ones", "torch.nn.Parameter(ones, requires_grad=False)", "ones.as_subclass(Plain)"]
    {
        assert_eq!(import(host, code, request()), Ok(None), "{code}");
    }
    for (code, word) in [("ones.as_subclass(Own)", "mine"), ("ones.as_subclass(Hook)", "hooked")] {
        assert_eq!(refusal(host, code), (Status::Python, format!("BufferError: {word}")), "{code}");
    }
    // Autograd does not record what C writes.
    host.run("leaf = torch.ones(2, requires_grad=True)\nclass Asks(torch.Tensor): pass");
    for code in ["leaf", "leaf * 2", "torch.nn.Parameter(ones)", "leaf.as_subclass(Asks)"] {
        assert!(is_read_only(host, code), "{code}");
    }
    for code in ["ones", "leaf.detach()", "ones.as_subclass(Asks)"] {
        assert!(!is_read_only(host, code), "{code}");
    }
    // Their memory does not hold their values.
    host.run("x = torch.tensor([1 + 2j, 3 - 4j]).conj()");
    host.run(
        "from torch._subclasses.fake_tensor import FakeTensorMode\n\
         zeros = torch._efficientzerotensor((2**32 + 4,))\n\
         mode = FakeTensorMode()\n\
         with mode: fakes = torch.empty(2**32 + 4)\n\
         def part(tensor, start):\n with mode: return tensor[start:start + 4]\n\
         class Wrapper(torch.Tensor):\n @staticmethod\n def __new__(cls, offset):\n  \
         return torch.Tensor._make_wrapper_subclass(cls, (4,), strides=(1,), storage_offset=offset)\n \
         @classmethod\n def __torch_dispatch__(cls, f, types, args=(), kwargs=None): raise NotImplementedError(f)\n\
         class Dispatching(torch.Tensor): __torch_dispatch__ = Wrapper.__torch_dispatch__",
    );
    for (code, help) in [
        ("x", "resolve_conj()"),
        ("x.imag", "resolve_neg()"),
        ("x.resolve_conj().imag._neg_view()", "resolve_neg()"),
        ("torch.nn.Parameter(x.imag, requires_grad=False)", "resolve_neg()"),
        ("torch._efficientzerotensor((2,))", "null"),
        ("zeros[10:14]", "null"),
        ("zeros[100_000:100_004]", "without memory"),
        ("zeros[2**32:]", "without memory"),
        ("part(fakes, 10)", "with memory"),
        ("part(fakes, 100_000)", "with memory"),
        ("part(fakes, 2**32)", "with memory"),
        ("Wrapper(2**32)", "with memory"),
    ] {
        let (_, message) = refusal(host, code);
        assert!(message.contains(help), "{code}: {message}");
    }
    let hooked = ["ones.as_subclass(Dispatching)", "ones[:0].as_subclass(Dispatching)"];
    for code in ["x.resolve_conj()", "x.imag.resolve_neg()", "x.real"].into_iter().chain(hooked) {
        assert_eq!(import(host, code, request()), Ok(None), "{code}");
    }
    // What the table fails at, `__dlpack__` refuses in a line of its own.
    let (status, message) = refusal(host, "ones.to_sparse()");
    assert_eq!(status, Status::Python);
    assert!(message.starts_with("BufferError: ") && !message.contains('\n'), "{message}");
}
