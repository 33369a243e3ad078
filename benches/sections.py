"""Sections other than the paths: each reads the tab-separated lines of one program."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tables import Rows, Section, Unmeasured, number, table, target

# Limits of the main row of shares: time as a multiple of the floor's, and allocations.
SHARE_LIMITS = (1.3, 1)
# The function whose calls callgrind counts, and how many loops one call runs.
COUNTED, LOOPS = "counted_views", 20


def words(lines: str, count: int) -> Rows:
    rows = [line.split("\t") for line in lines.splitlines()]
    for row in rows:
        if len(row) != count:
            raise Unmeasured(f"expected {count} words, found {row}")
    return rows


def output(*command: str | Path) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def has_valgrind() -> bool:
    return shutil.which("valgrind") is not None


def cores() -> str:
    count = os.cpu_count() or 1
    return "1 core" if count == 1 else f"{count} cores"


def copies(lines: str) -> Section:
    """Copies and computed arrays beside NumPy's: `what dtype nanoseconds nanoseconds`."""
    cells = [
        [
            what,
            dtype,
            f"{float(numpy) / 1e6:.2f}",
            f"{float(ours) / 1e6:.2f}",
            f"{float(ours) / float(numpy):.2f}",
        ]
        for what, dtype, numpy, ours in words(lines, 4)
    ]
    body = f"""\
Milliseconds of the fastest of 41 rounds, in one thread, over 16 MB of elements unless a row says otherwise. NumPy
and a Rust function that accepts the same NumPy array take turns.

{table("what | elements | NumPy | dlbridge | x NumPy", "llrrr", cells)}"""
    return Section("Python: copies", body, "python copies")


def threads(language: str, lines: str) -> Section:
    """Calls by one thread and by more: `threads call rate`."""
    rates: dict[str, list[float]] = {}
    counts: dict[str, None] = {}
    for count, call, rate in words(lines, 3):
        rates.setdefault(call, []).append(float(rate))
        counts[count] = None
    _, *more = counts
    cells = [
        [call, f"{one / 1e6:.2f}", *(f"{rate / one:.2f}" for rate in others)]
        for call, (one, *others) in rates.items()
    ]
    heads = " | ".join(["call", "1 thread", *(f"{count} threads, x" for count in more)])
    body = f"""\
Millions of calls per second of one thread, and the calls of all threads as multiples of that, the best of 11 rounds, on {cores()}.
Each thread has an array of its own. Python's loop is included.
The last row calls nothing of the package: no other can gain more by more threads.

{table(heads, "lr" + "r" * len(more), cells)}"""
    return Section(f"{language}: threads", body, "threads")


def shares(program: Path) -> Section:
    """Shares between Rust crates: `group case title shape who nanoseconds allocations`."""
    rows = words(output(program, "shares"), 7)
    cells, first = [], 1.0
    for group, case, title, shape, who, ns, allocations in rows:
        first = float(ns) if case == "0" else first
        # The other groups copy: their time does not follow from the instruction count.
        counted = None
        if group == "0" and has_valgrind():
            counted = counted_loop(program, "shares", "0", case)
        times = f"{float(ns) / first:.2f}"
        cells.append(
            [title, shape, who, f"{float(ns):.0f}", times, allocations, number(counted, "d")]
        )
    main, floor = (
        next(row for row in rows if row[0] == "0" and row[4] == who)
        for who in ("dlbridge", "one-box floor")
    )
    times, (slowest, most) = float(main[5]) / float(floor[5]), SHARE_LIMITS
    ok = ["over", "ok"]
    body = f"""\
The cost of sharing one array: nanoseconds (the median of 101 rounds), allocations, and instructions unless the
case is mostly a copy.

{table("f32 | array | by | ns | x first | allocations | instructions", "lllllll", cells)}
{main[2]}: {times:.2f} x the floor, at most {slowest}: {ok[times <= slowest]}; \
allocations {main[6]}, expected {most}: {ok[int(main[6]) == most]}"""
    return Section("Rust: shares", body, "rust shares")


def counted_loop(*command: str | Path) -> int | None:
    """Instructions of one round of a program, whose last argument is the number of rounds: those of 1100 less those of 100, over 1000."""
    totals = []
    for count in ("1100", "100"):
        valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        done = subprocess.run(
            [*valgrind, *command, count], capture_output=True, text=True, check=True
        )
        total = re.search(r"Collected : (\d+)", done.stderr)
        if not total:
            return None
        totals.append(int(total[1]))
    return (totals[0] - totals[1]) // 1000


Case = dict[str, tuple[float, float | None]]


def views(program: Path) -> Section:
    """Loops over views: `_ _ loop elements layout who nanoseconds`."""
    rows = words(output(program, "views"), 7)
    counts: list[float | None] = list(view_counts(program)) if has_valgrind() else []
    if len(counts) != len(rows):
        counts = [None] * len(rows)
    cases: dict[tuple[str, str, str], Case] = {}
    for (_, _, name, dtype, layout, who, ns), count in zip(rows, counts, strict=True):
        cases.setdefault((layout, name, dtype), {})[who] = (float(ns), count)
    contiguous: Rows = []
    # By layout and loop, a cell for each type of elements.
    strided: dict[tuple[str, str], dict[str, str]] = {}
    for (layout, name, dtype), case in cases.items():
        if layout == "contiguous" and "slice" in case:
            others = [
                view_cell(case, who, "slice")
                for who in ("View", "as_cells", "as_slice", "to_vec", "ndarray")
            ]
            contiguous.append([name, dtype, f"{case['slice'][0]:.0f}", *others])
        elif layout != "contiguous" and "ndarray" in case:
            cells = strided.setdefault((layout, name), {})
            cells[dtype] = view_cell(case, "View", "ndarray")
    dtypes = list(dict.fromkeys(dtype for cells in strided.values() for dtype in cells))
    rows = [[*key, *(cells.get(it, "-") for it in dtypes)] for key, cells in strided.items()]
    heads = "loop | elements | slice, ns | View | as_cells | as_slice | to_vec | ndarray"
    body = f"""\
Loops over 16 KiB of contiguous elements, or over 4096 elements of other layouts. A number is the time of
the loop as a multiple of the first column's (the fastest of 301 rounds), and in brackets the
instructions (callgrind) as a multiple. A `View` reads memory of any access class, including memory that another
language may write; slices are for exclusive memory. `as_cells` is for contiguous memory, `to_vec` copies first.

{table(heads, "llrrrrrr", contiguous)}
### Layouts that are not contiguous

A `View`, as a multiple of ndarray:

{table(" | ".join(["layout", "loop", *dtypes]), "ll" + "r" * len(dtypes), rows)}"""

    return Section("Rust: views", body, "rust views")


def view_counts(program: Path) -> Iterable[float]:
    """Instructions of each call of the counted function, in order, for one loop."""
    folder = target() / "bench/callgrind/views"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    valgrind = ["valgrind", "--tool=callgrind", "--quiet", f"--toggle-collect={COUNTED}"]
    output(
        *valgrind,
        f"--dump-after={COUNTED}",
        f"--callgrind-out-file={folder / 'dump'}",
        program,
        "views",
        str(LOOPS),
    )
    files = sorted(folder.glob("dump.*"), key=lambda file: int(file.suffix[1:]))
    for file in files:
        totals = re.findall(r"^totals: (\d+)", file.read_text(errors="replace"), re.MULTILINE)
        # The last dump is written at the end of the program, after the last call.
        if totals and int(totals[-1]):
            yield int(totals[-1]) / LOOPS


def ratios(case: Case, who: str, reference: str) -> list[float]:
    """Time, and instructions if they were counted, as multiples of the reference's."""
    if who not in case:
        return []
    (ns, count), (first, first_count) = case[who], case[reference]
    counted = [count / first_count] if count is not None and first_count else []
    return [ns / first, *counted]


def view_cell(case: Case, who: str, reference: str) -> str:
    match ratios(case, who, reference):
        case [time, count]:
            return f"{time:.2f} ({count:.2f})"
        case [time]:
            return f"{time:.2f}"
    return "-"


def julia(lines: str) -> Section:
    """`julia version`, then `path who nanoseconds bytes`; a path is compared with its first row."""
    (_, version), *rows = (line.split("\t") for line in lines.splitlines())
    cells: Rows = []
    last, first = "", 1.0
    for path, who, ns, count in rows:
        if path != last:
            last, first, name = path, float(ns), path
        else:
            name = ""
        cells.append([name, who, f"{float(ns):.0f}", f"{float(ns) / first:.2f}", count])
    body = f"""\
Importing and sharing an array of `float32[2, 3]`, compared with hand-written calls that do only what the protocol requires:
nanoseconds of the fastest of 100 rounds, and the bytes that Julia allocates.

{table(f"Julia {version} | by | ns | x first | bytes", "llrrr", cells)}"""
    return Section("Julia", body, "julia")


def reads(language: str, lines: str) -> Section:
    """Reads that bypass the compiler, as multiples of a `View`'s: heads, then rows."""
    heads, *rows = (line.split("\t") for line in lines.splitlines())
    body = f"""\
Without trust point T6 of SAFETY.md, memory that another language may write has to be read by inline assembly or relaxed atomics.
A number is the time of a loop as a multiple of the loop over a `View` (the fastest of 201 rounds, of 21 for 64 MiB): over blocks
of 4 KiB copied to the stack, or of 128 bytes loaded into registers.

{table(" | ".join(heads), "lll" + "r" * (len(heads) - 3), rows)}"""
    return Section(f"{language}: reads", body, "rust reads")
