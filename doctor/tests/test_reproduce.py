"""The programs that show a finding run, and show it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlpack_doctor import Verdict
from dlpack_doctor.examine import examine
from dlpack_doctor.frameworks import installed

HERE = Path(__file__).parent


def found(name, check):
    if name.partition(":")[0] not in [*installed(), "odd_consumer"]:
        pytest.skip(f"{name} is not installed")
    return examine([name], checks=[check], pairs=False).of(check, name)


def run(program):
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)


@pytest.mark.parametrize(
    ("name", "check", "shows"),
    [
        ("numpy", "producer.empty-data", "'byte_offset': 0"),
        ("torch", "producer.copied-flag", "'flags': 0"),
        ("torch", "consumer.negative", "strides=[3, -1]"),
        ("torch", "producer.table-major", "tensor("),
        ("jax", "producer.read-only-old", "'byte_offset': 0"),
        ("torch", "producer.refusal", "[2.0]"),
        ("torch", "consumer.no-methods", "invalid capsule"),
        ("jax", "consumer.null-deleter", ""),
        ("odd_consumer:from_dlpack", "consumer.byte-offset", "[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]"),
    ],
)
def test_a_program_shows_the_finding(name, check, shows):
    outcome = found(name, check)
    assert outcome.verdict in (Verdict.FAIL, Verdict.WARN)
    assert len(outcome.reproducer.splitlines()) <= 8
    ran = run(outcome.reproducer)
    assert shows in ran.stdout + ran.stderr, outcome.reproducer + ran.stderr
    if "crashed" in outcome.evidence:
        assert ran.returncode < 0


def test_every_program_is_python():
    for result in examine(["numpy", "array_api_strict"], pairs=False).results:
        ast.parse(result.outcome.reproducer)
