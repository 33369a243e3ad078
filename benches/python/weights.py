"""Compares files of weights with the `safetensors` package, and prints two tables in Markdown.

`python benches/python/weights.py [FOLDER]` runs this, with dlbridge, PyTorch and safetensors
installed; FOLDER gets the files, about 3.2 GB. Each row is the median of three processes of its own,
which take turns. The page cache is warm.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Number of tensors, and bytes of each.
FILES = {
    "1 MB, 4 tensors": (4, 256 << 10),
    "64 MB, 16 tensors": (16, 4 << 20),
    "2 GiB, 32 tensors": (32, 64 << 20),
    "100 MB, 10,000 tensors": (10_000, 10 << 10),
}
WAYS = [
    "safetensors.numpy.load_file",
    "safe_open, NumPy",
    "dlbridge.open_safetensors, NumPy",
    "safetensors.torch.load_file",
    "dlbridge.open_safetensors, PyTorch",
]
SAVED = ["safetensors.torch.save_file", "dlbridge.save_safetensors, PyTorch"]
SEALED = "dlbridge.seal_safetensors, by handle"
ROUNDS = 3
PROCESSES = 4


def memory(field: str) -> float:
    """A number of this process's memory in MB: `Pss`, or `VmHWM`, its peak."""
    file = "smaps_rollup" if field == "Pss" else "status"
    text = Path("/proc/self", file).read_text(encoding="utf-8")
    found = re.search(rf"^{field}:\s+(\d+)", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024 / 1e6


def names(way: str, path: str):
    """What has the tensors' names, and a function from a name to an array."""
    if way == SEALED:
        import numpy as np

        import dlbridge

        sealed = dlbridge.open_handle(bytes.fromhex(path))
        return sealed.keys(), (tensors := sealed.tensors()) and (
            lambda name: np.from_dlpack(tensors[name])
        )
    if way.startswith("dlbridge"):
        import dlbridge

        file = dlbridge.open_safetensors(path)
        if way.endswith("NumPy"):
            import numpy as np

            return list(file), lambda name: np.from_dlpack(file[name])
        import torch

        return list(file), lambda name: torch.from_dlpack(file[name])
    if way == "safe_open, NumPy":
        from safetensors import safe_open

        opened = safe_open(path, "np")
        return opened.keys(), opened.get_tensor
    if way == "safetensors.numpy.load_file":
        from safetensors.numpy import load_file
    else:
        from safetensors.torch import load_file
    loaded = load_file(path)
    return list(loaded), loaded.__getitem__


def read(way: str, path: str, barrier=None) -> dict[str, float]:
    """One load of a file, in a process that has imported what it needs."""
    import numpy

    import dlbridge

    if "torch" in way.lower():
        import torch

        torch.set_num_threads(1)
        torch.from_dlpack(dlbridge.zeros(2)).sum()
    numpy.from_dlpack(dlbridge.zeros(2)).sum()
    before = memory("VmHWM")
    began, cpu = time.perf_counter(), time.process_time()
    found, array = names(way, path)
    named = time.perf_counter()
    arrays = [array(name) for name in found]
    for one in arrays:
        one.sum()
    done = time.perf_counter()
    result = {
        "names": (named - began) * 1e3,
        "summed": (done - began) * 1e3,
        "cpu": (time.process_time() - cpu) * 1e3,
        "peak": memory("VmHWM") - before,
    }
    if barrier is not None:
        barrier.wait()
        result["pss"] = memory("Pss")
        barrier.wait()
    return result


def write(way: str, path: str) -> dict[str, float]:
    """One save of a file's tensors."""
    import safetensors.torch
    import torch

    import dlbridge

    tensors = safetensors.torch.load_file(path)
    for tensor in tensors.values():
        tensor.sum()
    is_ours = way.startswith("dlbridge")
    save = (
        (lambda tensors, path: dlbridge.save_safetensors(path, tensors))
        if is_ours
        else (safetensors.torch.save_file)
    )
    target = path + ".saved"
    # Once without being measured: pages that the system has to free first cost more than all else.
    save(tensors, target)
    os.remove(target)
    began, cpu = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    save(tensors, target)
    done, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    os.remove(target)
    assert torch is not None
    used = after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime
    return {"summed": (done - began) * 1e3, "cpu": used * 1e3}


def one(*command: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, *command], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def together(way: str, path: str) -> float:
    """The memory of four processes with the file, less that of four with a small one, in MB."""

    def each(way: str, path: str, barrier, out) -> None:
        out.put(read(way, path, barrier)["pss"])

    context = multiprocessing.get_context("fork")
    sums = []
    for size in [path, path + ".small"]:
        handle, owner = size, None
        if way == SEALED:
            import dlbridge

            owner = dlbridge.seal_safetensors(size)
            handle = owner.handle().hex()
        barrier, out = context.Barrier(PROCESSES), context.SimpleQueue()
        workers = [
            context.Process(target=each, args=(way, handle, barrier, out)) for _ in range(PROCESSES)
        ]
        for worker in workers:
            worker.start()
        sums.append(sum(out.get() for _ in workers))
        for worker in workers:
            worker.join()
        del owner
    return sums[0] - sums[1]


def make(folder: str) -> dict[str, str]:
    import numpy as np
    from safetensors.numpy import save_file

    paths = {}
    for label, (count, size) in FILES.items():
        paths[label] = os.path.join(folder, f"{count}x{size}.safetensors")
        base = np.arange(size // 4, dtype="float32")
        save_file({f"layer.{i}.weight": base + np.float32(i) for i in range(count)}, paths[label])
    large = paths["2 GiB, 32 tensors"]
    save_file({"x": np.zeros(1, "float32")}, large + ".small")
    return paths


def main(folder: str) -> None:
    paths = make(folder)
    print("| file | way | names, ms | every byte summed, ms | CPU, ms | peak, MB |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for label, path in paths.items():
        rounds: dict[str, list[dict[str, float]]] = {}
        for _ in range(ROUNDS):
            for way in WAYS:
                rounds.setdefault(way, []).append(one("read", way, path))
        for way, found in rounds.items():
            mid = {key: statistics.median(each[key] for each in found) for key in found[0]}
            print(
                f"| {label} | {way} | {mid['names']:.2f} | {mid['summed']:.1f} | "
                f"{mid['cpu']:.1f} | {mid['peak']:.0f} |",
                flush=True,
            )
    print("\n| file | saved by | ms | CPU, ms |\n| --- | --- | ---: | ---: |")
    for label, path in paths.items():
        rounds = {}
        for _ in range(ROUNDS):
            for way in SAVED:
                rounds.setdefault(way, []).append(one("write", way, path))
        for way, found in rounds.items():
            mid = {key: statistics.median(each[key] for each in found) for key in found[0]}
            print(f"| {label} | {way} | {mid['summed']:.1f} | {mid['cpu']:.1f} |", flush=True)
    print(f"\n| {PROCESSES} processes, 2 GiB | all their memory, MB |\n| --- | ---: |")
    for way in [*WAYS, SEALED]:
        print(f"| {way} | {together(way, paths['2 GiB, 32 tensors']):.0f} |", flush=True)
    import dlbridge

    cpu = time.process_time()
    dlbridge.seal_safetensors(paths["2 GiB, 32 tensors"])
    print(f"\nSealing 2 GiB: {(time.process_time() - cpu) * 1e3:.0f} ms of the CPU.")


if __name__ == "__main__":
    if sys.argv[1:2] in (["read"], ["write"]):
        print(json.dumps({"read": read, "write": write}[sys.argv[1]](*sys.argv[2:])))
    else:
        with tempfile.TemporaryDirectory(dir=(sys.argv[1:] or [None])[0]) as made:
            main(made)
