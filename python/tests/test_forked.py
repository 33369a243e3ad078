"""Loops on many threads in a process that was forked from one that ran such loops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

example = pytest.importorskip("dlbridge_example", reason="the example extension is not installed")

if not hasattr(os, "fork"):
    pytest.skip("the system has no fork", allow_module_level=True)


def test_all_cores_compute_in_a_process_that_was_forked():
    x = np.ones((64, 8), "float32")
    example.softmax(x)
    child = os.fork()
    if child == 0:
        # Ends a child that waits for the threads of its parent.
        signal.alarm(30)
        done = example.softmax(x).sum() == 64
        os._exit(0 if done else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_all_cores_compute_in_a_data_loader_of_pytorch():
    pytest.importorskip("torch", reason="torch is not installed")
    program = (
        "import dlbridge_example, torch\n"
        "class Rows(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, i): return dlbridge_example.softmax(torch.ones(2, 3))\n"
        "dlbridge_example.softmax(torch.ones(2, 3))\n"
        "loader = torch.utils.data.DataLoader(\n"
        "    Rows(), num_workers=1, multiprocessing_context='fork', timeout=30)\n"
        "assert sum(float(batch.sum()) for batch in loader) == 8\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
