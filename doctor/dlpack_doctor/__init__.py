"""Whether an array type really speaks DLPack: `python -m dlbridge doctor`.

A framework's own tests call `check_producer` and `check_consumer`, or run pytest with
`--dlpack module:factory`.

>>> import dlbridge
>>> from dlbridge.doctor import check_consumer, check_producer
>>> check_producer(lambda: dlbridge.zeros(3, dtype="float32")).raise_for_failures()
>>> check_consumer(dlbridge.from_dlpack).raise_for_failures()
"""

from dlbridge.doctor.api import check_consumer, check_producer
from dlbridge.doctor.findings import Findings
from dlbridge.doctor.verdict import Outcome, Result, Verdict

__all__ = ["Findings", "Outcome", "Result", "Verdict", "check_consumer", "check_producer"]
