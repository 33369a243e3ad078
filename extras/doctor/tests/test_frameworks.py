"""Real frameworks: what is known of them is found, and dlbridge has no fault."""

from __future__ import annotations

import functools

import pytest

from dlpack_doctor import Verdict
from dlpack_doctor.examine import examine
from dlpack_doctor.names import installed

HERE = installed()


@functools.cache
def examined(name):
    return examine([name], pairs=False)


def outcome(name, check):
    if name not in HERE:
        pytest.skip(f"{name} is not installed")
    return examined(name).of(check, name)


def test_dlbridge_fails_nothing():
    assert [f"{r.check}: {r.outcome.evidence}" for r in examined("dlbridge").failures] == []


def test_numpy_fails_nothing():
    assert [f"{r.check}: {r.outcome.evidence}" for r in examined("numpy").failures] == []


# Found by hand before there was a doctor, by other means than its own.
KNOWN = [
    ("torch", "producer.copied-flag", Verdict.FAIL, "without the flag"),
    ("torch", "producer.refusal", Verdict.FAIL, "negated"),
    ("torch", "producer.table-refusal", Verdict.WARN, "gradient"),
    ("torch", "producer.table-major", Verdict.FAIL, "2.0"),
    ("torch", "consumer.read-only", Verdict.WARN, "writable array"),
    ("torch", "consumer.negative", Verdict.WARN, "refused"),
    ("jax", "producer.read-only-old", Verdict.FAIL, "cannot say so"),
    ("jax", "consumer.null-deleter", Verdict.FAIL, "crashed (SIGABRT)"),
    ("jax", "consumer.gaps", Verdict.WARN, "refused"),
    ("jax", "consumer.copy-true", Verdict.FAIL, "same memory"),
    ("tvm_ffi", "producer.version-0.8", Verdict.FAIL, "AttributeError"),
    ("tvm_ffi", "producer.copy-true-old", Verdict.FAIL, "same memory"),
    ("tvm_ffi", "consumer.asks-versioned", Verdict.WARN, "max_version"),
    ("pyarrow.Tensor", "producer.refusal", Verdict.FAIL, "strides of 5 bytes"),
    # A Tensor of bools says that it is one of uint8.
    ("pyarrow.Tensor", "producer.dtypes", Verdict.PASS, "uint8"),
    ("pyarrow.Array", "producer.read-only-old", Verdict.FAIL, "cannot say so"),
    ("pyarrow.Array", "consumer.old-answer", Verdict.WARN, "refused"),
    ("paddle", "producer.device", Verdict.FAIL, "NoneType"),
    ("paddle", "consumer.null-context", Verdict.FAIL, "never released"),
    ("paddle", "consumer.byte-offset", Verdict.FAIL, "holds"),
    ("paddle", "consumer.negative", Verdict.FAIL, ""),
    ("paddle", "producer.table-stream", Verdict.FAIL, "nothing is written"),
    ("paddle", "consumer.absent-gpu", Verdict.FAIL, "crashed (SIGSEGV)"),
    ("mlx", "producer.byte-offset", Verdict.WARN, "byte_offset is"),
    ("mlx", "consumer.renames", Verdict.FAIL, "dltensor"),
    ("mlx", "consumer.dtypes", Verdict.FAIL, "float64 becomes float32"),
    ("mlx", "consumer.zero-copy", Verdict.WARN, "copied"),
    ("tensorflow", "producer.refusal", Verdict.FAIL, "crashed (SIGABRT)"),
    ("tensorflow", "producer.own-device", Verdict.FAIL, "RuntimeError"),
    ("tensorflow", "consumer.takes", Verdict.WARN, "imports capsules"),
    ("tensorflow", "consumer.lanes", Verdict.FAIL, "float32"),
    ("tensorflow", "consumer.refused-gpu-released", Verdict.FAIL, "found 2"),
    ("max", "consumer.transposed", Verdict.FAIL, "holds"),
    ("max", "consumer.byte-offset", Verdict.FAIL, "holds"),
    ("scirs2", "consumer.dtypes", Verdict.FAIL, "int8 becomes float64"),
]


@pytest.mark.parametrize(("name", "check", "verdict", "words"), KNOWN)
def test_known_findings_are_found(name, check, verdict, words):
    found = outcome(name, check)
    assert found.verdict is verdict, found
    assert words in found.evidence
