"""The same findings in every form: terminal, JSON, Markdown, HTML, badge."""

from __future__ import annotations

import html.parser
import io
import re
import xml.dom.minidom

import pytest
from rich.console import Console

from dlpack_doctor import Outcome, Result, Verdict
from dlpack_doctor.findings import Examined, Findings, Pair, from_json
from dlpack_doctor.report import terminal
from dlpack_doctor.report.render import page
from made_findings import LONG, NASTY, PROGRAM, made


def shown(findings, verbose=False, **options):
    out = io.StringIO()
    console = Console(file=out, highlight=False, soft_wrap=True, emoji=False, **options)
    terminal.show(console, findings, verbose)
    return out.getvalue()


def test_the_terminal_shows_failures_first_and_one_line_for_each_subject():
    text = shown(made())
    assert text.startswith(f"FAIL bad producer.released: {NASTY}\n")
    assert "WARN" not in text
    assert "absent: not examined: ImportError: no <module>" in text


def test_verbose_shows_everything_with_a_program_to_paste():
    text = shown(made(), verbose=True)
    assert "WARN good consumer.negative" in text
    assert "standard: DLPack 1.3, deleter" in text
    assert f"\n{PROGRAM}\n" in text
    assert "120 ns" in text


def test_colours_come_only_when_wanted():
    assert "\033" not in shown(made())
    assert "\033[1;31mFAIL" in shown(made(), force_terminal=True, color_system="standard")


def test_json_keeps_everything():
    assert from_json(made().to_json()) == made()


class _Shape(html.parser.HTMLParser):
    """Sees that every element is closed in its order."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.external = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.external += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_needs_nothing_from_outside():
    text = page("page.html", made(), "dlpack-doctor <all>")
    shape = _Shape()
    shape.feed(text)
    assert shape.open == []
    assert shape.external == []
    assert "script" not in shape.tags
    assert "http" not in text
    assert "@import" not in text


def test_the_page_escapes_the_words_of_frameworks():
    text = page("page.html", made(), "")
    assert "&lt;script&gt;" in text
    assert "<script" not in text
    assert "no &lt;module&gt;" in text


def test_the_page_says_what_each_cell_says():
    text = page("page.html", made(), "")
    assert 'title="bad: &lt;script&gt;' in text
    assert 'title="good: copied"' in text
    assert 'title="good: same memory"' not in text
    assert "120 ns" in text
    assert "print(&#39;shown&#39;)" in text


def test_markdown_tables_have_as_many_cells_in_each_row():
    text = page("page.md", made(), "cmd", made())
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(tables) >= 5
    for table in tables:
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(counts) == 1, table


def test_markdown_escapes_the_words_of_frameworks():
    text = page("page.md", made(), "cmd")
    assert "<script" not in re.sub(r"\\<", "", text)
    assert r"\<script\>" in text
    assert "`producer.released`" in text
    assert LONG.replace("_", "\\_") in text


def test_the_badge_says_conforms_or_how_many_failed():
    bad = page("badge.svg", made(), "")
    assert xml.dom.minidom.parseString(bad)
    assert "1 failed" in bad
    good = made()
    good.results = [r for r in good.results if r.verdict is not Verdict.FAIL]
    assert "conforms" in page("badge.svg", good, "")


def test_a_page_tells_what_changed_since_another():
    before = made()
    after = made()
    after.results[-2] = Result("producer.released", "good", Outcome(Verdict.WARN, "now so"))
    assert "now so" in page("page.md", after, "", before).split("## Exchanges")[0]
    assert "Nothing." in page("page.md", before, "", before).split("## Exchanges")[0]
    assert "now so" in page("page.html", after, "", before).split("<h2>Exchanges")[0]


def test_findings_without_pairs_or_times_are_shown_too():
    found = Findings(["here"], "2026-01-01", [Examined("one", "1")])
    found.results = [Result("producer.methods", "one", Outcome(Verdict.PASS, ""))]
    assert "one" in page("page.html", found, "")
    assert "one" in page("page.md", found, "")
    assert "one 1: 1 pass" in shown(found)


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.FAIL])
def test_a_failed_pair_is_a_failure(verdict):
    found = Findings()
    found.pairs = [Pair("numpy", "dlbridge", Outcome(verdict, ""))]
    assert found.ok is (verdict is Verdict.PASS)
