"""Arrays that DLPack cannot describe: whether their export is refused."""

from __future__ import annotations

from dlpack_doctor import reproduce
from dlpack_doctor.export import attempt
from dlpack_doctor.registry import check
from dlpack_doctor.subject import Odd, Subject, flat
from dlpack_doctor.verdict import (
    NotApplicable,
    Outcome,
    combine,
    failed,
    passed,
    warned,
)


@check(
    "producer.refusal",
    "array API 2022.12, __dlpack__: BufferError when the data cannot be exported",
)
def refusal(subject: Subject) -> Outcome:
    """Arrays that DLPack cannot describe are refused with BufferError."""
    reproduce.note(setup=subject.setup)
    outcomes = [outcome for one in subject.odd() if (outcome := _one(one, subject)) is not None]
    if not outcomes:
        raise NotApplicable("the doctor knows no array of it that cannot be exported")
    return combine(*outcomes)


def _one(odd: Odd, subject: Subject) -> Outcome | None:
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
    if odd.numbers is None:
        return warned(f"{odd.label}: exported")
    found, said = answer.values(), subject.look and flat(subject.look(array))
    # Wrong numbers that the framework itself shows are no fault of the export.
    if found not in (list(odd.numbers), said):
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
