"""Examines subjects by name, each check in a child process, and collects the findings.

The command line belongs to `cli`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlpack_doctor import registry
from dlpack_doctor.findings import Examined, Findings, Pair, here
from dlpack_doctor.runner import Runner, Task
from dlpack_doctor.verdict import Result

Notice = Callable[[str], None]


def examine(
    names: Sequence[str],
    *,
    pairs: bool = True,
    checks: Sequence[str] | None = None,
    notice: Notice = lambda _text: None,
    finished: Callable[[Findings, str], None] = lambda _findings, _subject: None,
) -> Findings:
    """Run all checks, or those named, and every pair of the subjects that can be used."""
    findings, runner = here(), Runner(notice)
    chosen = [c.id for c in registry.all_checks() if checks is None or c.id in checks]
    for name in names:
        subject = _one(runner, findings, name, chosen)
        findings.subjects.append(subject)
        finished(findings, subject.name)
    usable = [
        name for name, subject in zip(names, findings.subjects, strict=True) if not subject.problem
    ]
    if pairs and len(usable) > 1:
        tasks: list[Task] = [("pair", one, other) for one in usable for other in usable]
        for answer in runner.run(tasks):
            if answer.outcome is not None:
                findings.pairs.append(
                    Pair(label(answer.task[1]), label(answer.task[2]), answer.outcome)
                )
    return findings


def label(name: str) -> str:
    """What stands before `=`, else the name itself."""
    return name.rpartition("=")[0] or name


def _one(runner: Runner, findings: Findings, name: str, chosen: Sequence[str]) -> Examined:
    problem = ""
    for answer in runner.run([("check", name, check) for check in chosen]):
        if answer.outcome is None:
            problem = answer.problem
            break
        findings.results.append(Result(answer.task[2], label(name), answer.outcome))
    return Examined(label(name), runner.versions.get(name, ""), problem)
