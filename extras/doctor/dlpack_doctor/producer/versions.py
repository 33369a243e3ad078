"""The ABI for each `max_version`, and the name of its capsule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dlpack_doctor.export import Export, NoCapsule, ask, attempt
from dlpack_doctor.registry import check
from dlpack_doctor.subject import Subject
from dlpack_doctor.verdict import (
    NotApplicable,
    Outcome,
    combine,
    describe,
    failed,
    passed,
    warned,
)

MAX_VERSION = "array API 2023.12, __dlpack__, max_version: "


def _answer(subject: Subject, **keywords: Any) -> Export | Exception:
    array = subject.array()
    answer = attempt(array, **keywords)
    if isinstance(answer, TypeError):
        raise NotApplicable("max_version is not known")
    return answer


def _old(answer: Export | Exception, asked: str) -> Outcome:
    if isinstance(answer, BufferError):
        return passed(f"{asked}: BufferError, the legacy ABI is not exported")
    if isinstance(answer, Exception):
        return failed(f"{asked}: {describe(answer)}")
    if answer.versioned:
        return warned(f"{asked}: exports {answer.kind}, which such a consumer cannot read")
    return passed(f"{asked}: {answer.kind}")


@check(
    "producer.version-unasked",
    MAX_VERSION + "if None, keep the 0.x form; it is okay to raise BufferError",
)
def unasked(subject: Subject) -> Outcome:
    """Without max_version: the legacy ABI, or BufferError."""
    array = subject.array()
    return _old(attempt(array), "none")


@check(
    "producer.version-0.8", MAX_VERSION + "too old a consumer gets the older form or BufferError"
)
def before_one(subject: Subject) -> Outcome:
    """max_version=(0, 8): the legacy ABI, or BufferError."""
    return _old(_answer(subject, max_version=(0, 8)), "(0, 8)")


@check(
    "producer.version-1",
    MAX_VERSION + "a consumer of the same major version gets the producer's own",
)
def one(subject: Subject) -> Outcome:
    """max_version=(1, 0), (1, 3) or (2, 0): a versioned capsule of major version 1."""
    asked = [(1, 0), (1, 3), (2, 0)]
    outcomes = [_new(_answer(subject, max_version=version), version) for version in asked]
    return combine(*outcomes, *_with_more(subject))


def _with_more(subject: Subject) -> Iterator[Outcome]:
    """Whether the ABI stays the same where a device or a copy is asked for as well."""
    array = subject.array()
    plain = attempt(array, max_version=(1, 3))
    if isinstance(plain, Exception) or not plain.versioned:
        return
    words: list[dict[str, Any]] = [{"dl_device": plain.device}, {"copy": False}, {"copy": True}]
    for more in (*words, words[0] | words[1], words[0] | words[2]):
        answer = attempt(array, max_version=(1, 3), **more)
        if isinstance(answer, Export) and not answer.versioned:
            yield failed(f"exports the legacy ABI where {' and '.join(more)} is passed as well")


def _new(answer: Export | Exception, asked: tuple[int, int]) -> Outcome:
    if isinstance(answer, Exception):
        return failed(f"{asked}: {describe(answer)}")
    if not answer.versioned:
        return warned(f"{asked}: exports the legacy ABI nevertheless")
    if answer.raw.major != 1:
        return failed(f"{asked}: {answer.kind}, but there is no major version 2")
    return passed(f"{asked}: {answer.kind}")


@check("producer.header", "DLPack 1.3, DLPackVersion: the version that the producer was built with")
def header(subject: Subject) -> Outcome:
    """A versioned header states a version that exists."""
    array = subject.array()
    answer = attempt(array, max_version=(1, 3))
    if isinstance(answer, Exception) or answer.version is None:
        raise NotApplicable("exports no versioned capsule")
    major, minor = answer.version
    if major != 1 or minor > 20:
        return failed(f"the header says {major}.{minor}")
    return passed(f"{major}.{minor}")


@check("producer.capsule-name", "DLPack, Python specification: the producer names the capsule")
def capsule_name(subject: Subject) -> Outcome:
    """A capsule is named dltensor or dltensor_versioned."""
    array = subject.array()
    seen: list[str] = []
    for keywords in ({}, {"max_version": (1, 3)}):
        try:
            seen.append(ask(array, **keywords).name.decode())
        except NoCapsule as error:
            return failed(f"returns {error}")
        except Exception:
            continue
    if not seen:
        raise NotApplicable("returns no capsule")
    return passed(", ".join(dict.fromkeys(seen)))
