"""The factory itself: a subject without arrays fails here, once."""

from __future__ import annotations

from dlpack_doctor.registry import check
from dlpack_doctor.subject import FactoryFailed, Subject, shape_of
from dlpack_doctor.verdict import Outcome, failed, passed


@check(
    "producer.factory",
    "the factory makes an array of the requested shape",
    clause="not in the standard: factory(), factory(shape) or factory(shape, dtype)",
)
def factory(subject: Subject) -> Outcome:
    try:
        array = subject.array()
    except FactoryFailed as error:
        return failed(str(error))
    made = shape_of(array)
    if subject.any_shape and made not in (None, subject.shape):
        return failed(f"asked for shape {subject.shape}, the factory made {made}")
    return passed()
