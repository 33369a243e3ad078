"""DLPack's structs for ctypes: those of the doctor, which ships them.

Making and releasing them belongs to whoever does (`hostile`, `frameworks.raw`).
"""

from dlbridge.doctor.abi import DLManagedTensor, DLManagedTensorVersioned, DLTensor

__all__ = ["DLManagedTensor", "DLManagedTensorVersioned", "DLTensor"]
