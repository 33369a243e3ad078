//! What this crate says of every struct, field, flag and code, each as a C expression and a value.
//! Which of it a given header must contain is said by the version at each group.
//! Invariant: a struct's list of fields is complete and has our Rust types, or it does not compile.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

use dlbridge_sys::*;

/// A C expression, and its value according to this crate.
pub(crate) struct Row {
    pub(crate) expression: String,
    pub(crate) ours: i64,
}

/// Rows that hold for headers from one version on.
pub(crate) struct Group {
    pub(crate) since: (u32, u32),
    pub(crate) rows: Vec<Row>,
}

/// A row; everything here fits, being a size, an offset, a flag bit or a code.
pub(crate) fn row(expression: String, ours: impl TryInto<i64>) -> Row {
    Row { expression, ours: ours.try_into().ok().expect("fits in i64") }
}

/// Size and alignment of a struct; offset, size and C type of each field.
macro_rules! group {
    (since $since:expr, $type:ident { $($field:ident: $rust:ty = $c:literal;)* }) => {{
        let _complete = |value: $type| {
            let $type { $($field),* } = value;
            $(let _: $rust = $field;)*
        };
        let name = stringify!($type);
        let mut rows = vec![
            row(format!("sizeof({name})"), size_of::<$type>()),
            row(format!("_Alignof({name})"), align_of::<$type>()),
        ];
        $({
            let field = stringify!($field);
            let access = format!("(({name} *)0)->{field}");
            rows.push(row(format!("offsetof({name}, {field})"), offset_of!($type, $field)));
            rows.push(row(format!("sizeof({access})"), size_of::<$rust>()));
            rows.push(row(format!("_Generic({access}, {}: 1, default: 0)", $c), 1));
        })*
        Group { since: $since, rows }
    }};
}

/// Every struct, beside the first version whose header has it in this form.
pub(crate) fn structs() -> Vec<Group> {
    type SetError = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);
    type Versioned = DLManagedTensorVersioned;
    type Allocator = unsafe extern "C" fn(
        *mut DLTensor,
        *mut *mut Versioned,
        *mut c_void,
        Option<SetError>,
    ) -> c_int;
    type FromPy = unsafe extern "C" fn(*mut c_void, *mut *mut Versioned) -> c_int;
    type ToPy = unsafe extern "C" fn(*mut Versioned, *mut *mut c_void) -> c_int;
    type View = unsafe extern "C" fn(*mut c_void, *mut DLTensor) -> c_int;
    type Stream = unsafe extern "C" fn(DLDeviceType, i32, *mut *mut c_void) -> c_int;

    let (v0_6, v1_0, v1_2) = ((0, 6), (1, 0), (1, 2));
    vec![
        group!(since v0_6, DLDevice {
            device_type: DLDeviceType = "DLDeviceType";
            device_id: i32 = "int32_t";
        }),
        group!(since v0_6, DLDataType {
            code: DLDataTypeCode = "uint8_t";
            bits: u8 = "uint8_t";
            lanes: u16 = "uint16_t";
        }),
        group!(since v0_6, DLTensor {
            data: *mut c_void = "void *";
            device: DLDevice = "DLDevice";
            ndim: i32 = "int32_t";
            dtype: DLDataType = "DLDataType";
            shape: *mut i64 = "int64_t *";
            strides: *mut i64 = "int64_t *";
            byte_offset: u64 = "uint64_t";
        }),
        group!(since v0_6, DLManagedTensor {
            dl_tensor: DLTensor = "DLTensor";
            manager_ctx: *mut c_void = "void *";
            deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>
                = "void (*)(DLManagedTensor *)";
        }),
        group!(since v1_0, DLPackVersion {
            major: u32 = "uint32_t";
            minor: u32 = "uint32_t";
        }),
        group!(since v1_0, DLManagedTensorVersioned {
            version: DLPackVersion = "DLPackVersion";
            manager_ctx: *mut c_void = "void *";
            deleter: Option<unsafe extern "C" fn(*mut Versioned)>
                = "void (*)(DLManagedTensorVersioned *)";
            flags: u64 = "uint64_t";
            dl_tensor: DLTensor = "DLTensor";
        }),
        group!(since v1_2, DLPackExchangeAPIHeader {
            version: DLPackVersion = "DLPackVersion";
            prev_api: *mut DLPackExchangeAPIHeader = "DLPackExchangeAPIHeader *";
        }),
        group!(since v1_2, DLPackExchangeAPI {
            header: DLPackExchangeAPIHeader = "DLPackExchangeAPIHeader";
            managed_tensor_allocator: Option<Allocator>
                = "int (*)(DLTensor *, DLManagedTensorVersioned **, void *, \
                   void (*)(void *, const char *, const char *))";
            managed_tensor_from_py_object_no_sync: Option<FromPy>
                = "int (*)(void *, DLManagedTensorVersioned **)";
            managed_tensor_to_py_object_no_sync: Option<ToPy>
                = "int (*)(DLManagedTensorVersioned *, void **)";
            dltensor_from_py_object_no_sync: Option<View> = "int (*)(void *, DLTensor *)";
            current_work_stream: Option<Stream> = "int (*)(DLDeviceType, int32_t, void **)";
        }),
        Group {
            since: v0_6,
            rows: vec![row("sizeof(DLDeviceType)".to_owned(), size_of::<DLDeviceType>())],
        },
    ]
}

/// The flag macros and their bits.
pub(crate) const FLAGS: &[(&str, u64)] = &[
    ("DLPACK_FLAG_BITMASK_READ_ONLY", DLPACK_FLAG_BITMASK_READ_ONLY),
    ("DLPACK_FLAG_BITMASK_IS_COPIED", DLPACK_FLAG_BITMASK_IS_COPIED),
    ("DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED", DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED),
];

/// The codes of one enum, each beside its C name.
pub(crate) struct Codes {
    pub(crate) name: &'static str,
    pub(crate) named: Vec<(&'static str, i64)>,
    /// C names that DLPack 1.3 does not have.
    pub(crate) newer: &'static [&'static str],
}

/// Both enums.
pub(crate) fn codes() -> [Codes; 2] {
    [
        Codes {
            name: "DLDeviceType",
            named: DLDeviceType::NAMED.iter().map(|(name, code)| (*name, code.0.into())).collect(),
            newer: &["kDLTPU", "kDLTPUHost", "kDLAscend"],
        },
        Codes {
            name: "DLDataTypeCode",
            named: DLDataTypeCode::NAMED
                .iter()
                .map(|(name, code)| (*name, code.0.into()))
                .collect(),
            newer: &["kDLBcomplex"],
        },
    ]
}
