//! Devices: a kind and an ordinal, as plain numbers, so that kinds newer than DLPack 1.3 pass through.

use std::fmt;

use dlbridge_sys::{DLDevice, DLDeviceType};

/// A kind of device: DLPack's `DLDeviceType`, kept as a number so that a newer producer's kind can
/// be carried.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub struct DeviceKind(pub i32);

/// How to interpret the `data` pointer of a tensor on a device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Data {
    /// An address that this process may read.
    Host,
    /// An address in the device's memory.
    Address,
    /// A handle, which has no arithmetic.
    Handle,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $kind:literal, $word:literal, $data:ident;)*) => {
        impl DeviceKind {
            $($(#[$doc])* pub const $name: Self = Self($kind);)*

            /// Every kind with a name.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The word for this kind: `"cuda"`; `None` for a kind without a name.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($kind => Some($word),)*
                    _ => None,
                }
            }

            #[cold]
            #[inline(never)]
            const fn other_data(self) -> Data {
                match self.0 {
                    $($kind => Data::$data,)*
                    _ => Data::Handle,
                }
            }
        }
    };
}

kinds! {
    /// Ordinary memory of this process.
    CPU = 1, "cpu", Host;
    /// Memory of an NVIDIA GPU.
    CUDA = 2, "cuda", Address;
    /// Host memory pinned by CUDA.
    CUDA_HOST = 3, "cuda_host", Host;
    /// An OpenCL buffer.
    OPENCL = 4, "opencl", Handle;
    /// A Vulkan buffer.
    VULKAN = 7, "vulkan", Handle;
    /// A Metal buffer.
    METAL = 8, "metal", Handle;
    /// Verilog simulator buffer.
    VPI = 9, "vpi", Handle;
    /// Memory of an AMD GPU.
    ROCM = 10, "rocm", Address;
    /// Host memory pinned by ROCm.
    ROCM_HOST = 11, "rocm_host", Host;
    /// Reserved for extension devices.
    EXT_DEV = 12, "ext_dev", Handle;
    /// CUDA managed (unified) memory, which the host may read too.
    CUDA_MANAGED = 13, "cuda_managed", Host;
    /// Unified shared memory of a oneAPI device.
    ONEAPI = 14, "oneapi", Address;
    /// A WebGPU buffer.
    WEBGPU = 15, "webgpu", Handle;
    /// A Qualcomm Hexagon DSP.
    HEXAGON = 16, "hexagon", Handle;
    /// A Microsoft MAIA accelerator.
    MAIA = 17, "maia", Handle;
    /// An AWS Trainium accelerator.
    TRN = 18, "trn", Handle;
    /// A Google TPU. This and the next two were added to DLPack after 1.3 without a new version.
    TPU = 19, "tpu", Handle;
    /// Host memory pinned for a TPU.
    TPU_HOST = 20, "tpu_host", Host;
    /// A Huawei Ascend NPU.
    ASCEND = 21, "ascend", Address;
}

impl DeviceKind {
    /// The most frequent answer, the host, is found first.
    #[inline(always)]
    const fn data(self) -> Data {
        if self.0 == Self::CPU.0 { Data::Host } else { self.other_data() }
    }

    /// Whether this process may read the memory through an ordinary pointer.
    #[must_use]
    #[inline]
    pub const fn is_host_accessible(self) -> bool {
        matches!(self.data(), Data::Host)
    }

    /// Whether the data pointer is an address to which a byte offset can be added, rather than a
    /// handle.
    #[must_use]
    #[inline]
    pub const fn has_addresses(self) -> bool {
        !matches!(self.data(), Data::Handle)
    }
}

/// A device: its kind and its ordinal among those of that kind. DLPack's `DLDevice`.
///
/// ```
/// use dlbridge::{Device, DeviceKind};
///
/// assert_eq!(Device::CPU.to_string(), "cpu");
/// assert_eq!("cuda:1".parse::<Device>()?, Device::new(DeviceKind::CUDA, 1));
/// # Ok::<(), dlbridge::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Device {
    /// What kind of device.
    pub kind: DeviceKind,
    /// Which one of that kind.
    pub id: i32,
}

impl Device {
    /// The host's ordinary memory.
    pub const CPU: Self = Self::new(DeviceKind::CPU, 0);

    /// Device number `id` of a kind.
    #[must_use]
    pub const fn new(kind: DeviceKind, id: i32) -> Self {
        Self { kind, id }
    }

    /// CUDA device number `id`.
    #[must_use]
    pub const fn cuda(id: i32) -> Self {
        Self::new(DeviceKind::CUDA, id)
    }

    /// Whether this process may read the memory through an ordinary pointer.
    #[must_use]
    pub const fn is_host_accessible(self) -> bool {
        self.kind.is_host_accessible()
    }
}

impl From<DLDevice> for Device {
    #[inline]
    fn from(device: DLDevice) -> Self {
        Self::new(DeviceKind(device.device_type.0), device.device_id)
    }
}

impl From<Device> for DLDevice {
    #[inline]
    fn from(Device { kind, id }: Device) -> Self {
        Self { device_type: DLDeviceType(kind.0), device_id: id }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind.name(), self.id) {
            (Some("cpu"), 0) => f.write_str("cpu"),
            (Some(name), id) => write!(f, "{name}:{id}"),
            (None, id) => write!(f, "kind{}:{id}", self.kind.0),
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}
