"""The public calls of the package, and what a NumPy user writes for the same."""

import pickle
import sys
from collections.abc import Callable
from functools import partial
from operator import attrgetter, getitem, methodcaller
from typing import Any

import numpy as np

import dlbridge

Call = tuple[Callable[..., Any], tuple[Any, ...]]

ATTRIBUTES = "shape strides dtype ndim size nbytes itemsize T"
OWN_ATTRIBUTES = "device readonly contiguous data_ptr requires_grad"
# They need a second process, or most of their work is the kernel's.
LEFT_OUT = "SafetensorsFile open_safetensors save_safetensors seal_safetensors Channel Loan Message SealedTensors UnsealedTensors channel empty_sealed open_handle open_sealed seal"


class Producer:
    """An object with DLPack's methods alone, in Python."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Described:
    """An object with `__array_interface__` alone."""

    def __init__(self, array: Any) -> None:
        self.array, self.__array_interface__ = array, array.__array_interface__


class Column:
    """An object with Arrow's interface alone."""

    def __init__(self, tensor: Any) -> None:
        self.__arrow_c_array__ = tensor.__arrow_c_array__


def calls() -> dict[str, tuple[Call, Call | None]]:
    """Each call, and NumPy's where it has one."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = dlbridge.from_dlpack(x)
    scalar, number = dlbridge.from_dlpack(np.array(1.5)), np.array(1.5)
    own, bits = dlbridge.zeros((2, 3)), bytes(24)
    large, large_x = dlbridge.zeros(1 << 16, dtype="uint8"), np.zeros(1 << 16, "uint8")
    rows_x = np.zeros((20, 3))
    rows_t, pickled = dlbridge.from_dlpack(rows_x), [pickle.dumps(it, 5) for it in (t, x)]

    def both(function: Callable[[Any], Any]) -> tuple[Call, Call]:
        return (function, (t,)), (function, (x,))

    rows: dict[str, tuple[Call, Call | None]] = {
        "from_dlpack(array)": ((dlbridge.from_dlpack, (x,)), (np.from_dlpack, (x,))),
        "from_dlpack(tensor)": ((dlbridge.from_dlpack, (t,)), (np.from_dlpack, (x,))),
        "from_dlpack(bytes)": (
            (dlbridge.from_dlpack, (bits,)),
            (partial(np.frombuffer, dtype="uint8"), (bits,)),
        ),
        "from_dlpack(copy=True)": (
            (partial(dlbridge.from_dlpack, copy=True), (x,)),
            (partial(np.from_dlpack, copy=True), (x,)),
        ),
        "from_bytes": ((dlbridge.from_bytes, (bits,)), (partial(np.array, dtype="S24"), (bits,))),
        "zeros": ((dlbridge.zeros, ((2, 3),)), (np.zeros, ((2, 3),))),
        "zeros(dtype=)": (
            (partial(dlbridge.zeros, dtype="float32"), ((2, 3),)),
            (partial(np.zeros, dtype="float32"), ((2, 3),)),
        ),
        "from_dlpack(methods)": (
            (dlbridge.from_dlpack, (Producer(x),)),
            (np.from_dlpack, (Producer(x),)),
        ),
        "from_dlpack(interface)": (
            (dlbridge.from_dlpack, (Described(x),)),
            (np.asarray, (Described(x),)),
        ),
        "from_dlpack(arrow)": ((dlbridge.from_dlpack, (Column(own.reshape(6)),)), None),
        "from_dlpack(view)": (
            (dlbridge.from_dlpack, (memoryview(x),)),
            (np.asarray, (memoryview(x),)),
        ),
        "SupportsDLPack": ((isinstance, (x, dlbridge.SupportsDLPack)), None),
        "inspect": ((dlbridge.inspect, (x,)), None),
        "numpy": ((methodcaller("numpy"), (t,)), (methodcaller("view"), (x,))),
        "zeros.numpy": ((methodcaller("numpy"), (own,)), (methodcaller("view"), (x,))),
        "item": ((methodcaller("item"), (scalar,)), (methodcaller("item"), (number,))),
        "tobytes(64KiB)": (
            (methodcaller("tobytes"), (large,)),
            (methodcaller("tobytes"), (large_x,)),
        ),
        "np.asarray": ((np.asarray, (t,)), (np.asarray, (memoryview(x),))),
        "np.from_dlpack": both(np.from_dlpack),
        "t[0]": ((getitem, (t, 0)), (getitem, (x, 0))),
        "t[0,1]": ((getitem, (t, (0, 1))), (getitem, (x, (0, 1)))),
        "t[:,::2]": ((getitem, (t, np.s_[:, ::2])), (getitem, (x, np.s_[:, ::2]))),
        "float": ((float, (scalar,)), (float, (number,))),
        "int": ((int, (scalar,)), (int, (number,))),
        "bool": ((bool, (scalar,)), (bool, (number,))),
        "to_device": (
            (methodcaller("to_device", "cpu"), (t,)),
            (methodcaller("to_device", "cpu"), (x,)),
        ),
        "__array__": ((methodcaller("__array__"), (t,)), (methodcaller("__array__"), (x,))),
        "__dlpack__": (
            (methodcaller("__dlpack__", max_version=(1, 0)), (t,)),
            (methodcaller("__dlpack__", max_version=(1, 0)), (x,)),
        ),
    }
    for name in ["copy", "tobytes", "tolist", "__dlpack_device__"]:
        rows[name] = both(methodcaller(name))
    rows["reshape"] = both(methodcaller("reshape", 3, 2))
    rows["view"] = both(methodcaller("view", "int32"))
    for function in (len, list, repr, memoryview):
        rows[function.__name__] = both(function)
    rows["pickle"] = both(partial(pickle.dumps, protocol=5))
    rows["pickle.loads"] = (pickle.loads, (pickled[0],)), (pickle.loads, (pickled[1],))
    long = np.arange(300.0)
    of_long = methodcaller("tolist")
    rows["tolist(300)"] = (of_long, (dlbridge.from_dlpack(long),)), (of_long, (long,))
    rows["list(20)"] = (list, (rows_t,)), (list, (rows_x,))
    for name in ATTRIBUTES.split():
        rows[name] = both(attrgetter(name))
    for name in OWN_ATTRIBUTES.split():
        rows[name] = (attrgetter(name), (t,)), None
    if torch := sys.modules.get("torch"):
        own_x = torch.zeros(2, 3)
        rows["from_dlpack(torch)"] = (
            (dlbridge.from_dlpack, (own_x,)),
            (torch.from_dlpack, (own_x,)),
        )
        rows["torch.from_dlpack"] = (torch.from_dlpack, (own,)), (torch.from_dlpack, (own_x,))
    return rows
