//! C names for DLPack's codes.
//! Invariant: every name has the same value as in `dlbridge`, and none is missing.
#![allow(missing_docs, reason = "the names are the documentation")]

/// Codes of `dlb_dtype`: a float32 is `{DLB_TYPE_FLOAT, 32, 1}`.
pub const DLB_TYPE_INT: u8 = 0;
pub const DLB_TYPE_UINT: u8 = 1;
pub const DLB_TYPE_FLOAT: u8 = 2;
pub const DLB_TYPE_OPAQUE_HANDLE: u8 = 3;
pub const DLB_TYPE_BFLOAT: u8 = 4;
/// Complex numbers; `bits` covers both parts.
pub const DLB_TYPE_COMPLEX: u8 = 5;
pub const DLB_TYPE_BOOL: u8 = 6;
pub const DLB_TYPE_FLOAT8_E3M4: u8 = 7;
pub const DLB_TYPE_FLOAT8_E4M3: u8 = 8;
pub const DLB_TYPE_FLOAT8_E4M3B11FNUZ: u8 = 9;
pub const DLB_TYPE_FLOAT8_E4M3FN: u8 = 10;
pub const DLB_TYPE_FLOAT8_E4M3FNUZ: u8 = 11;
pub const DLB_TYPE_FLOAT8_E5M2: u8 = 12;
pub const DLB_TYPE_FLOAT8_E5M2FNUZ: u8 = 13;
pub const DLB_TYPE_FLOAT8_E8M0FNU: u8 = 14;
pub const DLB_TYPE_FLOAT6_E2M3FN: u8 = 15;
pub const DLB_TYPE_FLOAT6_E3M2FN: u8 = 16;
pub const DLB_TYPE_FLOAT4_E2M1FN: u8 = 17;
pub const DLB_TYPE_BCOMPLEX: u8 = 18;

/// Kinds of `dlb_device`: the host is `{DLB_DEVICE_CPU, 0}`.
pub const DLB_DEVICE_CPU: i32 = 1;
pub const DLB_DEVICE_CUDA: i32 = 2;
pub const DLB_DEVICE_CUDA_HOST: i32 = 3;
pub const DLB_DEVICE_OPENCL: i32 = 4;
pub const DLB_DEVICE_VULKAN: i32 = 7;
pub const DLB_DEVICE_METAL: i32 = 8;
pub const DLB_DEVICE_VPI: i32 = 9;
pub const DLB_DEVICE_ROCM: i32 = 10;
pub const DLB_DEVICE_ROCM_HOST: i32 = 11;
pub const DLB_DEVICE_EXT_DEV: i32 = 12;
pub const DLB_DEVICE_CUDA_MANAGED: i32 = 13;
pub const DLB_DEVICE_ONEAPI: i32 = 14;
pub const DLB_DEVICE_WEBGPU: i32 = 15;
pub const DLB_DEVICE_HEXAGON: i32 = 16;
pub const DLB_DEVICE_MAIA: i32 = 17;
pub const DLB_DEVICE_TRN: i32 = 18;
pub const DLB_DEVICE_TPU: i32 = 19;
pub const DLB_DEVICE_TPU_HOST: i32 = 20;
pub const DLB_DEVICE_ASCEND: i32 = 21;

/// The elements must not be written.
pub const DLB_FLAG_READ_ONLY: u64 = 1;
/// The memory is a copy for its consumer, used by no other code.
pub const DLB_FLAG_IS_COPIED: u64 = 2;
/// Each element narrower than a byte has a byte of its own.
pub const DLB_FLAG_SUBBYTE_PADDED: u64 = 4;

#[cfg(test)]
mod tests {
    use dlbridge::{DeviceKind, Flags, TypeCode};

    /// The numbers of the constants with a prefix, in the order of this file.
    fn named(prefix: &str) -> Vec<i32> {
        let lines = include_str!("codes.rs").lines().filter(|line| line.starts_with(prefix));
        let number = |line: &str| line.rsplit_once(" = ")?.1.strip_suffix(';')?.parse().ok();
        lines.map(|line| number(line).expect("a number")).collect()
    }

    #[test]
    fn constants_of_c_are_those_of_the_library() {
        let types: Vec<i32> = TypeCode::ALL.iter().map(|code| code.0.into()).collect();
        assert_eq!(named("pub const DLB_TYPE_"), types);
        let devices: Vec<_> = DeviceKind::ALL.iter().map(|kind| kind.0).collect();
        assert_eq!(named("pub const DLB_DEVICE_"), devices);
        let flags = [Flags::READ_ONLY, Flags::IS_COPIED, Flags::SUBBYTE_PADDED];
        assert_eq!(named("pub const DLB_FLAG_"), flags.map(|flag| flag.0 as i32));
    }
}
