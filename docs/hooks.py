"""A block of code as a reader sees it: without words that only tools read, and lines that rustdoc hides."""

from __future__ import annotations

import re
from typing import Any

BLOCK = re.compile(r"^(```+)(\w+)[^\n`]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
HIDDEN = re.compile(r"^#( .*)?\n", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls it with each page."""

    def shown(block: re.Match[str]) -> str:
        fence, language, code = block.groups()
        code = HIDDEN.sub("", code) if language == "rust" else code
        return f"{fence}{language}\n{code}{fence}"

    return BLOCK.sub(shown, markdown)
