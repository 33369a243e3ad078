"""What the repository runs beside its tests.

The example programs in Python, each in a process of its own, check themselves. The tables and the
comparison behind `cargo xtask bench` are tested without a measurement, `scripts/gpu-tests.sh run`
by what it prints and how it ends, here and where a GPU is.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import dlbridge
from support import Driver

ROOT = Path(__file__).resolve().parents[2]
BENCHES = ROOT / "benches"
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
        import counts
        import paths
        import sections
        import tables

        modules = {"counts": counts, "paths": paths, "sections": sections, "tables": tables}
        yield type("Benches", (), modules)
    finally:
        sys.path.remove(str(BENCHES))


def dump(library, kind, total, calls):
    return DUMP.format(library=library, kind=kind, total=total, calls=calls)


def results(benches):
    found = benches.paths.Results()
    found.read_records(
        "version\tnumpy\t2.4.6\ntime\tnumpy-in\tfloor\t70.5\nbroken\tdlpark\tImportError: no\n"
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
    found.read_records("broken\tdlpark\tImportError: no\n")
    assert found.notes[:2] == [
        "dlpark: ImportError: no",
        "rust-numpy, import a JAX array, read, drop: TypeError: x",
    ]
    assert len(found.notes) == 3 and found.notes[2].endswith("--with torch")
    assert found.versions == {"numpy": "2.4.6"}


def test_a_path_has_a_row_for_each_library_that_has_it(benches):
    table = benches.paths.paths_table(
        results(benches), ["floor", "dlbridge", "nanobind", "tvm_ffi"]
    )
    rows = table.splitlines()
    assert rows[2].endswith("| floor | 1,000 | 1.00 | 1 | 70.5 | - |  |")
    assert rows[3] == "|  | dlbridge | 1,500 | 1.50 | 2 | - | 1.10 | over |"
    assert len(rows) == 4


KEY = ("bare", "torch-in")


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ((1400, 1000), (1500, 1000), "+7.1 %"),
        ((1440, 1000), (1500, 1000), "+4.2 %"),
        ((1480, 1000), (1500, 1000), None),
        ((2000, 1000), (1500, 1000), None),
        # With another Python, only one of the ratio and the instructions above the reference grows.
        ((1500, 1000), (1300, 800), None),
        ((1500, 1000), (2100, 1500), None),
        # With the same Python, the reference alone moves by some instructions.
        ((1580, 1650), (1600, 1586), None),
        # Below the reference, coming nearer to it is worse.
        ((500, 1000), (600, 1000), "+20.0 %"),
        # Without one, counts of the same Python are compared.
        ((1000, None), (1030, None), "+3.0 %"),
        ((1000, None), (1010, None), None),
    ],
)
def test_only_a_call_that_became_worse_is_reported(benches, old, new, change):
    found = benches.counts.grown({KEY: old}, {KEY: new}, 0.02, is_same=True)
    line = f"bare torch-in: {old[0]:,} -> {new[0]:,} instructions, {change}"
    moved = f" (reference: {old[1]:,} -> {new[1]:,})" if old[1] != new[1] else ""
    assert found == ([line + moved] if change else [])
    assert benches.counts.grown({}, {KEY: new}, 0.02, is_same=True) == []
    assert benches.counts.grown({KEY: (1000, None)}, {KEY: (2000, None)}, 0.02, is_same=False) == []


def test_a_call_that_another_library_overtook_is_reported(benches):
    peers = {KEY: ("dlpark", 1100), ("bare", "unknown"): ("dlpark", 1)}
    overtaken = benches.counts.overtaken
    assert overtaken({KEY: (1090, 900)}, {KEY: (1130, 900)}, peers) == [
        "bare torch-in: 1,130 instructions, dlpark takes 1,100"
    ]
    assert overtaken({KEY: (1090, 900)}, {KEY: (1110, 900)}, peers) == []
    # It was behind before.
    assert overtaken({KEY: (1105, 900)}, {KEY: (1130, 900)}, peers) == []


@pytest.mark.parametrize(
    ("cost", "is_reported", "fails"),
    [(1060, False, False), (1075, True, False), (1105, True, True)],
)
def test_two_percent_more_is_reported_and_five_percent_fails(
    benches, tmp_path, monkeypatch, capsys, cost, is_reported, fails
):
    summary, counts = tmp_path / "summary.md", benches.counts
    monkeypatch.setattr(counts, "COUNTS", tmp_path / "counts.txt")
    monkeypatch.setattr(counts, "ROOT", tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    counts.write({KEY: (1048, 844)})
    assert counts.stored() == (counts.python(), {KEY: (1048, 844)})
    capsys.readouterr()
    if fails:
        with pytest.raises(SystemExit, match="less than 5%"):
            counts.compare({KEY: (cost, 844)})
    else:
        counts.compare({KEY: (cost, 844)})
    line = f"bare torch-in: 1,048 -> {cost:,} instructions, "
    out = capsys.readouterr().out
    assert (f"::warning::{line}" in out, f"FAILED {line}" in out) == (is_reported, fails)
    assert summary.exists() == is_reported
    with pytest.raises(SystemExit, match="found none of\nbare torch-in"):
        counts.compare({})


def test_without_a_gpu_the_bench_of_operators_says_that_it_skips(benches, monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    # By its path: the tests have a module of this name.
    spec = importlib.util.spec_from_file_location("bench_operators", BENCHES / "operators.py")
    operators = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(operators)
    built = []
    monkeypatch.setattr(operators, "build_for_cuda", lambda: built.append("for CUDA"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    reason = "skipped: built, but no GPU to run on: torch.cuda.is_available() is False"
    assert benches.tables.aligned(operators.on_gpu()) == reason
    assert built == ["for CUDA"]


def test_every_path_is_measured_and_counted(benches):
    script = (BENCHES / "python/measure.py").read_text()
    for path in [*benches.paths.PATHS, *benches.paths.CALLS]:
        assert f'"{path}":' in script, path
    _, stored = benches.counts.stored()
    assert {environment for environment, _ in stored} == benches.paths.ENVIRONMENTS.keys()


def test_every_public_name_of_the_package_is_counted():
    sys.path.insert(0, str(BENCHES / "python"))
    import package

    text = (BENCHES / "python/package.py").read_text()
    left_out = {"Description", "SupportsDLPack", "Tensor", *package.LEFT_OUT.split()}
    for name in dlbridge.__all__:
        if not name.isupper() and not name.startswith("__") and name not in left_out:
            assert f"dlbridge.{name}" in text, name
    for name in dir(dlbridge.Tensor):
        if not name.startswith("_"):
            assert name in package.calls(), name


def test_a_section_replaces_only_itself(benches):
    put = benches.tables.with_section
    page = put("# Head\n", "Python", "old\n\n### more\n")
    page = put(page, "Python: sizes", "numbers")
    page = put(page, "Python", "new")
    assert page == "# Head\n\n## Python\n\nnew\n\n## Python: sizes\n\nnumbers\n"
    assert put(page, "Python: sizes", "others").endswith("\n\nothers\n")


def test_tables_of_threads_and_julia(benches):
    lines = "1\tzeros\t2000000\n2\tzeros\t3000000\n4\tzeros\t8000000\n"
    threads = benches.sections.threads("Python", lines)
    assert "| call | 1 thread | 2 threads, x | 4 threads, x |\n" in threads.body, threads.body
    assert threads.body.endswith("| zeros | 2.00 | 1.50 | 4.00 |\n"), threads.body
    julia = benches.sections.julia(
        "julia\t1.5.3\nimport\tby hand\t100.0\t0\nimport\tours\t150.4\t96\nshare\ttype\t30.0\t16"
    )
    rows = "| import | by hand | 100 | 1.00 | 0 |\n|  | ours | 150 | 1.50 | 96 |\n"
    assert julia.body.endswith(rows + "| share | type | 30 | 1.00 | 16 |\n")
    with pytest.raises(benches.tables.Unmeasured):
        benches.sections.copies("copy\tfloat32\n")


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


def example(program: str, *arguments: str) -> str:
    command = [sys.executable, str(ROOT / "examples" / program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_rust_runs_in_dasks_workers_over_numpys_memory():
    for name in ("dask", "distributed", "dlbridge_example"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    said = example("dask/row_sums.py")
    page = (ROOT / "docs/guide/workers.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    # Dask decides which worker makes a block.
    assert re.sub(r"in \d workers", "in 2 workers", said) == shown


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="memory files are sealed on Linux")
def test_a_trainer_reads_the_batches_of_its_workers():
    pytest.importorskip("torch", reason="torch is not installed")
    # Each batch is checked as it arrives.
    small = ("loader/loader.py", "--batches", "6", "--mebibytes", "1", "--start")
    said = example(*small, "fork") + example(*small, "spawn", "--ways", "dlbridge.empty_sealed")
    rows = re.findall(r"^\| (.+) \| (fork|spawn) \| [\d,]+ \|$", said, re.MULTILINE)
    assert len(set(rows)) == 6, said


SCRIPT = ROOT / "scripts/gpu-tests.sh"
GPU_TESTS = Path(__file__).parent / "gpu"

RUNS_SH = pytest.mark.skipif(sys.platform == "win32", reason="a script for sh")


@pytest.fixture
def packed(tmp_path):
    """What `pack` makes, with the wheel that is installed here and a program that tells counts."""
    shutil.copytree(GPU_TESTS, tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    with zipfile.ZipFile(tmp_path / "none.whl", "w") as wheel:
        wheel.writestr("none-0.dist-info/METADATA", "")
    (tmp_path / "programs").mkdir()
    return tmp_path


def program(packed: Path, *said: str) -> None:
    lines = "\n".join(said)
    (packed / "programs/rust").write_text(f"#!/bin/sh\necho '{lines}'\n")


def run(
    *arguments: object, libraries: Path | None = None, seconds: int = 600
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable, "GPU_TESTS_SECONDS": str(seconds)}
    if libraries:
        environment["LD_LIBRARY_PATH"] = str(libraries)
    command = ["sh", str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def has_driver() -> bool:
    asks = "import gpus; raise SystemExit(gpus.missing() is None)"
    return subprocess.run([sys.executable, "-c", asks], cwd=GPU_TESTS, check=False).returncode == 1


@pytest.mark.long
@RUNS_SH
@pytest.mark.skipif(has_driver(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_so_and_ends_with_3(packed):
    program(packed, "test result: ok. 9 passed; 0 failed")
    done = run("run", packed)
    *_, reason, last = done.stdout.splitlines()
    assert reason.startswith("no test ran on a GPU: no CUDA driver: libcuda.so.1")
    assert last.endswith(" passed, 0 failed")
    assert done.returncode == 3, done.stderr
    assert "rust: 1 skipped: no CUDA driver" in done.stdout
    assert re.search(r"^test_gpu_slices.Slices: [1-9] skipped: no CUDA", done.stdout, re.MULTILINE)


@pytest.mark.long
@RUNS_SH
def test_threads_are_measured_where_tests_were_packed(packed):
    script = (ROOT / "benches/python/threads.py").read_text()
    (packed / "threads.py").write_text(script.replace("ROUND_S = 0.1", "ROUND_S = 0.001"))
    done = run("threads", packed)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert {"1", "2"} <= {threads for threads, _, _ in lines}, done.stderr
    assert {"a function that reads one", "zeros of 64 KiB"} <= {call for _, call, _ in lines}
    assert all(int(rate) > 0 for _, _, rate in lines)


@pytest.fixture
def fake_driver(tmp_path_factory):
    """A fake driver, which no framework can use."""
    return Driver(tmp_path_factory.mktemp("driver")).folder


@pytest.mark.long
@RUNS_SH
@pytest.mark.parametrize(
    ("said", "counts", "code"),
    [
        (["test a ... ok", "test b ... ok", "test result: ok. 2 passed; 0 failed"], (2, 0), 0),
        (["test a ... ok", "test b ... FAILED", "test result: FAILED."], (1, 1), 1),
        (["test a ... ok", "Segmentation fault"], (1, 1), 1),
    ],
)
def test_the_programs_are_counted_where_a_gpu_is(packed, fake_driver, said, counts, code):
    for tests in packed.glob("tests/test_*.py"):
        tests.unlink()
    program(packed, *said)
    done = run("run", packed, libraries=fake_driver)
    passed, failed = counts
    assert done.stdout.splitlines()[-1] == f"{passed} passed, {failed} failed"
    assert done.returncode == code, done.stdout
    assert f"| `rust` | {passed} | {failed} | 0 |" in (packed / "gpu-run.md").read_text()


FAULTS = """
import os, time, unittest

class Faults(unittest.TestCase):
    def test_1_passes(self): pass
    def test_2_fails(self): self.fail("wrong")
    def test_3_passes(self): pass
    def test_4_crashes(self): os.abort()
    def test_5_passes(self): pass
    def test_6_hangs(self): time.sleep(600)
    def test_7_is_too_late(self): pass

class Others(unittest.TestCase):
    def test_passes(self): pass
    @unittest.skip("for a reason")
    def test_is_skipped(self): pass
"""


@pytest.mark.long
@RUNS_SH
def test_a_fault_ends_its_test_alone(packed):
    for tests in packed.glob("tests/test_*.py"):
        tests.unlink()
    (packed / "tests/test_faults.py").write_text(FAULTS)
    program(packed)
    done = run("run", packed, seconds=10)
    assert "| `test_faults.Faults` | 3 | 4 | 0 |" in done.stdout, done.stdout + done.stderr
    assert "| `test_faults.Others` | 1 | 0 | 1 |" in done.stdout
    for said in (
        "test_2_fails: failed: Traceback",
        "test_4_crashes: failed: the process ended by SIGABRT",
        "test_6_hangs: failed: no end within the 10 seconds of its group",
        "test_7_is_too_late: failed: not begun within the 10 seconds of its group",
        "test_faults.Others: 1 skipped: for a reason",
    ):
        assert said in done.stdout, said


@pytest.mark.long
@RUNS_SH
@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
def test_a_packed_folder_runs_beside_the_fake_driver(packed, fake_driver):
    wheel, folder = packed / "none.whl", packed / "packed"
    made = run("pack", folder, wheel, wheel, wheel)
    assert made.returncode == 0, made.stderr
    done = run("run", folder, libraries=fake_driver)
    assert done.returncode == 0, done.stdout + done.stderr
    table = (folder / "gpu-run.md").read_text()
    for group in ("slices.Slices", "arrays.Copies", "cudarc_0_19_gpu"):
        assert re.search(rf"^\| `{group}` \| [1-9]\d* \| 0 \| 0 \|$", table, re.MULTILINE), table


@pytest.mark.long
@RUNS_SH
def test_the_table_of_a_run_is_shown_by_the_guide(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "docs/guide").mkdir(parents=True)
    script = shutil.copy(SCRIPT, tmp_path / "scripts")
    page, table = tmp_path / "docs/guide/gpu.md", tmp_path / "gpu-run.md"
    page.write_text((ROOT / "docs/guide/gpu.md").read_text())
    before, after = page.read_text().split("<!-- gpu-run -->\n")
    table.write_text("| a | table |\n")
    subprocess.run(["sh", script, "show", tmp_path], check=True)
    shown = "<!-- gpu-run -->\n| a | table |\n<!-- end of gpu-run -->\n"
    assert page.read_text() == before + shown + after.split("<!-- end of gpu-run -->\n")[1]


@pytest.mark.long
@RUNS_SH
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected pack DIR"),
        (["frob"], "expected pack DIR"),
        (["frob", "/nowhere"], "expected pack, run, threads or show, found frob"),
        (["run"], "expected pack DIR"),
        (["run", "/nowhere"], "expected a packed folder, found /nowhere"),
        (["show", "/nowhere"], "expected a folder after a run, found /nowhere"),
    ],
)
def test_an_examination_that_cannot_start_ends_with_2(arguments, said):
    done = run(*arguments)
    assert done.returncode == 2
    assert f"gpu-tests.sh: {said}" in done.stderr


@pytest.mark.long
@RUNS_SH
def test_a_missing_wheel_is_said(packed):
    (packed / "none.whl").unlink()
    done = run("run", packed)
    assert done.returncode == 2
    assert "no wheel in" in done.stderr
