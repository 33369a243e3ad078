"""DLPack's structs for ctypes: those of the doctor (`doctor/`).

Making and releasing them belongs to their users (`hostile`, `frameworks.raw`).
"""

from dlpack_doctor.abi import DLManagedTensor, DLManagedTensorVersioned, DLTensor

__all__ = ["DLManagedTensor", "DLManagedTensorVersioned", "DLTensor"]
