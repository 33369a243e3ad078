"""The same findings in every form: terminal, JSON, Markdown, HTML."""

from __future__ import annotations

import html.parser
import re

import pytest

from dlbridge.doctor import Outcome, Result, Verdict
from dlbridge.doctor.findings import Examined, Findings, Pair, from_json, join
from dlbridge.doctor.report import markdown, page, terminal
from doctor.findings import LONG, NASTY, made


def lines(findings, **options):
    return list(terminal.lines(findings, **({"width": 500, "colour": False} | options)))


def test_the_table_has_a_line_for_each_check_and_the_evidence_of_each_failure():
    text = lines(made())
    assert any(re.match(r"producer\.released +pass +FAIL", line) for line in text)
    at = text.index(f"FAIL bad producer.released: {NASTY}")
    assert "deleter" in text[at + 1]
    assert "absent: not examined: ImportError: no <module>" in text


def test_a_narrow_terminal_gets_numbers_for_names():
    text = lines(made(), width=80)
    assert "  1  good" in text
    assert max(len(line) for line in text if line.startswith("producer.")) <= 80


def test_colours_come_only_when_wanted():
    assert not any("\033" in line for line in lines(made()))
    assert any("\033[31mFAIL\033[0m" in line for line in lines(made(), colour=True))


def test_colours_do_not_move_columns():
    plain = lines(made())
    coloured = [re.sub("\033\\[\\d+m", "", line) for line in lines(made(), colour=True)]
    assert coloured == plain


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
    text = page.html(made(), "python -m dlbridge doctor <all>")
    shape = _Shape()
    shape.feed(text)
    assert shape.open == []
    assert shape.external == []
    assert "script" not in shape.tags
    assert "http" not in text
    assert "@import" not in text


def test_the_page_escapes_the_words_of_frameworks():
    text = page.html(made(), "")
    assert "&lt;script&gt;" in text
    assert "<script" not in text
    assert "no &lt;module&gt;" in text


def test_the_page_says_what_each_cell_says():
    text = page.html(made(), "")
    assert 'title="bad: &lt;script&gt;' in text
    assert 'title="good: copied"' in text
    assert 'title="good: same memory"' not in text
    assert "<svg" in text
    assert "120 ns" in text


def test_markdown_tables_have_as_many_cells_in_each_row():
    rows = [line for line in markdown.text(made(), "cmd").splitlines() if line.startswith("|")]
    widths = []
    for line in rows:
        count = len(re.findall(r"(?<!\\)\|", line))
        if set(line) <= set("| -"):
            widths.append(count)
    assert widths
    for line in rows:
        assert len(re.findall(r"(?<!\\)\|", line)) in widths


def test_markdown_escapes_the_words_of_frameworks():
    text = markdown.text(made(), "cmd")
    assert "<script" not in re.sub(r"\\<", "", text)
    assert r"\<script\>" in text
    assert "`producer.released`" in text
    assert LONG.replace("_", "\\_") in text


def test_findings_without_pairs_or_times_are_shown_too():
    found = Findings(["here"], "2026-01-01", [Examined("one", "1")])
    found.results = [Result("producer.methods", "one", Outcome(Verdict.PASS, ""))]
    assert "one" in page.html(found, "")
    assert "one" in markdown.text(found, "")
    assert lines(found)


def environment(name, version, verdict, pairs=()):
    found = Findings([f"Python with {name} {version}"], "2026-01-02")
    found.subjects = [Examined("dlbridge", "0.1.0"), Examined(name, version)]
    found.results = [
        Result("producer.methods", "dlbridge", Outcome(Verdict.PASS, version)),
        Result("producer.methods", name, Outcome(verdict, version)),
    ]
    found.pairs = [Pair(one, other, Outcome(Verdict.PASS, version)) for one, other in pairs]
    return found


def test_runs_of_several_environments_are_joined():
    both = join(
        [
            environment("numpy", "2.4", Verdict.PASS, [("numpy", "dlbridge")]),
            environment("numpy", "2.5", Verdict.FAIL, [("numpy", "dlbridge")]),
        ]
    )
    assert [subject.name for subject in both.subjects] == ["dlbridge", "numpy", "numpy 2.5"]
    assert both.of("producer.methods", "numpy 2.5").verdict is Verdict.FAIL
    assert both.of("producer.methods", "dlbridge").evidence == "2.4"
    assert {(pair.producer, pair.consumer) for pair in both.pairs} == {
        ("numpy", "dlbridge"),
        ("numpy 2.5", "dlbridge"),
    }
    assert len(both.environments) == 2


def test_joining_a_run_with_itself_changes_nothing():
    one = environment("numpy", "2.4", Verdict.PASS, [("numpy", "dlbridge")])
    assert join([one, one]) == one


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.FAIL])
def test_a_failed_pair_is_a_failure(verdict):
    found = environment("numpy", "2.4", Verdict.PASS)
    found.pairs = [Pair("numpy", "dlbridge", Outcome(verdict, ""))]
    assert found.ok is (verdict is Verdict.PASS)
