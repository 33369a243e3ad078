"""One producer's array in one consumer: the numbers, the memory, and the release."""

from __future__ import annotations

import gc
from typing import Any

from dlpack_doctor import elements, memory, reproduce
from dlpack_doctor.export import Counter, Export, best
from dlpack_doctor.subject import Array, Subject
from dlpack_doctor.verdict import NotApplicable, Outcome, describe, failed, passed, warned

SAME, COPIED, REFUSED = "same memory", "copied", "refused"
ARRAYS = 32
"""So many are imported: some consumers copy those that their vector instructions do not like."""
SOME = "some arrays, those whose address is not a multiple of what the consumer asks for"


class Relay:
    """Passes an array's capsules on, and counts how often each deleter is called."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self.counters: list[Counter] = []
        self.pointer = 0

    def __dlpack__(self, **keywords: Any) -> Any:
        capsule = self._array.__dlpack__(**keywords)
        export = Export(capsule)
        self.counters.append(export.watch())
        self.pointer = export.pointer
        export.drop()
        return capsule

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def examine(producer: Subject, consumer: Subject) -> Outcome:
    """Import arrays 0, 1, 2, ... of the producer into the consumer."""
    shape = (6,) if 1 in (len(producer.shape), len(consumer.shape)) else producer.shape
    asked = shape if producer.any_shape else None
    arrays = [producer.array(asked) for _ in range(ARRAYS)]
    code = producer.code and producer.code(shape, "float32")
    if code and consumer.call_code:
        shown = f"x = {code}\nprint({consumer.call_code.format('x')})"
        reproduce.note(pair=f"{producer.setup}\n{consumer.setup}\n{shown}")
    copies = 0
    for array in arrays:
        export = best(array)
        expected = elements.sample("float32", 6) if producer.known else export.values()
        pointer = export.pointer
        export.drop()
        try:
            taken = consumer.taken(array)
        except NotApplicable:
            raise
        except Exception as error:
            # It may be exported once only, and was looked at above.
            again = Relay(producer.array(asked))
            try:
                taken = consumer.taken(again)
            except Exception:
                return warned(f"{REFUSED}: {describe(error)}")
            pointer = again.pointer
        found = consumer.values(taken)
        if found != expected:
            return failed(f"holds {found[:6]}, not {expected[:6]}")
        copies += consumer.pointer(taken) != pointer
        del taken
    counts = _releases(arrays[0], consumer)
    if any(count != 1 for count in counts):
        return failed(f"released {max(counts) if max(counts) > 1 else 0} times")
    if not copies:
        return passed(SAME)
    return warned(COPIED if copies == ARRAYS else f"{COPIED}: {SOME}")


def _releases(array: Array, consumer: Subject) -> list[int]:
    """How often the deleter of each capsule is called; empty where that cannot be counted."""
    relay = Relay(array)
    try:
        taken = consumer.taken(relay)
    except Exception:
        return []
    del taken
    gc.collect()
    memory.settle(lambda: all(counter.calls for counter in relay.counters), seconds=1)
    return [counter.calls for counter in relay.counters if counter.original]
