"""Small allocations that fail while an error is raised: never the end of the process."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest


def test_an_error_without_memory_for_its_message_is_an_exception():
    pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    program = """
        import _testcapi
        import dlbridge

        tensor = dlbridge.zeros(3, dtype="bfloat16")
        dlpack = tensor.__dlpack__
        calls = [
            lambda: dlpack(unknown=1),
            lambda: dlpack(1),
            lambda: dlpack(dl_device=(2, 0)),
            lambda: dlpack(max_version="1"),
            lambda: memoryview(tensor),
            lambda: dlbridge.from_dlpack([1]),
            lambda: dlbridge.zeros(-2),
            lambda: dlbridge.zeros(2**62),
            lambda: tensor[9],
            lambda: tensor["x"],
            lambda: list(tensor),
            lambda: bool(tensor),
        ]
        for call in calls:
            try:
                call()
            except Exception:
                pass
        for call in calls:
            for first in range(40):
                try:
                    _testcapi.set_nomemory(first, first + 1)
                    call()
                except BaseException:
                    pass
                finally:
                    _testcapi.remove_mem_hooks()
        print("alive")
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr[-2000:]
