"""The repository's pages: the examples in Python of the README, the guide and the examples' pages;
docs/errors.md, each line of which raises what the page says, word for word; docs/frameworks.md,
which names tests that exist (whether they show the behaviour is for reviewers).

Each example stands alone, as a reader would copy it. `cargo xtask lint` sees to it that there are
none in other pages. The examples in Rust are documentation tests of `dlbridge-pyo3`."""

from __future__ import annotations

import doctest
import importlib
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/**/*.md", "examples/**/*.md", "python/*.md"]
# What need not be installed; whatever else an example imports has to be there.
OPTIONAL = {"dask", "dlbridge_example", "duckdb", "jax", "polars", "torch"}
# Its lines raise.
ERRORS = ROOT / "docs" / "errors.md"
EXAMPLE = re.compile(r"^```(python|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """An example, and where it stands."""

    page: Path
    line: int
    kind: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = EXAMPLE.finditer(text)
    return [Block(page, text.count("\n", 0, at.start()) + 1, *at.groups()) for at in found]


FOUND = [page for pages in PAGES for page in ROOT.glob(pages) if page != ERRORS]
BLOCKS = [block for page in FOUND for block in blocks_of(page)]


@pytest.mark.slow
def test_the_pages_have_examples():
    pages = {block.page.name for block in BLOCKS}
    assert {"README.md", "extension.md", "class.md", "calls.md"} <= pages


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_an_example_works(block, capsys):
    imports = re.findall(r"^(?:>>> )?(?:import|from) ([^#\n]+)", block.code, re.MULTILINE)
    for name in re.findall(r"(?:^|, )(\w+)", "\n".join(imports), re.MULTILINE):
        if name in OPTIONAL:
            pytest.importorskip(name, reason=f"{name} is not installed")
    if block.kind == "python":
        # A line of its own for each line above, so that a failure names the page's line.
        code = compile("\n" * block.line + block.code, str(block.page), "exec")
        exec(code, {"__name__": "page"})
        assert bool(capsys.readouterr().out) == ("print(" in block.code)
    else:
        name = str(block)
        session = doctest.DocTestParser().get_doctest(block.code, {}, name, name, block.line)
        result = doctest.DocTestRunner().run(session)
        assert result.attempted > 0
        assert result.failed == 0, capsys.readouterr().out


SESSION = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The names on the page, and the modules that need not be installed.
NAMES = {
    "ctypes": "ctypes",
    "datetime": "datetime",
    "dlbridge": "dlbridge",
    "ext": "dlbridge_example",
    "ml_dtypes": "ml_dtypes",
    "np": "numpy",
    "scipy": "scipy.sparse",
    "torch": "torch",
}
MAY_BE_MISSING = {"dlbridge_example", "ml_dtypes", "scipy.sparse", "torch"}
# What a user of Python should not have to read: Rust's calls, PyO3's enums, the frames of C++.
FOREIGN = re.compile(
    r"to_contiguous|_unchecked|\w::\w|failed to extract|variant |frame #|Rust|Err\("
)


class Mistake(NamedTuple):
    """Lines of Python, the last of which raises, and the exception."""

    line: int
    code: list[str]
    raised: list[str]

    def __str__(self) -> str:
        return f"{ERRORS.name}:{self.line}"


def mistakes() -> list[Mistake]:
    text = ERRORS.read_text(encoding="utf-8")
    found: list[Mistake] = []
    for block in SESSION.finditer(text):
        first = text.count("\n", 0, block.start()) + 2
        for number, line in enumerate(block[1].splitlines(), first):
            if line.startswith(">>> "):
                if not found or found[-1].raised:
                    found.append(Mistake(number, [], []))
                found[-1].code.append(line[4:])
            elif line.startswith("... "):
                found[-1].code[-1] += "\n" + line[4:]
            elif line:
                found[-1].raised.append(line.strip())
    return found


MISTAKES = mistakes()


def test_the_page_has_sixty_mistakes_and_no_other_name():
    assert len(MISTAKES) >= 60
    code = "\n".join("\n".join(mistake.code) for mistake in MISTAKES)
    named = re.findall(r"(?<![\w.\"'])([a-z]\w*)\.", code)
    assert set(named) - {"x"} <= set(NAMES)


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_mistake_raises_what_the_page_says(mistake):
    *before, last = mistake.code
    names: dict[str, Any] = {}
    for name, module in NAMES.items():
        if re.search(rf"\b{name}\b", "\n".join(mistake.code)):
            if module in MAY_BE_MISSING:
                pytest.importorskip(module, reason=f"{module} is not installed")
            importlib.import_module(module)
            # `import scipy.sparse` binds `scipy`, the others are bound under their own name.
            names[name] = importlib.import_module(name if name == "scipy" else module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for line in before:
            exec(line, names)
        with pytest.raises(Exception) as raised:
            exec(last, names)
    found = f"{type(raised.value).__name__}: {raised.value}"
    assert found.split() == " ".join(mistake.raised).split()


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_message_is_in_the_words_of_python(mistake):
    message = " ".join(mistake.raised)
    assert not FOREIGN.search(message)
    numbers = re.search(r"expected (\d+), found (\d+)", message)
    assert numbers is None or numbers[1] != numbers[2]


FRAMEWORKS = ROOT / "docs" / "frameworks.md"
FOLDERS = {
    ".py": [ROOT / "python/tests", ROOT / "extras/doctor/tests"],
    ".rs": [
        ROOT / "crates/dlbridge/tests/it",
        ROOT / "crates/dlbridge/tests",
        ROOT / "crates/dlbridge-pyo3/tests",
        ROOT / "fuzz/tests",
    ],
}
ROWS = [line for line in FRAMEWORKS.read_text().splitlines() if line.startswith("| ")]
ROWS = [row for row in ROWS if not row.startswith("| ---") and "| test |" not in row]


def named(text: str) -> list[tuple[str, str]]:
    return re.findall(r"`([\w/]+)::(\w+)`", text)


def sources(file: str) -> list[str]:
    places = [folder / (file + ending) for ending, at in FOLDERS.items() for folder in at]
    return [place.read_text() for place in places if place.exists()]


def test_the_page_has_rows():
    assert len(ROWS) > 100


@pytest.mark.parametrize("file, test", sorted(set(named(FRAMEWORKS.read_text()))))
def test_a_test_that_the_page_names_exists(file, test):
    definition = re.compile(rf"^\s*(def|fn) {test}\(", re.MULTILINE)
    assert any(definition.search(source) for source in sources(file)), f"{file} has no {test}"


@pytest.mark.parametrize("row", ROWS)
def test_each_row_names_a_test_or_says_why_there_is_none(row):
    shown = row.rstrip("| ").rsplit(" | ", 1)[-1]
    assert named(shown) or shown.startswith("none: "), shown
