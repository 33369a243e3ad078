"""The doctor as a library, for the tests of a framework.

Everything runs in the caller's process: what crashes, crashes the tests. `--dlpack` of the
pytest plugin, and the command line, use child processes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from typing import Any

from dlpack_doctor import registry
from dlpack_doctor.findings import Examined, Findings, here
from dlpack_doctor.subject import Subject, of_factory
from dlpack_doctor.verdict import CONSUMER, PRODUCER, Result


def check_producer(factory: Callable[..., Any], *, checks: Iterable[str] | None = None) -> Findings:
    """Run all producer checks, or those named, on the arrays of a factory.

    The factory is called as `factory()`, or with a shape if it takes one argument, or with a
    shape and the name of an element type ("float32") if it takes two. Some checks need those and
    are not applicable otherwise.
    """
    name = getattr(factory, "__name__", type(factory).__name__)
    return _run(of_factory(factory, name), PRODUCER, checks)


def check_consumer(
    from_dlpack: Callable[[Any], Any],
    *,
    values: Callable[[Any], list[Any]] | None = None,
    pointer: Callable[[Any], int] | None = None,
    checks: Iterable[str] | None = None,
) -> Findings:
    """Run all consumer checks, or those named, on a function that imports any producer.

    What it makes is looked into through its own `__dlpack__`, unless `values` (its numbers,
    nested or flat) and `pointer` (the address of the first) are given.
    """
    name = getattr(from_dlpack, "__name__", type(from_dlpack).__name__)
    return _run(Subject(name, take=from_dlpack, look=values, address=pointer), CONSUMER, checks)


def _run(subject: Subject, side: str, checks: Iterable[str] | None) -> Findings:
    findings = here()
    findings.subjects.append(Examined(subject.name, subject.version))
    chosen = None if checks is None else set(checks)
    known = registry.all_checks(side)
    unknown = (chosen or set()) - {check.id for check in known}
    if unknown:
        raise ValueError(f"no such check: {', '.join(sorted(unknown))}")
    asked = [check for check in known if chosen is None or check.id in chosen]
    # The checks collect often, and the caller's own objects are many.
    gc.freeze()
    try:
        findings.results = [
            Result(check.id, subject.name, registry.run(check, subject)) for check in asked
        ]
    finally:
        gc.unfreeze()
    return findings
