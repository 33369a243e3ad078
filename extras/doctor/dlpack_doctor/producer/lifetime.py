"""The lifetime of an export: capsules, deleters, owners."""

from __future__ import annotations

import gc
import sys
from typing import Any

from dlpack_doctor import memory, reproduce
from dlpack_doctor.export import Export, attempt, best, both, call_on_foreign_thread, drop_capsules
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

SPECIFICATION = "DLPack, Python specification: "
OTHERWISE = "released without the deleter"


@check("producer.deleter", "DLPack 1.3, deleter: may be NULL if there is no reasonable one")
def deleter(subject: Subject) -> Outcome:
    """The descriptor has a deleter."""
    array = subject.array()
    outcomes = [
        passed() if export.raw.deleter else warned(f"none in {export.kind}; some consumers crash")
        for export in both(array)
    ]
    return combine(*outcomes)


@check("producer.unconsumed", SPECIFICATION + "the capsule's destructor calls the deleter")
def unconsumed(subject: Subject) -> Outcome:
    """A capsule that is not consumed releases its tensor once."""
    outcomes = []
    for keywords in _forms(subject):
        array = subject.array()
        answer = attempt(array, **keywords)
        if isinstance(answer, Exception) or not answer.raw.deleter:
            continue
        export, answer = answer, None
        words = " and ".join(name for name in keywords if name != "max_version")
        counter, kind = export.watch(), export.kind + (f", asked for with {words}" if words else "")
        # An array that keeps its capsules has a fault of another name.
        del array
        drop_capsules()
        export.drop()
        gc.collect()
        if counter.calls == 1:
            outcomes.append(passed("the deleter is called once"))
        elif counter.calls > 1:
            outcomes.append(failed(f"{kind}: the deleter is called {counter.calls} times"))
        elif not words:
            outcomes.append(_released_otherwise(subject, keywords, kind))
        elif not any(outcome.evidence == OTHERWISE for outcome in outcomes):
            outcomes.append(failed(f"{kind}: dropped, it does not call the deleter"))
    if not outcomes:
        raise NotApplicable("there is no deleter")
    return combine(*outcomes)


def _forms(subject: Subject) -> list[dict[str, Any]]:
    """Each ABI, and what a producer may make on a path of its own."""
    plain = [export.keywords for export in both(subject.array())]
    device = best(subject.array()).device
    return [*plain, *(plain[-1] | more for more in ({"copy": True}, {"dl_device": device}))]


def _released_otherwise(subject: Subject, keywords: dict[str, Any], kind: str) -> Outcome:
    """A destructor may release by other means than the deleter."""
    text = f"{kind}: dropped, it does not call the deleter"

    def drop() -> None:
        array = subject.array((memory.ELEMENTS,))
        Export(array.__dlpack__(**keywords)).drop()

    if subject.any_shape:
        leaks = memory.leaks(drop)
        if leaks is not None:
            return failed(text) if leaks else passed(OTHERWISE)
    array = subject.array()
    before = memory.references(array)
    Export(array.__dlpack__(**keywords)).drop()
    return failed(text) if memory.references(array) > before else warned(text)


@check("producer.consumed", SPECIFICATION + "a renamed capsule is left alone by its destructor")
def consumed(subject: Subject) -> Outcome:
    """A consumed capsule does not call the deleter again."""
    outcomes = []
    for export in both(subject.array()):
        if not export.raw.deleter:
            continue
        counter, kind = export.watch(), export.kind
        taken = export.take()
        gc.collect()
        before = counter.calls
        taken.release()
        gc.collect()
        good = before == 0 and counter.calls == 1
        outcomes.append(
            passed() if good else failed(f"{kind}: the deleter is called {counter.calls} times")
        )
    if not outcomes:
        raise NotApplicable("there is no deleter")
    return combine(*outcomes)


@check("producer.released", "DLPack 1.3, deleter: releases what manager_ctx holds")
def released(subject: Subject) -> Outcome:
    """After the deleter nothing keeps the array."""
    if not best(subject.array()).raw.deleter:
        raise NotApplicable("there is no deleter")
    array = subject.array()
    before = memory.references(array)
    for export in both(array):
        export.take().release()
    del export
    if memory.references(array) > before:
        return failed("the array's references are not released")
    weak = memory.weak(array)
    del array
    if weak is not None and not memory.settle(lambda: weak() is None):
        return failed("the array is still alive")
    return _memory_back(subject)


def _memory_back(subject: Subject) -> Outcome:
    if not subject.any_shape:
        return passed()

    def export_and_release() -> None:
        best(subject.array((memory.ELEMENTS,))).take().release()

    if memory.leaks(export_and_release):
        total = memory.ROUNDS * memory.BYTES >> 20
        return failed(f"most of {total} MiB stay, each time that they are exported and released")
    return passed()


@check("producer.two-exports", "DLPack, Python specification: both arrays may continue to be used")
def two_exports(subject: Subject) -> Outcome:
    """Exports of one array do not depend on each other."""
    array = subject.array()
    one, other = best(array).take(), best(array).take()
    expected = other.export.values()
    one.release()
    found = other.export.values()
    other.release()
    if found != expected:
        return failed(f"the second holds {found[:6]} after the first went")
    return passed()


@check("producer.deleter-thread", SPECIFICATION + "the deleter must acquire the GIL itself")
def deleter_thread(subject: Subject) -> Outcome:
    """The deleter may be called on a foreign thread, without the GIL."""
    rounds = 50
    array = subject.array()
    best(array).take().release()
    before = memory.references(array)
    best(array).take().release()
    kept = memory.references(array) > before
    for _ in range(rounds):
        for export in both(array):
            if not export.raw.deleter:
                raise NotApplicable("there is no deleter")
            taken = export.take()
            assert taken.deleter is not None
            call_on_foreign_thread(taken.deleter, export.address)
    # What no thread releases is the fault of `producer.released`.
    if not kept and not memory.settle(lambda: memory.references(array) - before < rounds):
        return failed("the array's references are not released there")
    return passed(f"{rounds} times")


class _InFlight(Exception):
    """The exception that must survive."""


def _raise() -> object:
    raise _InFlight


@check("producer.exception", SPECIFICATION + "the destructor keeps an exception that is in flight")
def exception(subject: Subject) -> Outcome:
    """An exception in flight survives the destructor of a capsule."""
    if reproduce.announce is None:
        raise NotApplicable("it may end the process, so only a child process is asked")
    array, lost = subject.array(), []
    hook, sys.unraisablehook = sys.unraisablehook, lambda found: lost.append(found.exc_value)
    try:
        for export in both(array):
            keywords = export.keywords
            drop_capsules()
            export.drop()
            try:
                # The stack drops the capsule while the exception looks for its handler.
                (array.__dlpack__(**keywords), _raise())
            except _InFlight:
                continue
            except Exception as error:
                lost.append(error)
    finally:
        sys.unraisablehook = hook
    return failed(f"it becomes {describe(lost[0] or _InFlight())}") if lost else passed()
