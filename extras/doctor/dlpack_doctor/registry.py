"""All checks, in the order in which they run and are shown.

What they do belongs to `producer` and `consumer`. Invariant: an id stands for one check.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from dlpack_doctor import reproduce
from dlpack_doctor.explained import MEANS, SHOWS
from dlpack_doctor.export import drop_capsules
from dlpack_doctor.verdict import (
    CONSUMER,
    PRODUCER,
    Check,
    NotApplicable,
    Outcome,
    Verdict,
    describe,
    failed,
)

_checks: dict[str, Check] = {}
_MODULES = {
    PRODUCER: "protocol versions descriptor layouts odd access lifetime keeping requests exchange "
    "speed",
    CONSUMER: "protocol layouts elements lifetime errors speed",
}

Function = Callable[[Any], Outcome]


def check(identity: str, clause: str, summary: str = "") -> Callable[[Function], Function]:
    """Register a function as the check of that id; the part before the dot is the side.

    Its docstring is the summary, unless one is passed.
    """
    side = identity.split(".")[0]
    assert side in (PRODUCER, CONSUMER), identity
    assert identity not in _checks, identity

    def register(run: Function) -> Function:
        means, shows = MEANS[identity], SHOWS.get(identity, "")
        does = summary or (run.__doc__ or "").strip()
        _checks[identity] = Check(identity, side, does, clause, means, shows, run)
        return run

    return register


def all_checks(side: str | None = None) -> list[Check]:
    """Every check, or those of one side."""
    for package, modules in _MODULES.items():
        for module in modules.split():
            importlib.import_module(f"dlpack_doctor.{package}.{module}")
    return [check for check in _checks.values() if side in (None, check.side)]


def run(check: Check, context: object) -> Outcome:
    """Run a check in this process. An exception that it does not expect is a failure."""
    return guarded(lambda: check.run(context), check.shows)


def guarded(examine: Callable[[], Outcome], shows: str = "") -> Outcome:
    """The outcome of a function; an unexpected exception is a failure."""
    reproduce.begin(shows)
    try:
        return examine()
    except NotApplicable as reason:
        return Outcome(Verdict.NOT_APPLICABLE, str(reason))
    except Exception as error:
        return failed(f"unexpected {describe(error)}")
    finally:
        drop_capsules()
