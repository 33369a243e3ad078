"""A pytest plugin: `pytest -p dlpack_doctor.pytest_plugin --dlpack mylib:make` adds a test for
each check.

A failure fails the test, a surprise warns, and what does not apply is skipped. The checks run
in child processes, all at the first test of their subject. Nothing is imported before then.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dlpack_doctor.findings import Findings
    from dlpack_doctor.verdict import Outcome


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--dlpack`."""
    parser.getgroup("dlpack").addoption(
        "--dlpack",
        action="append",
        default=[],
        metavar="MODULE:FACTORY",
        help="check the arrays of a factory, or a module:from_dlpack, against DLPack",
    )


class DlpackWarning(UserWarning):
    """DLPack allows it, but users will meet it."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add the tests that `--dlpack` asks for, so that `-k` chooses among them, too."""
    asked: list[str] = config.getoption("--dlpack")
    if not asked:
        return
    from dlpack_doctor import registry
    from dlpack_doctor.names import Unknown, expand

    try:
        names = [found for given in asked for found in expand(given)]
    except Unknown as error:
        raise pytest.UsageError(str(error)) from None
    for name in names:
        run = _Run(name)
        for check in registry.all_checks():
            item = CheckItem.from_parent(session, name=f"{name}::{check.id}")
            item.run, item.check = run, check.id
            items.append(item)


class _Run:
    """The checks of one subject, run once for all of its tests."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._findings: Findings | None = None

    def outcome(self, check: str) -> Outcome:
        """What a check found."""
        if self._findings is None:
            from dlpack_doctor.examine import examine

            self._findings = examine([self._name], pairs=False)
        problem = self._findings.subjects[0].problem
        if problem:
            raise CheckFailed(f"{self._name} cannot be examined: {problem}")
        outcome = self._findings.of(check, self._findings.subjects[0].name)
        assert outcome is not None
        return outcome


class CheckFailed(Exception):
    """A check found a failure; the message is its evidence."""


class CheckItem(pytest.Item):
    """One check as a test."""

    run: _Run
    check: str

    def runtest(self) -> None:
        """Fail, warn, skip or pass as the check did."""
        from dlpack_doctor import registry
        from dlpack_doctor.verdict import Verdict

        outcome = self.run.outcome(self.check)
        match outcome.verdict:
            case Verdict.FAIL:
                clause = {check.id: check.clause for check in registry.all_checks()}[self.check]
                raise CheckFailed(f"{outcome.evidence}\n{clause}")
            case Verdict.WARN:
                warnings.warn(f"{self.check}: {outcome.evidence}", DlpackWarning, stacklevel=2)
            case Verdict.NOT_APPLICABLE:
                pytest.skip(outcome.evidence)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """The evidence instead of a traceback through this file."""
        if isinstance(excinfo.value, CheckFailed):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Any, None, str]:
        """Where it stands: nowhere, but it has a name."""
        return self.path, None, self.name
