"""Arrays that DLPack cannot describe: whether their export is refused."""

from __future__ import annotations

from dlpack_doctor import reproduce
from dlpack_doctor.export import Export, attempt
from dlpack_doctor.subject import Odd, Subject
from dlpack_doctor.verdict import (
    NotApplicable,
    Outcome,
    combine,
    failed,
    passed,
    warned,
)


def each(subject: Subject) -> Outcome:
    """What becomes of all of them."""
    reproduce.note(setup=subject.setup)
    outcomes = [outcome for one in subject.odd() if (outcome := _one(one)) is not None]
    if not outcomes:
        raise NotApplicable("the doctor knows no array of it that cannot be exported")
    return combine(*outcomes)


def _one(odd: Odd) -> Outcome | None:
    reproduce.note(array=odd.code, count=len(odd.numbers or (None,)))
    try:
        array = odd.make()
    except Exception:
        # It cannot be made, so it cannot be exported either.
        return None
    answer = attempt(array, max_version=(1, 3))
    if isinstance(answer, TypeError):
        answer = attempt(array)
    if isinstance(answer, BufferError):
        return passed(odd.label)
    if isinstance(answer, Exception):
        return warned(f"{odd.label}: {type(answer).__name__}, not BufferError")
    return _exported(odd, answer)


def _exported(odd: Odd, export: Export) -> Outcome:
    if odd.numbers is None:
        return warned(f"{odd.label}: exported")
    found = export.values()
    if found != list(odd.numbers):
        return failed(f"{odd.label}: exported as {found}, not {list(odd.numbers)}")
    return passed(f"{odd.label}: exported, with the right numbers")


def exported_by(subject: Subject, export: object) -> list[str]:
    """The labels of those that a function exports although `__dlpack__` refuses them."""
    assert callable(export)
    found = []
    for odd in subject.odd():
        try:
            array = odd.make()
        except Exception:
            continue
        if isinstance(attempt(array, max_version=(1, 3)), Exception):
            try:
                export(array)
            except Exception:
                continue
            found.append(odd.label)
    return found
