"""The section on two processes, from the lines of `benches/rust` and of `benches/python/processes.py`."""

import os
from typing import Any

from tables import Rows, Section, size, table

# Opening and mapping a file of any size, in nanoseconds.
OPEN_LIMIT = 50_000


def quantity(ns: float) -> str:
    return f"{ns / 1000:.1f}"


def state() -> str:
    """How busy the machine is: times depend on it."""
    return f"a load average of {os.getloadavg()[0]:.1f}"


def section(lines: str, before: str) -> Section:
    rows = [line.split("\t") for line in lines.splitlines()]
    opened: dict[str, dict[int, float]] = {}
    added: Rows = []
    moved: dict[str, dict[int, float]] = {}
    notes = ""
    for kind, *row in rows:
        if kind == "open":
            count, language, who, ns = row
            opened.setdefault(f"{language}: {who}", {})[int(count)] = float(ns)
        elif kind == "added":
            readers, who, *counts = row
            # Counters of the kernel round to pages, and other programs use shared memory as well.
            added.append([who, readers, *(size(max(0.0, float(n))) for n in counts)])
        elif kind == "moved":
            count, who, taken = row
            moved.setdefault(who, {})[int(count)] = float(taken)
        else:
            notes += f"- {row[0]}\n"
    sizes = sorted({count for times in opened.values() for count in times})
    of_open = [
        [who, *(quantity(times[n]) for n in sizes)] for who, times in opened.items()
    ]
    batches = sorted({count for times in moved.values() for count in times})
    (ours, *_) = moved.values()
    of_moved = [
        [who]
        + [
            cell
            for n in batches
            for cell in (
                f"{n / (1 << 20) / times[n]:,.0f}",
                f"{ours[n] / times[n]:.2f}",
            )
        ]
        for who, times in moved.items()
    ]
    most = max(
        max(times.values()) for who, times in opened.items() if "dlbridge" in who
    )
    verdict = "within" if most <= OPEN_LIMIT else "**above**"
    body = f"""\
[Sealed tensors](guide/processes.md) beside other ways between two processes. The machine had {before} before and {state()} after.
{notes and chr(10) + notes}
### Opening

Microseconds to check a sealed file, to map it and to read the first element: the median of 101 rounds in Python, of 301 in Rust. The budget is
{quantity(OPEN_LIMIT)} for every size; dlbridge is {verdict} it. By hand, a named file is opened and mapped without a check. In Python, the time includes the NumPy array.

{table("way | " + " | ".join(map(size, sizes)), "l" + "r" * len(sizes), of_open)}
### Memory of readers

What each reader of the same 64 MiB adds, after it has read every byte: its own (anonymous) memory, shared memory of the machine (`Shmem` of
`/proc/meminfo`), and page tables, which any mapping needs.

{table("way | readers | own | shared | page tables", "lrrrr", sorted(added, key=lambda row: row[0] != "dlbridge"))}
### Batches

A maker fills a batch and sends it; a reader compares its ends and reads a byte of each page. MiB per second of the best of two rounds, and the speed as a multiple
of dlbridge's. By a `Queue`, `multiprocessing` sends a descriptor through a thread of the maker. iceoryx2 fills the same memory again, so the kernel need not allocate and
clear pages; all others allocate each batch, which its reader may keep.

{table("way | " + " | ".join(f"{size(n)}, MiB/s | x dlbridge" for n in batches), "l" + "r" * (2 * len(batches)), of_moved)}"""

    def draw() -> Any:
        import charts

        panels: list[Any] = []
        for n in batches:
            shown = [
                (who, [(times[n] / ours[n], who.startswith("dlbridge"))])
                for who, times in moved.items()
            ]
            panels.append((f"Batches of {size(n)}", shown, None))
        subtitle = "time of a batch, as a multiple of dlbridge's: filled, sent, read"
        return charts.bars("Between two processes", subtitle, panels)

    return Section("Processes", body, "processes", "processes", draw)
