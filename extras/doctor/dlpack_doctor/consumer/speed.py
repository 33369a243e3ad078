"""The time of an import. Nothing here can fail."""

from __future__ import annotations

import importlib
from typing import Any

from dlpack_doctor.clock import COPY, copy_of_a_mebibyte, nanoseconds, show
from dlpack_doctor.frameworks import is_there
from dlpack_doctor.registry import check
from dlpack_doctor.subject import Subject
from dlpack_doctor.verdict import NotApplicable, Outcome, describe, passed

IMPORT = "from_dlpack"


@check("consumer.speed", "not in the standard")
def speed(subject: Subject) -> Outcome:
    """The time to import an array and drop it."""
    if is_there("numpy"):
        np: Any = importlib.import_module("numpy")
        tensor, whose = np.zeros(subject.shape, "float32"), "a NumPy array"
    else:
        tensor, whose = subject.array(), "an array of its own"
    try:
        subject.taken(tensor)
    except Exception as error:
        raise NotApplicable(f"does not import it ({describe(error)})") from None
    take = subject.importer()
    time = nanoseconds(lambda: take(tensor))
    copy = copy_of_a_mebibyte()
    text = f"{show(time)} for {whose}; a copy of 1 MiB: {show(copy)}"
    return passed(text, {IMPORT: time, COPY: copy})
