"""The child process: runs tasks one after the other, and says before each what it begins.

It may die at any moment; its parent (`runner`) knows then which task it was.
Invariant: what frameworks print goes to stderr, and only our lines to the pipe.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from dataclasses import asdict
from typing import Any, TextIO

from dlpack_doctor import names, pairs, registry, reproduce
from dlpack_doctor.subject import Subject
from dlpack_doctor.verdict import describe


class Worker:
    """Tasks come as lists: ["check", subject, id] or ["pair", producer, consumer]."""

    def __init__(self, pipe: TextIO) -> None:
        self._pipe = pipe
        self._subjects: dict[str, Subject] = {}
        reproduce.announce = lambda program: self.say("doing", program=program)
        self._checks = {check.id: check for check in registry.all_checks()}

    def say(self, kind: str, **fields: Any) -> None:
        """Send one line to the parent."""
        self._pipe.write(json.dumps({"kind": kind, **fields}) + "\n")
        self._pipe.flush()

    def subject(self, name: str) -> Subject:
        """A subject, imported at its first use."""
        if name not in self._subjects:
            self.say("load", name=name)
            subject = names.resolve(name)
            self._subjects[name] = subject
            # The checks collect often, and a framework's own objects are many.
            gc.freeze()
            self.say("loaded", name=name, version=subject.version)
        return self._subjects[name]

    def run(self, number: int, task: list[str]) -> None:
        """Run one task and send what it found."""
        kind, first, second = task
        wanted = [first] if kind == "check" else [first, second]
        try:
            subjects = [self.subject(name) for name in wanted]
        except Exception as error:
            self.say("unusable", number=number, problem=describe(error))
            return
        self.say("start", number=number)
        if kind == "check":
            outcome = registry.run(self._checks[second], subjects[0])
        else:
            outcome = registry.guarded(lambda: pairs.examine(*subjects))
        self.say("done", number=number, **asdict(outcome))


def main() -> None:
    """Read the job from stdin, run it."""
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job = json.load(sys.stdin)
    sys.path[:] = job["path"]
    worker = Worker(pipe)
    for number, task in job["tasks"]:
        worker.run(number, task)
    worker.say("end")
    pipe.flush()
    # What a framework does at its exit is not examined.
    os._exit(0)
