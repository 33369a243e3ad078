"""The results of a run: shown by `report`, and saved as JSON."""

from __future__ import annotations

import datetime
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dlpack_doctor.verdict import Outcome, Result, Verdict


@dataclass(frozen=True)
class Examined:
    """A subject of a run."""

    name: str
    version: str = ""
    problem: str = ""
    """Why it could not be examined, if it could not."""


@dataclass(frozen=True)
class Pair:
    """The outcome of importing a producer's arrays into a consumer."""

    producer: str
    consumer: str
    outcome: Outcome


@dataclass
class Findings:
    """One run."""

    environments: list[str] = field(default_factory=list)
    date: str = ""
    subjects: list[Examined] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)

    @property
    def failures(self) -> list[Result]:
        """The results that are failures."""
        return [result for result in self.results if result.verdict is Verdict.FAIL]

    @property
    def ok(self) -> bool:
        """Whether nothing failed, no pair either."""
        bad = any(pair.outcome.verdict is Verdict.FAIL for pair in self.pairs)
        return not self.failures and not bad

    def of(self, check: str, subject: str) -> Outcome | None:
        """What a check found about a subject."""
        return self._cells().get((check, subject))

    def _cells(self) -> dict[tuple[str, str], Outcome]:
        return {(result.check, result.subject): result.outcome for result in self.results}

    def raise_for_failures(self) -> None:
        """Raise an AssertionError that names every failure; for a framework's own tests."""
        lines = [f"{result.check}: {result.outcome.evidence}" for result in self.failures]
        if lines:
            raise AssertionError("\n".join([f"{len(lines)} checks failed", *lines]))

    def to_json(self) -> str:
        """All of it as JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))


def here() -> Findings:
    """No findings yet, in this environment."""
    environment = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    return Findings([environment], datetime.date.today().isoformat())


def outcome_of(row: Mapping[str, Any]) -> Outcome:
    """An outcome that was written as JSON."""
    return Outcome(
        Verdict(row["verdict"]), row["evidence"], row.get("times", {}), row.get("reproducer", "")
    )


def from_json(text: str) -> Findings:
    """What `to_json` wrote."""
    data = json.loads(text)
    return Findings(
        data["environments"],
        data["date"],
        [Examined(**row) for row in data["subjects"]],
        [Result(r["check"], r["subject"], outcome_of(r["outcome"])) for r in data["results"]],
        [
            Pair(row["producer"], row["consumer"], outcome_of(row["outcome"]))
            for row in data["pairs"]
        ],
    )
