"""The example programs in Python, each in a process of its own: they check themselves."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def run(program: str, *arguments: str) -> str:
    command = [sys.executable, str(ROOT / "examples" / program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rust_runs_in_dasks_workers_over_numpys_memory():
    for name in ("dask", "distributed", "dlbridge_example"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    said = run("dask/row_sums.py")
    page = (ROOT / "docs/guide/workers.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    # Dask decides which worker makes a block.
    assert re.sub(r"in \d workers", "in 2 workers", said) == shown


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="memory files are sealed on Linux")
def test_a_trainer_reads_the_batches_of_its_workers():
    pytest.importorskip("torch", reason="torch is not installed")
    # Each batch is checked as it arrives.
    small = ("loader/loader.py", "--batches", "6", "--mebibytes", "1", "--start")
    said = run(*small, "fork") + run(*small, "spawn", "--ways", "dlbridge.empty_sealed")
    rows = re.findall(r"^\| (.+) \| (fork|spawn) \| [\d,]+ \|$", said, re.MULTILINE)
    assert len(set(rows)) == 6, said
