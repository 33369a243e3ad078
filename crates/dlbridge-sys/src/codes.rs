//! The numbers of the header: version, flag bits, device types and data type codes.
//! Invariant: codes are integers, so a code without a name here is kept and is not undefined
//! behaviour.

/// Major version of the ABI that this crate describes (`DLPACK_MAJOR_VERSION`, DLPack 1.3).
///
/// A versioned tensor with another major version has another layout: only the fields before its
/// `flags` may be read, which is enough to release it.
pub const DLPACK_MAJOR_VERSION: u32 = 1;

/// Minor version of the ABI that this crate describes (`DLPACK_MINOR_VERSION`, DLPack 1.3).
///
/// A greater one in a tensor may use codes or flags without a name here; the layout is the same.
pub const DLPACK_MINOR_VERSION: u32 = 3;

/// Bit 0 of `flags`: the consumer must not write to the data
/// (`DLPACK_FLAG_BITMASK_READ_ONLY`, since DLPack 1.0).
pub const DLPACK_FLAG_BITMASK_READ_ONLY: u64 = 1 << 0;

/// Bit 1 of `flags`: the producer made a copy, which only the consumer uses until the deleter
/// runs (`DLPACK_FLAG_BITMASK_IS_COPIED`, since DLPack 1.0).
pub const DLPACK_FLAG_BITMASK_IS_COPIED: u64 = 1 << 1;

/// Bit 2 of `flags`: each element narrower than a byte is padded to one byte; without the bit such
/// elements are packed, the first in the low bits
/// (`DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED`, since DLPack 1.1).
pub const DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED: u64 = 1 << 2;

/// The type of device that holds a tensor's memory (enum `DLDeviceType`, DLPack 1.3).
///
/// The header makes the enum an `int32_t` for C++ and leaves its integer type to the compiler for
/// C, where it has 32 bits unless short enums are asked for. In DLPack 1.3, 5, 6 and 19 onwards
/// have no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct DLDeviceType(pub i32);

/// The class of number that an element is, without its width (enum `DLDataTypeCode`, DLPack 1.3).
///
/// One byte, as the field [`code`](crate::DLDataType::code) stores it; the C enum itself is wider.
/// In the names of small floats `eXmY` counts exponent and mantissa bits, `b11` is an exponent bias
/// of 11, `fn` means no infinities, `uz` one unsigned zero and `u` no sign bit.
/// 18 onwards have no name in DLPack 1.3; apache-tvm-ffi uses 129 onwards for types of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct DLDataTypeCode(pub u8);

/// Declares the named codes of one type, and the list that tests compare with headers.
macro_rules! codes {
    ($type:ident: $($(#[$doc:meta])* $name:ident = $value:literal, $c:literal;)*) => {
        impl $type {
            $(
                $(#[$doc])*
                #[doc = concat!("\n\nC name: `", $c, "`.")]
                pub const $name: Self = Self($value);
            )*

            /// Every code that has a name here, with its C name, in ascending order.
            pub const NAMED: &'static [(&'static str, Self)] = &[$(($c, Self::$name)),*];
        }
    };
}

codes! { DLDeviceType:
    /// Ordinary memory of the process.
    CPU = 1, "kDLCPU";
    /// Memory of an NVIDIA GPU. Called `kDLGPU` before DLPack 0.5.
    CUDA = 2, "kDLCUDA";
    /// Host memory that CUDA pinned (`cudaMallocHost`). Called `kDLCPUPinned` before DLPack 0.5.
    CUDA_HOST = 3, "kDLCUDAHost";
    /// An OpenCL buffer; the data pointer is a `cl_mem` handle.
    OPENCL = 4, "kDLOpenCL";
    /// A Vulkan buffer.
    VULKAN = 7, "kDLVulkan";
    /// A Metal buffer of an Apple GPU.
    METAL = 8, "kDLMetal";
    /// A buffer of a Verilog simulator.
    VPI = 9, "kDLVPI";
    /// Memory of an AMD GPU.
    ROCM = 10, "kDLROCM";
    /// Host memory that ROCm pinned (`hipMallocHost`).
    ROCM_HOST = 11, "kDLROCMHost";
    /// For experiments with a new device; producer and consumer agree on its meaning.
    EXT_DEV = 12, "kDLExtDev";
    /// CUDA memory that host and device share (`cudaMallocManaged`).
    CUDA_MANAGED = 13, "kDLCUDAManaged";
    /// oneAPI unified shared memory; only the oneAPI runtime can say on which device, of which
    /// allocation kind and for which SYCL context.
    ONEAPI = 14, "kDLOneAPI";
    /// A WebGPU buffer.
    WEBGPU = 15, "kDLWebGPU";
    /// A Qualcomm Hexagon DSP.
    HEXAGON = 16, "kDLHexagon";
    /// A Microsoft MAIA accelerator.
    MAIA = 17, "kDLMAIA";
    /// An AWS Trainium accelerator. The newest device type of DLPack 1.3.
    TRN = 18, "kDLTrn";
    /// Memory of a Google TPU. Not in DLPack 1.3: merged upstream after it (dmlc/dlpack#188).
    TPU = 19, "kDLTPU";
    /// Host memory pinned for a Google TPU. Not in DLPack 1.3: merged upstream after it
    /// (dmlc/dlpack#188), and named by JAX 0.12 in its Python `DLDeviceType`.
    TPU_HOST = 20, "kDLTPUHost";
    /// Memory of a Huawei Ascend NPU. Not in DLPack 1.3: merged upstream after it
    /// (dmlc/dlpack#189).
    ASCEND = 21, "kDLAscend";
}

codes! { DLDataTypeCode:
    /// Signed integer, two's complement; commonly 8, 16, 32 or 64 bits.
    INT = 0, "kDLInt";
    /// Unsigned integer; commonly 8, 16, 32 or 64 bits.
    UINT = 1, "kDLUInt";
    /// IEEE 754 binary floating point: 16, 32 or 64 bits.
    FLOAT = 2, "kDLFloat";
    /// An opaque handle, for tests; producer and consumer must agree on what it is.
    OPAQUE_HANDLE = 3, "kDLOpaqueHandle";
    /// The upper half of an IEEE 754 single: 16 bits.
    BFLOAT = 4, "kDLBfloat";
    /// Two adjacent IEEE 754 numbers, real part first. `bits` counts both: 64 for two singles.
    COMPLEX = 5, "kDLComplex";
    /// A boolean; by convention 8 bits. Since DLPack 0.8.
    BOOL = 6, "kDLBool";
    /// 8-bit float, IEEE-like, with infinities. Since DLPack 1.1.
    FLOAT8_E3M4 = 7, "kDLFloat8_e3m4";
    /// 8-bit float, IEEE-like, with infinities. Since DLPack 1.1.
    FLOAT8_E4M3 = 8, "kDLFloat8_e4m3";
    /// 8-bit float with exponent bias 11, no infinities, one zero. Since DLPack 1.1.
    FLOAT8_E4M3B11FNUZ = 9, "kDLFloat8_e4m3b11fnuz";
    /// 8-bit float without infinities. Since DLPack 1.1.
    FLOAT8_E4M3FN = 10, "kDLFloat8_e4m3fn";
    /// 8-bit float without infinities, one zero. Since DLPack 1.1.
    FLOAT8_E4M3FNUZ = 11, "kDLFloat8_e4m3fnuz";
    /// 8-bit float, IEEE-like, with infinities. Since DLPack 1.1.
    FLOAT8_E5M2 = 12, "kDLFloat8_e5m2";
    /// 8-bit float without infinities, one zero. Since DLPack 1.1.
    FLOAT8_E5M2FNUZ = 13, "kDLFloat8_e5m2fnuz";
    /// 8-bit power of two: exponent only, no sign, no zero. Since DLPack 1.1.
    FLOAT8_E8M0FNU = 14, "kDLFloat8_e8m0fnu";
    /// 6-bit float without infinities; any `bits` but 6 is unspecified. Since DLPack 1.1.
    FLOAT6_E2M3FN = 15, "kDLFloat6_e2m3fn";
    /// 6-bit float without infinities; any `bits` but 6 is unspecified. Since DLPack 1.1.
    FLOAT6_E3M2FN = 16, "kDLFloat6_e3m2fn";
    /// 4-bit float without infinities; any `bits` but 4 is unspecified. Since DLPack 1.1.
    /// The newest data type code of DLPack 1.3.
    FLOAT4_E2M1FN = 17, "kDLFloat4_e2m1fn";
    /// Two adjacent bfloat16 numbers, real part first: 32 bits. Not in DLPack 1.3: merged
    /// upstream after it (dmlc/dlpack#187).
    BCOMPLEX = 18, "kDLBcomplex";
}
