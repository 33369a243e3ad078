"""How long a consumer takes. Nothing here can fail."""

from __future__ import annotations

import dlbridge
from dlbridge._timing import nanoseconds
from dlbridge.doctor.registry import check
from dlbridge.doctor.subject import Subject
from dlbridge.doctor.timing import show
from dlbridge.doctor.verdict import NotApplicable, Outcome, describe, passed

IMPORT = "from_dlpack"


@check(
    "consumer.speed",
    "the time to take a dlbridge.Tensor and let it go",
    clause="not in the standard",
)
def speed(subject: Subject) -> Outcome:
    tensor = dlbridge.zeros(subject.shape, dtype="float32")
    try:
        subject.taken(tensor)
    except Exception as error:
        raise NotApplicable(f"does not take it ({describe(error)})") from None
    time = nanoseconds(lambda: subject.taken(tensor))
    return passed(show(time), {IMPORT: time})
