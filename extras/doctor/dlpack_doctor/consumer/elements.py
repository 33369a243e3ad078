"""Element types: each one imported as itself, or refused."""

from __future__ import annotations

from dlpack_doctor import elements
from dlpack_doctor.consumer.offer import Offer, refuses
from dlpack_doctor.registry import check
from dlpack_doctor.subject import Subject
from dlpack_doctor.verdict import Outcome, Verdict, combine, describe, failed, passed, warned

UNKNOWN = (200, 32, 1)


@check("consumer.dtypes", "DLPack 1.3, DLDataType")
def dtypes(subject: Subject) -> Outcome:
    """Every element type is imported as itself, or refused."""
    taken, refused, outcomes = [], [], []
    for name in elements.DTYPES:
        offer = Offer(subject, dtype=name, numbers=elements.telling(name, 32))
        if offer.refused:
            refused.append(name)
            continue
        outcome = _one(subject, name, offer)
        outcomes.append(outcome)
        if outcome.verdict is Verdict.PASS:
            taken.append(name)
    worst = combine(*outcomes)
    if worst.verdict is not Verdict.PASS:
        return worst
    return passed(
        f"imports {', '.join(taken)}" + (f"; not {', '.join(refused)}" if refused else "")
    )


def _one(subject: Subject, name: str, offer: Offer) -> Outcome:
    triple = subject.dtype_of(offer.array)
    if triple is not None and triple != elements.DTYPES[name]:
        text = f"{name} becomes {elements.name_of(triple)}"
        same_kind = triple[0] == elements.DTYPES[name][0]
        return warned(text) if same_kind and triple[1] >= elements.DTYPES[name][1] else failed(text)
    try:
        found = subject.values(offer.array)
    except Exception as error:
        if subject.look is None:
            return passed()
        return warned(f"{name} is imported, but reading it is {describe(error)}")
    expected = offer.tensor.values
    return passed() if found == expected else failed(f"{name} holds {found[:3]}")


@check(
    "consumer.unknown-dtype", "DLPack 1.3, DLPackVersion: usable if all fields can be interpreted"
)
def unknown_dtype(subject: Subject) -> Outcome:
    """An unknown element type is refused, or carried as it is."""
    return refuses(subject, lambda offer: _carried(subject, offer, UNKNOWN), dtype=UNKNOWN)


@check("consumer.lanes", "DLPack 1.3, DLDataType.lanes")
def lanes(subject: Subject) -> Outcome:
    """A vector type (2 lanes) is refused, or kept whole."""
    return refuses(subject, lambda offer: _carried(subject, offer, (2, 32, 2)), dtype=(2, 32, 2))


def _carried(subject: Subject, offer: Offer, triple: tuple[int, int, int]) -> Outcome:
    found = subject.dtype_of(offer.array)
    if found == triple:
        return passed("carried as it is")
    shape = tuple(getattr(offer.array, "shape", ()))
    if triple[2] > 1 and shape == (*offer.tensor.shape, triple[2]):
        return passed("the lanes are one more axis")
    if found is None:
        return warned("imported; its element type cannot be read")
    return failed(f"imported as {elements.name_of(found)}")
