"""An array API namespace that the doctor does not know by name: NumPy's."""

from numpy import arange, astype, float32, from_dlpack, reshape

__all__ = ["arange", "astype", "float32", "from_dlpack", "reshape"]
