"""The examples in Python of the repository's pages: the README, the guide, the examples' pages.

Each one stands alone, as a reader would copy it. `cargo xtask lint` sees to it that there are none
in other pages.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/**/*.md", "examples/**/*.md", "python/*.md"]
# What need not be installed; whatever else an example imports has to be there.
OPTIONAL = {"dask", "dlbridge_example", "duckdb", "jax", "polars", "torch"}
# Its lines raise: `test_errors_page` runs them.
ERRORS = ROOT / "docs" / "errors.md"
BLOCK = re.compile(r"^```(python|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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
    found = BLOCK.finditer(text)
    return [Block(page, text.count("\n", 0, at.start()) + 1, *at.groups()) for at in found]


FOUND = [page for pages in PAGES for page in ROOT.glob(pages) if page != ERRORS]
BLOCKS = [block for page in FOUND for block in blocks_of(page)]


def test_the_pages_have_examples():
    pages = {block.page.name for block in BLOCKS}
    assert {"README.md", "extension.md", "class.md", "calls.md"} <= pages


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
