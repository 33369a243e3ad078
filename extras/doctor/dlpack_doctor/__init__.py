"""A conformance suite for DLPack: `dlpack-doctor`, or `python -m dlpack_doctor`.

A framework's own tests call `check_producer` and `check_consumer`, or run
`pytest -p dlpack_doctor.pytest_plugin --dlpack module:factory`. A factory is `make()`,
`make(shape)` or `make(shape, dtype)`, with a tuple and a name such as "float32".

>>> import numpy as np
>>> from dlpack_doctor import check_consumer, check_producer
>>> check_producer(lambda: np.zeros(3, "float32")).raise_for_failures()
>>> check_consumer(np.from_dlpack).raise_for_failures()
"""

from dlpack_doctor.api import check_consumer, check_producer
from dlpack_doctor.findings import Findings
from dlpack_doctor.verdict import Outcome, Result, Verdict

__version__ = "0.1.0"

__all__ = ["Findings", "Outcome", "Result", "Verdict", "check_consumer", "check_producer"]
