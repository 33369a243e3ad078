"""The section on two processes, from the lines of `benches/rust` and of `benches/python/processes.py`."""

import os

from tables import Section, size, table

# Opening and mapping a file of any size, in nanoseconds.
OPEN_LIMIT = 50_000


def quantity(ns: float) -> str:
    return f"{ns / 1000:.1f}"


def speed(times: dict[tuple[int, int], tuple[float, float]], key: tuple[int, int]) -> list[str]:
    if key not in times:
        return ["", ""]
    taken, cpu = times[key]
    return [f"{1 / taken:,.0f}", f"{cpu * 1e6:,.0f}"]


def state() -> str:
    """How busy the machine is: times depend on it."""
    return f"a load average of {os.getloadavg()[0]:.1f}"


def section(lines: str, before: str) -> Section:
    rows = [line.split("\t") for line in lines.splitlines()]
    opened: dict[str, dict[int, float]] = {}
    # By way and number of readers.
    added: dict[str, dict[str, str]] = {}
    # By size and number of readers: the time, and the CPU time of all processes.
    moved: dict[str, dict[tuple[int, int], tuple[float, float]]] = {}
    notes = ""
    for kind, *row in rows:
        if kind == "open":
            count, language, who, ns = row
            opened.setdefault(f"{language}: {who}", {})[int(count)] = float(ns)
        elif kind == "added":
            readers, who, *counts = row
            # Counters of the kernel round to pages, and other programs use shared memory as well.
            own, shared, _ = (size(max(0.0, float(n))) for n in counts)
            added.setdefault(who, {})[readers] = f"{own}, {shared}"
        elif kind == "moved":
            count, number, who, taken, cpu = row
            moved.setdefault(who, {})[int(count), int(number)] = (float(taken), float(cpu))
        else:
            notes += f"- {row[0]}\n"
    sizes = sorted({count for times in opened.values() for count in times})
    of_open = [[who, *(quantity(times[n]) for n in sizes)] for who, times in opened.items()]
    counted = list(dict.fromkeys(n for cells in added.values() for n in cells))
    heads = ["way", *(f"{n} reader{'s' * (n != '1')}" for n in counted)]
    of_added = [[who, *(cells.get(n, "-") for n in counted)] for who, cells in added.items()]
    of_added.sort(key=lambda row: row[0] != "dlbridge")
    batches = sorted({key for times in moved.values() for key in times})
    of_moved = {
        number: [
            [who]
            + [
                cell
                for n, _ in filter(lambda key: key[1] == number, batches)
                for cell in speed(times, (n, number))
            ]
            for who, times in moved.items()
            if any(key[1] == number for key in times)
        ]
        for number in sorted({number for _, number in batches})
    }
    sizes_moved = sorted({n for n, _ in batches})
    head = "way | " + " | ".join(f"{size(n)}, /s | CPU µs" for n in sizes_moved)
    align = "l" + "rr" * len(sizes_moved)
    of_batches = "\n".join(
        f"{number} reader{'s' * (number > 1)}:\n\n{table(head, align, cells)}"
        for number, cells in of_moved.items()
    )
    most = max(max(times.values()) for who, times in opened.items() if "dlbridge" in who)
    verdict = "within" if most <= OPEN_LIMIT else "**above**"
    body = f"""\
[Sealed tensors](guide/processes.md) beside other ways between two processes. The machine had {before} before and {state()} after.
{notes and chr(10) + notes}
### Opening

Microseconds to check a sealed file, to map it and to read the first element: the median of 101 rounds in Python, of 301 in Rust. The budget is
{quantity(OPEN_LIMIT)} for every size; dlbridge is {verdict} it. By hand, a named file is opened and mapped without a check. In Python, the time includes the NumPy array.

{table("way | " + " | ".join(map(size, sizes)), "l" + "r" * len(sizes), of_open)}
### Memory of readers

What each reader of the same 64 MiB adds, after it has read every byte: its own (anonymous) memory, and shared memory of the machine (`Shmem` of
`/proc/meminfo`).

{table(" | ".join(heads), "l" + "r" * len(counted), of_added)}
### Batches

A maker fills a batch and sends it; each reader compares its ends and reads a byte of each page. Batches per second of the best of two rounds, and the CPU time of
all processes for a batch. By a `Queue`, `multiprocessing` sends through a thread of the maker. A `Channel` and iceoryx2 fill the same
memory again, so the kernel need not allocate and clear pages; all others but bytes allocate each batch, which its reader may keep.

{of_batches}"""

    return Section("Processes", body, "processes")
