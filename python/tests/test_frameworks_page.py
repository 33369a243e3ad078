"""docs/frameworks.md names tests that exist; whether they show the behaviour is for reviewers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "frameworks.md"
FOLDERS = {
    ".py": [ROOT / "python/tests", ROOT / "doctor/tests"],
    ".rs": [
        ROOT / "crates/dlbridge/tests/it",
        ROOT / "crates/dlbridge/tests",
        ROOT / "crates/dlbridge-pyo3/tests",
    ],
}
ROWS = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
ROWS = [row for row in ROWS if not row.startswith("| ---") and "| test |" not in row]


def named(text: str) -> list[tuple[str, str]]:
    return re.findall(r"`([\w/]+)::(\w+)`", text)


def sources(file: str) -> list[str]:
    places = [folder / (file + ending) for ending, at in FOLDERS.items() for folder in at]
    return [place.read_text() for place in places if place.exists()]


def test_the_page_has_rows():
    assert len(ROWS) > 100


@pytest.mark.parametrize("file, test", sorted(set(named(PAGE.read_text()))))
def test_a_test_that_the_page_names_exists(file, test):
    definition = re.compile(rf"^\s*(def|fn) {test}\(", re.MULTILINE)
    assert any(definition.search(source) for source in sources(file)), f"{file} has no {test}"


@pytest.mark.parametrize("row", ROWS)
def test_each_row_names_a_test_or_says_why_there_is_none(row):
    shown = row.rstrip("| ").rsplit(" | ", 1)[-1]
    assert named(shown) or shown.startswith("none: "), shown
