"""The tables and the comparison behind `cargo xtask bench`, without a measurement."""

import json
import sys
from pathlib import Path

import pytest

BENCHES = Path(__file__).resolve().parents[2] / "benches"
DUMP = """\
desc: Trigger: Client Request: numpy-in {library} {kind}
fn=(1) calloc
0 20
cfn=(3) malloc'2
calls={calls} 0
0 400
cfn=(4) free
calls=1000 0
cfn=(1)
calls=5 0
totals: {total}
"""


@pytest.fixture(scope="module")
def benches():
    sys.path.insert(0, str(BENCHES))
    try:
        import history
        import paths
        import sections
        import tables

        modules = {"history": history, "paths": paths, "sections": sections, "tables": tables}
        yield type("Benches", (), modules)
    finally:
        sys.path.remove(str(BENCHES))


def dump(library, kind, total, calls):
    return DUMP.format(library=library, kind=kind, total=total, calls=calls)


def results(benches):
    found = benches.paths.Results()
    found.read_records(
        "version\tnumpy\t2.4.6\ntime\tnumpy-in\tfloor\t70.5\nbroken\tdlpk\tImportError: no\n"
        "failed\tjax-in\trust_numpy\tTypeError: x\nabsent\ttorch\ncalls\t10\nnoise\n"
    )
    found.read_dumps(
        [
            dump("floor", "work", 12_000, 15),
            dump("floor", "empty", 2_000, 5),
            dump("dlbridge", "work", 18_000, 30),
            dump("dlbridge", "empty", 3_000, 10),
            dump("dlpark", "work", 18_000, 30),
            dump("ended", "work", 1, 1).replace("Client Request: ", "Program termination"),
        ]
    )
    return found


def test_an_empty_call_is_subtracted_and_half_a_measurement_is_none(benches):
    found = results(benches)
    cost = {"nanoseconds": 70.5, "instructions": 1000.0, "allocations": 1.0}
    assert found.costs["numpy-in", "floor"] == cost
    assert found.ratio("numpy-in", "dlbridge") == 1.5
    assert found.ratio("numpy-in", "dlpark") is None


def test_a_missing_feature_is_noted_once(benches):
    found = results(benches)
    found.read_records("broken\tdlpk\tImportError: no\n")
    assert found.notes[:2] == [
        "dlpk: ImportError: no",
        "rust-numpy, import a JAX array, read, drop: TypeError: x",
    ]
    assert len(found.notes) == 3 and found.notes[2].endswith("--with torch")
    assert found.versions == {"numpy": "2.4.6"}


def test_a_path_has_a_row_for_each_library_and_one_for_the_rest(benches):
    table = benches.paths.paths_table(results(benches), ["floor", "dlbridge", "dlpk", "tvm_ffi"])
    rows = table.splitlines()
    assert rows[2].endswith("| floor | 1,000 | 1.00 | 1 | 70.5 | - |  |")
    assert rows[3] == "|  | dlbridge | 1,500 | 1.50 | 2 | - | 1.10 | over |"
    assert rows[4] == "|  | the others | - | - | - | - | - |  |"
    ways = benches.paths.ways_table(results(benches)).splitlines()
    assert ways[2] == "| DLPack: a capsule from __dlpack__ | 1,000 | 1.00 | 1 | 70.5 |"
    numbers = json.loads(benches.paths.as_json(results(benches), ["floor", "dlbridge"]))["costs"]
    assert [cost["ratio"] for cost in numbers] == [1.0, 1.5]


def counts(path, floor, dlbridge):
    return {path: {"floor": floor, "dlbridge": dlbridge}}


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ((1000, 1400), (1000, 1500), "+7.1 %"),
        ((1000, 1440), (1000, 1500), "+4.2 %"),
        ((1000, 1480), (1000, 1500), None),
        ((1000, 2000), (1000, 1500), None),
        # With another Python, only one of the ratio and the instructions above the floor grows.
        ((1000, 1500), (800, 1300), None),
        ((1000, 1500), (1500, 2100), None),
        # Below the floor, coming nearer to it is worse.
        ((1000, 500), (1000, 600), "+20.0 %"),
    ],
)
def test_only_a_path_that_became_worse_is_reported(benches, old, new, change):
    found = benches.history.grown(counts("torch-in", *old), counts("torch-in", *new), 0.02)
    line = f"torch in: {old[1]:,} -> {new[1]:,} instructions, {change}"
    assert found == ([line] if change else [])
    assert benches.history.grown({}, counts("torch-in", *new), 0.02) == []


@pytest.mark.parametrize(
    ("cost", "is_reported", "fails"),
    [(1060, False, False), (1075, True, False), (1105, True, True)],
)
def test_two_percent_more_is_reported_and_five_percent_fails(
    benches, tmp_path, monkeypatch, capsys, cost, is_reported, fails
):
    summary = tmp_path / "summary.md"
    monkeypatch.setattr(benches.history, "COUNTS", tmp_path / "counts.txt")
    monkeypatch.setattr(benches.history, "ROOT", tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    benches.history.COUNTS.write_text("date commit\n")
    benches.history.add(counts("torch-in", 844, 1048), "2026-11-22", "9a27854")
    capsys.readouterr()
    if fails:
        with pytest.raises(SystemExit, match=r"less than 5%.*\ntorch in: .*, \+5.4 %"):
            benches.history.compare(counts("torch-in", 844, cost))
    else:
        benches.history.compare(counts("torch-in", 844, cost))
    line = f"torch in: 1,048 -> {cost:,} instructions, "
    assert (f"::warning::{line}" in capsys.readouterr().out) == is_reported
    assert summary.exists() == is_reported
    if is_reported:
        assert f"Instructions since 9a27854:\n\n- {line}" in summary.read_text()


def test_a_state_is_added_once_and_the_last_count_of_each_path_is_compared(
    benches, tmp_path, monkeypatch
):
    history = benches.history
    monkeypatch.setattr(history, "COUNTS", tmp_path / "counts.txt")
    monkeypatch.setattr(history, "ROOT", tmp_path)
    history.COUNTS.write_text("date commit\n")
    first = counts("torch-in", 844, 1048) | counts("numpy-in", 1127, 612)
    history.add(first, "2026-11-21", "1111111")
    history.add(counts("numpy-in", 1, 1), "2026-11-22", "2222222+")
    history.add(counts("numpy-in", 1127, 610), "2026-11-22", "2222222+")
    assert history.COUNTS.read_text() == (
        "date        commit    numpy-in  torch-in\n"
        "2026-11-21  1111111   612/1127  1048/844\n"
        "2026-11-22  2222222+  610/1127  -\n"
    )
    assert history.states()[0] == ("2026-11-21", "1111111", first)
    assert history.latest() == counts("torch-in", 844, 1048) | counts("numpy-in", 1127, 610)


def test_every_path_is_measured_and_counted(benches):
    script = (BENCHES / "python/measure.py").read_text()
    for path in [*benches.paths.PATHS, *benches.paths.WAYS_IN]:
        assert f'"{path}":' in script, path
    assert benches.history.latest().keys() <= benches.paths.PATHS.keys()
    # Each row has a cell for each path.
    assert all(found for *_, found in benches.history.states())


def test_a_section_replaces_only_itself(benches):
    put = benches.tables.with_section
    page = put("# Head\n", "Python", "old\n\n### more\n")
    page = put(page, "Python: sizes", "numbers")
    page = put(page, "Python", "new")
    assert page == "# Head\n\n## Python\n\nnew\n\n## Python: sizes\n\nnumbers\n"
    assert put(page, "Python: sizes", "others").endswith("\n\nothers\n")


def test_tables_of_sizes_threads_and_julia(benches):
    sizes = benches.sections.sizes(
        "Rust",
        "1024\tdlbridge\t16.0\t152\n1024\tcopy\t80.0\t1536\n4096\tdlbridge\t16.0\t0\n"
        "4096\tcopy\t300.0\t4096\n",
    )
    assert "| 1 KiB | 16 | 152 B | 80 | 1.5 KiB |\n" in sizes.body
    assert sizes.body.endswith("| 4 KiB | 16 | 0 B | 300 | 4 KiB |\n")
    lines = "".join(
        f"{threads}\timport\t{who}\t{rate}\n"
        for threads, who, rate in [(1, "dlbridge", 2e6), (2, "dlbridge", 3e6), (1, "floor", 1e6)]
    )
    threads = benches.sections.threads("Python", lines + "note\tno torch\n")
    rows = "| import, dlbridge | 2.00 | 3.00 |\n| import, floor | 1.00 | - |\n\n- no torch\n"
    assert threads.body.endswith(rows), threads.body
    julia = benches.sections.julia(
        "julia\t1.5.3\nimport\tby hand\t100.0\t0\nimport\tours\t150.4\t96\nshare\ttype\t30.0\t16"
    )
    rows = "| import | by hand | 100 | 1.00 | 0 |\n|  | ours | 150 | 1.50 | 96 |\n"
    assert julia.body.endswith(rows + "| share | type | 30 | 1.00 | 16 |\n")
    with pytest.raises(benches.tables.Unmeasured):
        benches.sections.sizes("Rust", "1024\tcopy\n")


def table(text, header):
    """The rows below a header, as lists of cells."""
    lines = text.split(header)[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_numbers_of_the_readme_are_those_of_the_benchmarks():
    page = (BENCHES.parent / "docs/benchmarks.md").read_text()
    paths, path = {}, ""
    for name, library, instructions, *_ in table(page, "| path | library | instructions |"):
        path = name or path
        paths.setdefault(path, {})[library] = instructions
    header = "| exchange | floor in C | dlbridge |"
    readme = (BENCHES.parent / "README.md").read_text()
    peers = readme.split(header)[1].splitlines()[0].strip("|").split("|")
    libraries = ["floor", "dlbridge", *(peer.strip() for peer in peers)]
    rows = table(readme, header)
    assert rows
    for exchange, *numbers in rows:
        shown = dict(zip(libraries, numbers, strict=True))
        measured = [{name: of.get(name, "-") for name in libraries} for of in paths.values()]
        assert shown in measured, f"{exchange}: `cargo xtask bench python` counted other numbers"
