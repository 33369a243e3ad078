"""Times copies and loops beside NumPy's own, over 16 MB of elements, in one thread.

`cargo xtask bench python copies` runs this. Each line that it prints is a record: what, elements,
nanoseconds by NumPy, nanoseconds by dlbridge; tabs between. The result's release is included. They
take turns, so that a busy machine slows both.
"""

import time
from collections.abc import Callable
from typing import Any

import bench_dlbridge
import numpy as np

ROUNDS = 41
MB = 1 << 20


def cases() -> list[tuple[str, str, Callable[[], Any], Callable[[], Any]]]:
    floats = np.arange(4_000_000, dtype=np.float32).reshape(2000, 2000)
    small = np.arange(16_000_000, dtype=np.uint8).reshape(4000, 4000)
    image = np.arange(12_000_000, dtype=np.uint8).reshape(2000, 2000, 3)
    doubles = np.arange(4 * MB, dtype=np.float64)[::2]
    million = np.ones(1_000_000, np.float32)
    filled = np.zeros((2000, 2000), np.float32)

    def copy(name: str, array: Any) -> Any:
        ours, theirs = bench_dlbridge.copy(array), np.ascontiguousarray(array)
        np.testing.assert_array_equal(np.asarray(ours), theirs)
        return (
            name,
            str(array.dtype),
            lambda: np.array(array, order="C"),
            lambda: bench_dlbridge.copy(array),
        )

    def clip(name: str, array: Any) -> Any:
        return (
            f"max(x, 0) in place{name}",
            "float32",
            lambda: np.maximum(array, 0, out=array),
            lambda: bench_dlbridge.clip(array),
        )

    return [
        copy("copy, contiguous", floats),
        copy("copy, transposed", floats.T),
        copy("copy, transposed", small.T),
        copy("copy, height x width x 3 to 3 x height x width", image.transpose(2, 0, 1)),
        copy("copy, every other element", doubles),
        copy("copy, backwards", floats[::-1, ::-1]),
        (
            "fill, transposed",
            "float32",
            lambda: filled.T.fill(1),
            lambda: bench_dlbridge.fill(filled.T, 1),
        ),
        clip("", filled),
        clip(", transposed", filled.T),
        clip(", every other column", filled[:, ::2]),
        *(
            (name, "float32", lambda: floats.sum(dtype=np.float64), lambda way=way: way(floats))
            for name, way in [
                ("sum, in float64", bench_dlbridge.sum),
                ("sum, in float64, by eights", bench_dlbridge.sum_by_eights),
            ]
        ),
        (
            "x * 2 as a new array, 1 M elements",
            "float32",
            lambda: million * np.float32(2),
            lambda: bench_dlbridge.scale(million, 2),
        ),
    ]


def main() -> None:
    for name, dtype, numpy, ours in cases():
        quickest = [float("inf")] * 2
        for _ in range(ROUNDS):
            for number, way in enumerate((numpy, ours)):
                start = time.perf_counter_ns()
                result = way()
                del result
                elapsed = time.perf_counter_ns() - start
                quickest[number] = min(quickest[number], elapsed)
        print(name, dtype, *map(str, quickest), sep="\t", flush=True)


if __name__ == "__main__":
    main()
