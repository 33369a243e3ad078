"""Arrays of NumPy of every type that DLPack has, and of every layout."""

import numpy as np

DTYPES = [
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "complex64", "complex128", "bool"),
    *("byte", "short", "intc", "long", "longlong", "uintc", "ulong", "ulonglong"),
]

BASE = np.arange(24).reshape(2, 3, 4)
LAYOUTS = {
    "contiguous": BASE,
    "transposed": BASE.transpose(2, 0, 1),
    "reversed": BASE[::-1, :, ::-1],
    "stepped": BASE[:, ::2, 1::2],
    "broadcast": np.broadcast_to(BASE[:, :1], (2, 3, 4)),
    "empty": np.zeros((0, 3)),
    "rank 0": np.array(2.5),
    "rank 64": np.zeros((1,) * (64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32)),
}
