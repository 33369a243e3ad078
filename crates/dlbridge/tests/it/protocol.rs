//! The decisions of DLPack's Python protocol.

use std::ffi::CStr;

use dlbridge::protocol::attached::{Attachment, version};
use dlbridge::protocol::call::{CopyMode, Delivery, Keywords, Next, Raised, Request, after};
use dlbridge::protocol::capsule::Content;
use dlbridge::protocol::{VERSION, device, stream, table};
use dlbridge::sys::{DLPACK_MAJOR_VERSION, DLPackExchangeAPIHeader, DLPackVersion};
use dlbridge::{Device, DeviceKind, TypeCode};

const ROCM: Device = Device::new(DeviceKind::ROCM, 0);
const PINNED: Device = Device::new(DeviceKind::CUDA_HOST, 0);
const MANAGED: Device = Device::new(DeviceKind::CUDA_MANAGED, 0);
const METAL: Device = Device::new(DeviceKind::METAL, 0);
/// The memory that is copied to the host here.
const HOST: fn(Device) -> bool = Device::is_host_accessible;

fn message<T: std::fmt::Debug>(outcome: Result<T, impl std::fmt::Display>) -> String {
    outcome.map_err(|refusal| refusal.to_string()).unwrap_err()
}

#[test]
fn a_thread_is_attached_where_the_state_is_its_own() {
    let (state, none) = (std::ptr::without_provenance_mut(8), std::ptr::null_mut());
    let find = |minor, names: &'static [&'static str]| {
        Attachment::find(minor, |name| names.iter().position(|it| *it == name.to_str().unwrap()))
    };
    // The first function is asked, and a null state means detached.
    for (minor, names) in [
        (14, &["PyThreadState_GetUnchecked", "PyThreadState_GetDict"][..]),
        (13, &["PyThreadState_GetDict"]),
        (12, &["_PyThreadState_UncheckedGet"]),
    ] {
        let attachment = find(minor, names).unwrap();
        assert!(attachment.is_attached(|at| [state, none][at]), "{minor}");
        assert!(!attachment.is_attached(|at| [none, state][at]), "{minor}");
    }
    // Before 3.12 the state is compared with that of the calling thread.
    let attachment =
        find(11, &["_PyThreadState_UncheckedGet", "PyGILState_GetThisThreadState"]).unwrap();
    assert!(attachment.is_attached(|_| state));
    assert!(!attachment.is_attached(|_| none));
    assert!(!attachment.is_attached(|at| [state, none][at]));
    assert_eq!(
        find(11, &["_PyThreadState_UncheckedGet"]).unwrap_err().to_str(),
        Ok("PyGILState_GetThisThreadState")
    );
    assert!(find(13, &[]).is_err());
}

#[test]
fn versions_of_python_are_read() {
    let versions = ["3.12.1 (main, Jan 1 2024)", "3.13.0rc1", "3.14t", "4", "", "x.y"];
    let expected = [(3, 12), (3, 13), (3, 14), (4, 0), (0, 0), (0, 0)];
    assert_eq!(versions.map(version), expected);
}

#[test]
fn a_capsule_is_known_by_its_name() {
    let content = |name: &'static CStr| Content::of(move |asked| asked == name);
    assert_eq!(content(c"dltensor_versioned"), Some(Content::Versioned));
    assert_eq!(content(c"dltensor"), Some(Content::Legacy));
    assert_eq!(content(c"used_dltensor_versioned"), Some(Content::Consumed));
    assert_eq!(content(c"used_dltensor"), Some(Content::Consumed));
    assert_eq!(content(c"numpy_dltensor"), None);
}

#[test]
fn a_producer_that_knows_no_keyword_is_called_once_more_without_the_version() {
    let first = Keywords::SHARED;
    assert_eq!(first.max_version, Some(VERSION));
    for message in [
        "__dlpack__() got an unexpected keyword argument 'max_version'",
        "Array.__dlpack__() takes no keyword arguments",
        "__dlpack__(): incompatible function arguments. The following are supported:",
    ] {
        let next = after(Raised::TypeError(message), first);
        assert_eq!(next, Next::Call(Keywords::default()), "{message}");
        // The stream is known since the first standard.
        let on_stream = Keywords { stream: Some(7), ..first };
        let second = Keywords { stream: Some(7), ..Keywords::default() };
        assert_eq!(after(Raised::TypeError(message), on_stream), Next::Call(second));
        // The second call has no third one.
        assert_eq!(after(Raised::TypeError(message), second), Next::Raise);
    }
}

#[test]
fn a_producer_that_knows_no_version_is_not_asked_for_a_device_or_a_copy() {
    let unknown = Raised::TypeError("unexpected keyword argument 'max_version'");
    for asked in [
        Keywords { dl_device: Some(Device::CPU), ..Keywords::SHARED },
        Keywords { copy: Some(true), ..Keywords::SHARED },
    ] {
        assert_eq!(after(unknown, asked), Next::Raise);
    }
}

#[test]
fn an_exception_from_inside_a_producer_is_passed_on() {
    let first = Keywords::SHARED;
    assert_eq!(after(Raised::TypeError("unsupported operand"), first), Next::Raise);
    assert_eq!(after(Raised::Other, first), Next::Raise);
    assert_eq!(after(Raised::BufferError, first), Next::Buffer);
    assert_eq!(after(Raised::NoMethod, first), Next::OtherProtocols);
}

#[test]
fn a_consumer_gets_the_abi_that_it_reads() {
    let versioned = |max_version| {
        let request = Request { max_version, ..Request::default() };
        request.answer(Device::CPU, HOST).unwrap().versioned
    };
    assert!(!versioned(None));
    assert!(!versioned(Some((0, 8))));
    assert!(versioned(Some((1, 0))));
    assert!(versioned(Some((2, 0))));
}

#[test]
fn memory_is_copied_to_the_host_and_to_no_other_device() {
    let request = |dl_device, copy| Request { dl_device, copy, max_version: None };
    for copy in [None, Some(true), Some(false)] {
        let answer = request(None, copy).answer(PINNED, HOST).unwrap();
        assert_eq!((answer.copy, answer.device), (copy == Some(true), PINNED));
        let answer = request(Some(PINNED), copy).answer(PINNED, HOST).unwrap();
        assert_eq!((answer.copy, answer.device), (copy == Some(true), PINNED));
    }
    for copy in [None, Some(true)] {
        let answer = request(Some(Device::CPU), copy).answer(PINNED, HOST).unwrap();
        assert!(answer.copy && answer.device == Device::CPU);
    }
    let refused = message(request(Some(Device::CPU), Some(false)).answer(PINNED, HOST));
    assert!(refused.starts_with("dl_device: expected cuda_host:0"), "{refused}");
    let refused = message(request(Some(Device::CPU), None).answer(Device::cuda(0), HOST));
    assert_eq!(refused, "dl_device: expected cuda:0, where the memory is, found cpu");
    message(request(Some(Device::cuda(1)), None).answer(Device::cuda(0), HOST));
    message(request(Some(Device::cuda(0)), None).answer(Device::CPU, HOST));
}

#[test]
fn a_class_that_copies_read_only_memory_refuses_to_share_it() {
    let request = |copy| Request { copy, ..Request::default() };
    assert_eq!(request(None).copied(), Ok(request(Some(true))));
    assert_eq!(request(Some(true)).copied(), Ok(request(Some(true))));
    assert!(message(request(Some(false)).copied()).starts_with("copy: expected True or None"));
}

#[test]
fn a_stream_has_a_number_where_the_device_has_streams() {
    let cases = [
        (Device::CPU, None, Some(None)),
        (Device::CPU, Some(-1), Some(None)),
        (Device::CPU, Some(1), None),
        (PINNED, None, Some(None)),
        (PINNED, Some(7), None),
        (METAL, None, Some(None)),
        (METAL, Some(7), None),
        (Device::cuda(1), None, Some(Some(1))),
        (Device::cuda(1), Some(-1), Some(Some(-1))),
        (Device::cuda(1), Some(0), None),
        (Device::cuda(1), Some(2), Some(Some(2))),
        (Device::cuda(1), Some(-2), None),
        (MANAGED, None, Some(Some(1))),
        (MANAGED, Some(4096), Some(Some(4096))),
        (ROCM, None, Some(Some(0))),
        (ROCM, Some(-1), Some(Some(-1))),
        (ROCM, Some(0), Some(Some(0))),
        (ROCM, Some(1), None),
        (ROCM, Some(2), None),
        (ROCM, Some(3), Some(Some(3))),
    ];
    for (device, number, expected) in cases {
        let found = stream::number_on(number, device);
        assert_eq!(found.clone().ok(), expected, "{number:?} on {device}");
        let Err(refusal) = found else { continue };
        let number = number.expect("the default stream is never refused");
        let refusal = refusal.to_string();
        assert!(refusal.starts_with("stream: expected None"), "{refusal}");
        assert!(refusal.ends_with(&format!("for {device}, found {number}")), "{refusal}");
    }
}

#[test]
fn a_call_for_a_stream_names_it_only_where_there_are_streams() {
    let on = |stream, device| Keywords::on_stream(stream, device).unwrap();
    assert_eq!(on(None, Device::CPU), Keywords::SHARED);
    assert_eq!(on(None, Device::cuda(0)), Keywords { stream: Some(1), ..Keywords::SHARED });
    assert_eq!(on(Some(9), ROCM), Keywords { stream: Some(9), ..Keywords::SHARED });
    message(Keywords::on_stream(Some(9), Device::CPU));
}

#[test]
fn memory_is_delivered_as_asked() {
    use CopyMode::{Always, IfNeeded, Never};
    let cuda = Device::cuda(0);
    let cases = [
        // Where it is.
        (IfNeeded, Device::CPU, false, None, Delivery::Keep),
        (Never, Device::CPU, false, None, Delivery::Keep),
        (Always, Device::CPU, false, None, Delivery::CopyOnHost),
        (Always, Device::CPU, true, None, Delivery::CopyOnHost),
        (Always, cuda, false, None, Delivery::Call(cuda)),
        (Always, cuda, true, Some(cuda), Delivery::Keep),
        // On another device.
        (IfNeeded, PINNED, false, Some(Device::CPU), Delivery::CopyOnHost),
        (Always, PINNED, true, Some(Device::CPU), Delivery::CopyOnHost),
        (Never, PINNED, false, Some(Device::CPU), Delivery::Call(Device::CPU)),
        (IfNeeded, cuda, false, Some(Device::CPU), Delivery::Call(Device::CPU)),
        (IfNeeded, Device::CPU, false, Some(cuda), Delivery::Call(cuda)),
    ];
    for (mode, found, is_copied, wanted, expected) in cases {
        let delivery = mode.delivery(found, is_copied, wanted, HOST);
        assert_eq!(delivery, expected, "{mode:?} from {found} to {wanted:?}");
    }
    assert_eq!([IfNeeded, Never, Always].map(CopyMode::keyword), [None, Some(false), Some(true)]);
    assert!(Never.check(true).is_err() && Never.check(false).is_ok());
    assert!(IfNeeded.check(true).is_ok() && Always.check(true).is_ok());
}

#[test]
fn a_table_serves_types_with_the_methods_of_its_class() {
    let serves = |overridden: &'static str, is_hook_off: bool| {
        table::serves(|name| Ok::<_, ()>(name != overridden), || Ok(is_hook_off)).unwrap()
    };
    assert!(serves("", false));
    assert!(!serves("__dlpack__", true));
    assert!(!serves("__getattribute__", true));
    assert!(!serves("__torch_function__", false));
    assert!(serves("__torch_function__", true));
}

#[test]
fn the_newest_table_of_our_major_version_is_used() {
    let header = |major| DLPackExchangeAPIHeader {
        version: DLPackVersion { major, minor: 0 },
        prev_api: std::ptr::null_mut(),
    };
    let chain = [header(DLPACK_MAJOR_VERSION + 1), header(DLPACK_MAJOR_VERSION), header(0)];
    let older = |from: &DLPackExchangeAPIHeader| {
        chain.iter().skip_while(|header| !std::ptr::eq(*header, from)).nth(1)
    };
    let found = table::usable(chain.first(), older);
    assert!(found.is_some_and(|found| std::ptr::eq(found, &chain[1])));
    assert!(table::usable(chain.get(2), older).is_none());
    assert!(table::usable(None, older).is_none());
    // A chain in a circle.
    assert!(table::usable(chain.first(), |_| chain.first()).is_none());
}

#[test]
fn only_complex_tensors_are_asked_whether_they_are_conjugated() {
    for code in 0..=u8::MAX {
        let code = TypeCode(code);
        let is_complex = [TypeCode::COMPLEX, TypeCode::BCOMPLEX].contains(&code);
        assert_eq!(table::may_be_conjugated(code), is_complex, "{code:?}");
    }
}

#[test]
fn a_device_without_an_ordinal_is_the_first() {
    assert_eq!(device(2, None), Device::cuda(0));
    assert_eq!(device(2, Some(3)), Device::cuda(3));
}
