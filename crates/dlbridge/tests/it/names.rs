//! Names of dtypes and devices, there and back; flags and classes in words.
//! What the codes permit is in `elements.rs` and `validation.rs`.

use dlbridge::{Access, DType, Device, DeviceKind, Error, Flags, TypeCode};

#[track_caller]
fn round_trip(dtype: DType, name: &str) {
    assert_eq!(dtype.to_string(), name);
    assert_eq!(name.parse(), Ok(dtype), "{name}");
    assert_eq!(format!("{dtype:?}"), format!("DType({name})"));
}

#[test]
fn every_named_dtype_survives_its_name() {
    for &dtype in DType::NAMED {
        for lanes in [1, 2, 4, 16, u16::MAX] {
            let dtype = dtype.with_lanes(lanes);
            assert_eq!(dtype.to_string().parse(), Ok(dtype), "{dtype}");
        }
    }
    let names: std::collections::BTreeSet<_> =
        DType::NAMED.iter().map(ToString::to_string).collect();
    assert_eq!(names.len(), DType::NAMED.len(), "no two dtypes share a name");
}

#[test]
fn dtypes_have_the_names_that_users_know() {
    round_trip(DType::F32, "float32");
    round_trip(DType::F64, "float64");
    round_trip(DType::F16, "float16");
    round_trip(DType::BF16, "bfloat16");
    round_trip(DType::I8, "int8");
    round_trip(DType::I128, "int128");
    round_trip(DType::U64, "uint64");
    round_trip(DType::BOOL, "bool");
    round_trip(DType::COMPLEX64, "complex64");
    round_trip(DType::BCOMPLEX32, "bcomplex32");
    round_trip(DType::FLOAT8_E4M3FN, "float8_e4m3fn");
    round_trip(DType::FLOAT8_E4M3FNUZ, "float8_e4m3fnuz");
    round_trip(DType::FLOAT8_E4M3B11FNUZ, "float8_e4m3b11fnuz");
    round_trip(DType::FLOAT6_E2M3FN, "float6_e2m3fn");
    round_trip(DType::FLOAT4_E2M1FN, "float4_e2m1fn");
    round_trip(DType::FLOAT4_E2M1FN.with_lanes(2), "float4_e2m1fnx2");
    round_trip(DType::COMPLEX64.with_lanes(3), "complex64x3");
    round_trip(DType::BOOL.with_lanes(8), "boolx8");
}

#[test]
fn unusual_widths_and_codes_have_names_too() {
    round_trip(DType::new(TypeCode::INT, 4), "int4");
    round_trip(DType::new(TypeCode::UINT, 1), "uint1");
    round_trip(DType::new(TypeCode::FLOAT, 8), "float8");
    round_trip(DType::new(TypeCode::FLOAT, 128), "float128");
    round_trip(DType::new(TypeCode::BOOL, 1), "bool1");
    round_trip(DType::new(TypeCode::OPAQUE_HANDLE, 64), "opaque64");
    round_trip(DType::new(TypeCode::FLOAT, 99), "code2:99");
    round_trip(DType { code: TypeCode(200), bits: 16, lanes: 1 }, "code200:16");
    round_trip(DType { code: TypeCode(255), bits: 255, lanes: 7 }, "code255:255x7");
}

#[test]
fn any_code_width_and_lane_count_survives_its_name() {
    for code in 0..=u8::MAX {
        let code = TypeCode(code);
        for bits in [1, 3, 8, 17, 32, 255] {
            let fixed = code.fixed_bits();
            for lanes in [1, 2, 999] {
                let dtype = DType::new(code, bits).with_lanes(lanes);
                if fixed.is_none_or(|fixed| fixed == bits) {
                    assert_eq!(dtype.to_string().parse(), Ok(dtype), "{dtype}");
                } else {
                    // no tensor has it; its name must not be that of another
                    assert_ne!(dtype.to_string().parse().ok(), Some(dtype.with_lanes(1)));
                }
            }
        }
    }
}

#[test]
fn an_unknown_dtype_name_is_an_error_that_names_it() {
    for name in [
        "",
        " ",
        "float",
        "int",
        "float32 ",
        "Float32",
        "float256",
        "float99",
        "int12",
        "float0",
        "float-32",
        "f32",
        "intx4",
        "float32x",
        "float32x65536",
        "float32x-1",
        "x4",
        "code",
        "code:",
        "code256:8",
        "code1:256",
        "float8_e4m3fn8",
        "floatx",
        "bool ",
        "código",
    ] {
        let wanted = Error::UnknownName { what: "dtype", name: name.into() };
        assert_eq!(name.parse::<DType>(), Err(wanted), "{name:?}");
    }
}

#[test]
fn codes_name_themselves() {
    for &code in TypeCode::ALL {
        assert!(code.name().is_some());
        assert!(
            DType::NAMED.iter().any(|dtype| dtype.code == code) || code.name() == Some("opaque")
        );
    }
    assert_eq!((TypeCode(19).name(), TypeCode(19).fixed_bits()), (None, None));
}

#[test]
fn every_named_device_survives_its_name() {
    for &kind in DeviceKind::ALL {
        for id in [0, 1, 7, -1, i32::MAX, i32::MIN] {
            let device = Device::new(kind, id);
            assert_eq!(device.to_string().parse(), Ok(device), "{device}");
        }
        let name = kind.name().expect("it is named");
        assert_eq!(name.parse(), Ok(Device::new(kind, 0)), "no number means device 0");
    }
}

#[test]
fn devices_have_the_names_that_users_know() {
    let named = |device: Device, name: &str| assert_eq!(device.to_string(), name);
    named(Device::CPU, "cpu");
    named(Device::new(DeviceKind::CPU, 1), "cpu:1");
    named(Device::cuda(0), "cuda:0");
    named(Device::new(DeviceKind::CUDA_MANAGED, 2), "cuda_managed:2");
    named(Device::new(DeviceKind(99), 3), "kind99:3");
    assert_eq!(format!("{:?}", Device::cuda(1)), "Device(cuda:1)");
}

#[test]
fn unknown_device_kinds_survive_their_names() {
    for kind in [0, 5, 6, 22, 1000, -1, i32::MAX, i32::MIN] {
        let device = Device::new(DeviceKind(kind), 4);
        assert_eq!(device.to_string().parse(), Ok(device), "{device}");
    }
}

#[test]
fn an_unknown_device_name_is_an_error_that_names_it() {
    for name in [
        "",
        "cpu:",
        ":0",
        "cuda:x",
        "gpu",
        "CUDA",
        "cuda:0:0",
        "cuda:2147483648",
        "kind",
        "kind+5",
        "kind+5:1",
    ] {
        let wanted = Error::UnknownName { what: "device", name: name.into() };
        assert_eq!(name.parse::<Device>(), Err(wanted), "{name:?}");
    }
}

#[test]
fn the_host_reads_what_is_pinned_or_managed_but_no_device() {
    let host: Vec<_> =
        DeviceKind::ALL.iter().filter(|kind| kind.is_host_accessible()).copied().collect();
    use DeviceKind as Kind;
    let wanted = [Kind::CPU, Kind::CUDA_HOST, Kind::ROCM_HOST, Kind::CUDA_MANAGED, Kind::TPU_HOST];
    assert_eq!(host, wanted);
    assert!(host.iter().all(|kind| kind.has_addresses()));
    assert!(!DeviceKind(99).is_host_accessible() && !DeviceKind(99).has_addresses());
}

#[test]
fn the_codes_are_those_of_the_c_header() {
    use dlbridge::sys::{DLDataTypeCode, DLDeviceType};
    for &(name, code) in DLDataTypeCode::NAMED {
        let ours = TypeCode(code.0).name().expect("a name for every code of the header");
        let theirs = name.trim_start_matches("kDL").to_lowercase();
        assert!(theirs == ours || (theirs, ours) == ("opaquehandle".into(), "opaque"), "{name}");
    }
    for &(name, kind) in DLDeviceType::NAMED {
        let ours = DeviceKind(kind.0).name().expect("a name for every kind of the header");
        assert_eq!(ours.replace('_', ""), name.trim_start_matches("kDL").to_lowercase());
    }
    assert_eq!(TypeCode::ALL.len(), DLDataTypeCode::NAMED.len());
    assert_eq!(DeviceKind::ALL.len(), DLDeviceType::NAMED.len());
}

#[test]
fn flags_are_words() {
    assert_eq!(Flags::NONE.to_string(), "none");
    assert_eq!(Flags::READ_ONLY.to_string(), "READ_ONLY");
    let all = Flags::READ_ONLY | Flags::IS_COPIED | Flags::SUBBYTE_PADDED;
    assert_eq!(all.to_string(), "READ_ONLY | IS_COPIED | SUBBYTE_PADDED");
    assert_eq!((Flags::IS_COPIED | Flags(1 << 8)).to_string(), "IS_COPIED | 0x100");
    assert_eq!(Flags(1 << 8).to_string(), "0x100");
    assert_eq!(format!("{:?}", all - Flags::IS_COPIED), "Flags(READ_ONLY | SUBBYTE_PADDED)");
    assert!(all.contains(Flags::NONE) && !Flags::NONE.contains(all));
    let mut flags = Flags::default();
    flags |= Flags::READ_ONLY;
    assert_eq!((flags, flags - Flags::READ_ONLY), (Flags::READ_ONLY, Flags::NONE));
}

#[test]
fn classes_are_words() {
    let words =
        [Access::Exclusive, Access::Frozen, Access::Shared].map(|access| access.to_string());
    assert_eq!(words, ["exclusive", "frozen", "shared"]);
}
