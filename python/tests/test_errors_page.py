"""docs/errors.md: each line of Python there raises what the page says, word for word.

Its examples in Rust are documentation tests of `dlbridge-pyo3`.
"""

from __future__ import annotations

import importlib
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
BLOCK = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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
OPTIONAL = {"dlbridge_example", "ml_dtypes", "scipy.sparse", "torch"}
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
        return f"{PAGE.name}:{self.line}"


def mistakes() -> list[Mistake]:
    text = PAGE.read_text(encoding="utf-8")
    found: list[Mistake] = []
    for block in BLOCK.finditer(text):
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
            if module in OPTIONAL:
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
