"""Runs tasks in child processes, so that a crash or a hang costs one cell and not the run.

What the tasks do belongs to `worker`. Invariant: every task gets exactly one answer.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlpack_doctor.findings import outcome_of
from dlpack_doctor.verdict import Outcome, Verdict

Task = tuple[str, str, str]
LOAD_SECONDS, TASK_SECONDS = 180.0, 30.0
_HERE = str(Path(__file__).parents[1])
_WORKER = "from dlpack_doctor.worker import main; main()"
HUNG = "hung"


@dataclass(frozen=True)
class Answer:
    """The answer to a task."""

    task: Task
    outcome: Outcome | None
    """None if the subject could not be used at all."""
    problem: str = ""


class Runner:
    """Runs lists of tasks. `notice` is called with the name of each check."""

    def __init__(
        self,
        notice: Callable[[str], None] = lambda _text: None,
        task_seconds: float = TASK_SECONDS,
    ) -> None:
        self._notice = notice
        self._seconds = task_seconds
        self.versions: dict[str, str] = {}
        """Of the subjects that were loaded."""

    def run(self, tasks: list[Task]) -> Iterator[Answer]:
        """The answers, in the order of the tasks."""
        left = list(enumerate(tasks))
        self._again: set[int] = set()
        while left:
            child = _Child([[number, list(task)] for number, task in left])
            try:
                answered = yield from self._listen(child, dict(left))
            finally:
                child.stop()
            left = [(number, task) for number, task in left if number not in answered]

    def _listen(self, child: _Child, tasks: dict[int, Task]) -> Generator[Answer, None, set[int]]:
        answered: set[int] = set()
        current: int | None = None
        doing, seconds, program = "starting", LOAD_SECONDS, ""
        while len(answered) < len(tasks):
            message = child.next(seconds)
            if isinstance(message, str):
                # The child is gone, or hangs: the task that it was at, or was about to begin.
                at = min(tasks.keys() - answered) if current is None else current
                if message.startswith(HUNG) and at not in self._again:
                    # A busy machine looks the same, so it is tried once more, with more time.
                    self._again.add(at)
                    self._seconds *= 2
                    return answered
                during = "" if current is not None else f" while {doing}"
                program = program.replace("# this call", f"# {message}")
                outcome = Outcome(Verdict.FAIL, f"{message}{during}", reproducer=program)
                yield Answer(tasks[at], outcome)
                return answered | {at}
            number = message.get("number", -1)
            match message["kind"]:
                case "load":
                    doing, seconds = f"importing {message['name']}", LOAD_SECONDS
                    self._notice(doing)
                case "loaded":
                    self.versions[message["name"]] = message["version"]
                case "start":
                    current, seconds, program = number, self._seconds, ""
                    self._notice(" ".join(tasks[number][1:]))
                case "doing":
                    program = message["program"]
                case "done" | "unusable":
                    answered.add(number)
                    current, doing = None, "between tasks"
                    yield _answer(tasks[number], message)
        return answered


def _answer(task: Task, message: dict[str, Any]) -> Answer:
    if message["kind"] == "unusable":
        return Answer(task, None, message["problem"])
    return Answer(task, outcome_of(message))


class _Child:
    """A worker process and its messages."""

    def __init__(self, tasks: list[list[Any]]) -> None:
        self._process = subprocess.Popen(
            # By its own path: a child does not inherit `sys.path`, which the job has.
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {_HERE!r}); {_WORKER}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONFAULTHANDLER": ""},
        )
        assert self._process.stdin is not None
        try:
            json.dump({"path": sys.path, "tasks": tasks}, self._process.stdin)
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def next(self, seconds: float) -> dict[str, Any] | str:
        """The next message, or in words how the process ended."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            self._process.kill()
            return f"{HUNG} (over {seconds:.0f} s)"
        if line is None:
            return _end(self._process.wait())
        message: dict[str, Any] = json.loads(line)
        return message

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        # A process that a framework left behind may hold the pipe open.
        self._reader.join(timeout=1)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()


def _end(code: int) -> str:
    if code >= 0:
        return f"crashed (exit code {code})"
    try:
        return f"crashed ({signal.Signals(-code).name})"
    except ValueError:
        return f"crashed (signal {-code})"
