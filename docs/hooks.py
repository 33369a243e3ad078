"""A block of code as a reader sees it, without the words and lines that only tools read.

Also the colours of code, the headings of cells on a phone, and the landing page of the site."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

from markdown import markdown
from pygments.formatters import HtmlFormatter

BLOCK = re.compile(r"^(```+)(\w+)[^\n`]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
HIDDEN = re.compile(r"^#( .*)?\n", re.MULTILINE)
TABLE = re.compile(r"(^\|.*\n)+", re.MULTILINE)
# Comments would make a page of two columns too wide.
REMARK = re.compile(r"^ +(//|#) .*\n| {2,}(//|#|/\*) .*$", re.MULTILINE)
# A link to another page, as the landing page has it in `html/`.
LINK = re.compile(r'href="([\w/.-]+)\.md')
# Such as `@code README.md#In Rust@`: what the landing page takes from a page, or from its part.
PLACE = re.compile(r"@(lead|code|table) ([\w./]+)(?:#([\w ]+))?@")


# Styles in which each colour has a contrast of 4.5 at least on the pages' background.
LIGHT, DARK = "xcode", "github-dark"
ROWS = re.compile(r"<table>.*?</table>", re.DOTALL)
HEADING = re.compile(r"<th[^>]*>(.*?)</th>", re.DOTALL)
TAG = re.compile(r"<[^>]*>")


def on_pre_build(config: Any) -> None:
    """Writes the colours of code, for both choices of the reader."""
    light, dark = (
        HtmlFormatter(style=style).get_style_defs(".codehilite")
        for style in (LIGHT, DARK)
    )
    text = f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
    (Path(config["docs_dir"]) / "docs/code.css").write_text(text, encoding="utf-8")


def on_page_content(html: str, **_: Any) -> str:
    """Gives each cell of a table the heading of its column, which a phone shows above it."""

    def labelled(table: re.Match[str]) -> str:
        headings = [TAG.sub("", heading) for heading in HEADING.findall(table[0])]
        rows = table[0].split("<tr>")
        for index, row in enumerate(rows):
            columns = iter(headings)
            rows[index] = re.sub(
                "<td",
                lambda _, columns=columns: f'<td data-label="{next(columns, "")}"',
                row,
            )
        return "<tr>".join(rows)

    return ROWS.sub(labelled, html)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls it with each page."""

    def shown(block: re.Match[str]) -> str:
        fence, language, code = block.groups()
        code = HIDDEN.sub("", code) if language == "rust" else code
        return f"{fence}{language}\n{code}{fence}"

    return BLOCK.sub(shown, markdown)


def on_post_build(config: Any) -> None:
    """Writes the landing page, whose examples and figures are those of the pages."""
    pages = Path(config["docs_dir"])

    def filled(place: re.Match[str]) -> str:
        kind, name, heading = place.groups()
        text = (pages / name).read_text(encoding="utf-8")
        text = text.split(f"\n## {heading}\n")[1] if heading else text
        if kind == "lead":
            return LINK.sub(r'href="html/\1.html', markdown(text.split("\n\n")[1]))
        if kind == "table":
            return markdown(TABLE.search(text)[0], extensions=["tables"])
        code = next(block[3] for block in BLOCK.finditer(text) if block[2] != "sh")
        return f"<pre>{escape(REMARK.sub('', HIDDEN.sub('', code)))}</pre>"

    page = (pages / "docs/site/index.html").read_text(encoding="utf-8")
    site = Path(config["site_dir"]).parent / "index.html"
    site.write_text(PLACE.sub(filled, page), encoding="utf-8")
