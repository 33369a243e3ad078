//! The layout of every struct against the rules of C, and the lists of named codes.
//! Comparing with an installed header is the job of `tests/header`.
//! Invariant: a list of fields that is incomplete does not compile; one out of order fails.

use std::mem::offset_of;

use dlbridge_sys::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned,
    DLPackExchangeAPI, DLPackExchangeAPIHeader, DLPackVersion, DLTensor,
};

struct Field {
    name: &'static str,
    offset: usize,
    size: usize,
    align: usize,
}

struct Struct {
    name: &'static str,
    size: usize,
    align: usize,
    fields: Vec<Field>,
}

fn size_and_align<S, T>(_: fn(&S) -> &T) -> (usize, usize) {
    (size_of::<T>(), align_of::<T>())
}

macro_rules! structs {
    ($($type:ident { $($field:ident),* })*) => {
        [$({
            let _complete = |value: $type| {
                let $type { $($field: _),* } = value;
            };
            let fields = vec![$({
                let (size, align) = size_and_align(|value: &$type| &value.$field);
                Field { name: stringify!($field), offset: offset_of!($type, $field), size, align }
            }),*];
            let (size, align) = (size_of::<$type>(), align_of::<$type>());
            Struct { name: stringify!($type), size, align, fields }
        }),*]
    };
}

/// Fields in the order of the published header.
fn structs() -> [Struct; 8] {
    structs! {
        DLPackVersion { major, minor }
        DLDevice { device_type, device_id }
        DLDataType { code, bits, lanes }
        DLTensor { data, device, ndim, dtype, shape, strides, byte_offset }
        DLManagedTensor { dl_tensor, manager_ctx, deleter }
        DLManagedTensorVersioned { version, manager_ctx, deleter, flags, dl_tensor }
        DLPackExchangeAPIHeader { version, prev_api }
        DLPackExchangeAPI {
            header, managed_tensor_allocator, managed_tensor_from_py_object_no_sync,
            managed_tensor_to_py_object_no_sync, dltensor_from_py_object_no_sync,
            current_work_stream
        }
    }
}

/// C puts a field at the next multiple of its alignment, on targets of every pointer width.
#[test]
fn every_field_has_the_offset_that_c_gives_it() {
    for record in structs() {
        let mut end = 0_usize;
        for field in &record.fields {
            let expected = end.next_multiple_of(field.align);
            println!("{}.{}: {} + {}", record.name, field.name, field.offset, field.size);
            assert_eq!(field.offset, expected, "offset of {}.{}", record.name, field.name);
            end = expected + field.size;
        }
        let align = record.fields.iter().map(|field| field.align).max();
        assert_eq!(Some(record.align), align, "alignment of {}", record.name);
        assert_eq!(record.size, end.next_multiple_of(record.align), "size of {}", record.name);
    }
}

/// Rust promises that `None` is the null pointer; the callbacks depend on it.
#[test]
fn an_absent_callback_takes_the_place_of_a_null_pointer() {
    let pointer = size_of::<*mut u8>();
    for record in structs() {
        for field in record.fields {
            let callback = record.name == "DLPackExchangeAPI" && field.name != "header";
            if callback || field.name == "deleter" {
                assert_eq!(field.size, pointer, "size of {}.{}", record.name, field.name);
            }
        }
    }
}

#[test]
fn named_codes_ascend_and_keep_their_c_names() {
    assert!(DLDeviceType::NAMED.is_sorted_by(|a, b| a.1 < b.1));
    assert!(DLDataTypeCode::NAMED.is_sorted_by(|a, b| a.1 < b.1));
    assert_eq!(DLDeviceType::NAMED.len(), 19, "16 of DLPack 1.3 and 3 merged after it");
    assert_eq!(DLDataTypeCode::NAMED.len(), 19, "18 of DLPack 1.3 and 1 merged after it");

    let devices = DLDeviceType::NAMED.iter().map(|(name, _)| *name);
    let codes = DLDataTypeCode::NAMED.iter().map(|(name, _)| *name);
    assert!(devices.chain(codes).all(|name| name.starts_with("kDL")));
}

#[test]
fn a_code_without_a_name_is_an_ordinary_value() {
    let device = DLDevice { device_type: DLDeviceType(-7), device_id: 0 };
    assert!(DLDeviceType::NAMED.iter().all(|(_, named)| *named != device.device_type));
    let dtype = DLDataType { code: DLDataTypeCode(255), bits: 3, lanes: 1 };
    assert_eq!(dtype.code.0, 255);
}

#[test]
fn versions_order_by_major_then_minor() {
    let old = DLPackVersion { major: 0, minor: 8 };
    assert!(old < DLPackVersion::CURRENT);
    assert!(DLPackVersion::CURRENT < DLPackVersion { major: 1, minor: 4 });
}
