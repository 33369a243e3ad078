"""Short programs that show a finding with nothing but the framework and ctypes.

The checks record here which array they made and what they asked or offered last.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NAMES = (
    "data device_type device_id ndim code bits lanes shape strides byte_offset",
    "manager_ctx deleter",
    "major minor manager_ctx deleter flags",
)
TENSOR = "QiiiBBHQQQ"
FORMATS = {"dltensor": TENSOR + "QQ", "dltensor_versioned": "IIQQQ" + TENSOR}
FIELDS = {
    "dltensor": f"{NAMES[0]} {NAMES[1]}",
    "dltensor_versioned": f"{NAMES[2]} {NAMES[0]}",
}
POINTER = 'c.PYFUNCTYPE(c.c_void_p, c.py_object, c.c_char_p)(("PyCapsule_GetPointer", c.pythonapi))'
NEW = (
    'c.PYFUNCTYPE(c.py_object, c.c_void_p, c.c_char_p, c.c_void_p)(("PyCapsule_New", c.pythonapi))'
)
READS = {
    "shape": 'print((c.c_int64 * t["ndim"]).from_address(t["shape"])[:])',
    "strides": 'print(t["strides"] and (c.c_int64 * t["ndim"]).from_address(t["strides"])[:])',
    "values": 'print((c.c_float * {count}).from_address(t["data"] + t["byte_offset"])[:])',
}
"""Last lines that several checks share, by the words in `Check.shows`."""


@dataclass
class _Trace:
    setup: str = ""
    """Imports."""
    array: str = ""
    """An expression that makes the array."""
    view: str = ""
    """An expression of `x`."""
    take: str = ""
    """A call with `{}` for the producer."""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    """Of the capsule that came last; empty after an exception."""
    offer: Mapping[str, Any] | None = None
    count: int = 6
    shows: str = ""
    pair: str = ""
    """The whole program, for a producer and a consumer that are both known."""


_now = _Trace()
announce: Callable[[str], None] | None = None
"""Called with the program of each call that may end the process."""
_announced = ""


def begin(shows: str) -> None:
    """Forget the last check."""
    global _now
    _now = _Trace(shows=shows)


def note(**facts: Any) -> None:
    """Record what a check does."""
    for name, fact in facts.items():
        setattr(_now, name, fact)


def about_to_call() -> None:
    """Tell the parent process what is called next, once for each different call."""
    global _announced
    if announce is not None and (text := program("this call")) != _announced:
        _announced = text
        announce(text)


def program(evidence: str) -> str:
    """The program for the present check; empty where the framework's own code is not known."""
    if _now.pair:
        return f"{_now.pair}\n# {evidence}"
    offered = _now.take and (_now.offer is not None or _now.shows)
    lines = _consumer() if offered else _producer()
    return "\n".join([*lines, f"# {evidence}"]) if lines else ""


def _producer() -> list[str]:
    if not _now.array:
        return []
    begin, x = f"import ctypes as c, struct; {_now.setup}", [f"x = {_now.array}"]
    x += [f"x = {_now.view}"] if _now.view else []
    call = f"x.__dlpack__({_arguments(_now.keywords)})"
    if _now.shows and _now.shows not in READS:
        plain = "c." not in _now.shows and "struct." not in _now.shows
        return [_now.setup if plain else begin, *x, *_now.shows.format(call=call).split("\n")]
    if not _now.name:
        return [_now.setup, *x, f"print({call})"]
    fields = f'dict(zip("{FIELDS[_now.name]}".split(), '
    size = struct.calcsize(FORMATS[_now.name])
    unpacked = f'struct.unpack("{FORMATS[_now.name]}", c.string_at(at, {size}))))'
    read = READS.get(_now.shows, "print(t)").format(count=_now.count)
    at = f'capsule = {call}; at = {POINTER}(capsule, b"{_now.name}")'
    return [begin, *x, at, f"t = {fields}{unpacked}", read]


def _arguments(keywords: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in keywords.items())


def _consumer() -> list[str]:
    """A producer of six lines whose `__dlpack__` prints its keywords, and its deleter a word."""
    offer = dict(_now.offer or {})
    if _now.shows:
        taken = [f"print({_now.take.format('P()')})"]
        return [_now.setup, *_now.shows.split("\n"), *taken]
    if "dtype_format" not in offer:
        return []
    sizes: Sequence[int] = [*(offer["shape"] or ()), *(offer["strides"] or ())]
    ndim = len(offer["shape"] or ())
    dims = f"(c.c_int64 * {max(len(sizes), 1)})({', '.join(map(str, sizes))})"
    at = f"-(-c.addressof(data) // 64) * 64 + {offer['skew']}"
    start = "0" if offer["null_data"] else f"at + {offer['start']}"
    tensor = [start, *offer["device"], ndim, *offer["triple"]]
    tensor.append("c.addressof(dims)" if offer["shape"] else 0)
    tensor.append(f"c.addressof(dims) + {8 * ndim}" if offer["strides"] else 0)
    tensor.append(offer["byte_offset"])
    free = "c.cast(free, c.c_void_p).value" if offer["deleter"] else 0
    owner = [1 if offer["context"] else 0, free]
    legacy = offer["legacy"]
    values = [*tensor, *owner] if legacy else [*offer["version"], *owner, offer["flags"], *tensor]
    form = FORMATS["dltensor" if legacy else "dltensor_versioned"]
    packed = f'struct.pack("{form}", {", ".join(map(str, values))})'
    capsule = f"{NEW}(c.addressof(raw), {offer['name']!r}, None)"
    numbers = f'struct.pack("{offer["dtype_format"]}", *{offer["numbers"]})'
    return [
        f"import ctypes as c, struct; {_now.setup}",
        f"data, dims = c.create_string_buffer(1024), {dims}; at = {at}",
        f"c.memmove(at, {numbers}, {offer['bytes']})",
        'free = c.CFUNCTYPE(None, c.c_void_p)(lambda _: print("deleter called"))',
        f"raw = c.create_string_buffer({packed})",
        f"class P: __dlpack_device__, __dlpack__ = (lambda s: {offer['device']}), "
        f"(lambda s, **k: print(k) or {capsule})",
        f"y = {_now.take.format('P()')}; print(y); del y",
    ]
