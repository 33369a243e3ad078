"""The same findings in every form: terminal, JSON, Markdown, HTML, badge. In a browser, nothing of
the page is cut off on a phone, by day or by night."""

from __future__ import annotations

import html.parser
import io
import json
import re
import shutil
import subprocess
import xml.dom.minidom

import pytest
from rich.console import Console

from dlpack_doctor import Outcome, Result, Verdict
from dlpack_doctor.findings import Examined, Findings, Pair, from_json
from dlpack_doctor.report import terminal
from dlpack_doctor.report.render import page

NASTY = "<script>alert(1)</script> | `tick` *star*"
PROGRAM = "import good\nprint('shown')"
LONG = "a_very_long_name_without_a_space_" * 3


def made():
    """Findings made by hand, with every verdict and with words that must be escaped, of twelve
    frameworks: as many as the real report has."""
    names = ["good", "bad", LONG, *(f"framework{n}" for n in range(9))]
    found = Findings(["Python 3.14, somewhere"], "2026-11-21")
    found.subjects = [Examined(name, "1.2.3") for name in names]
    found.subjects.append(Examined("absent", "", "ImportError: no <module>"))
    for name in names:
        found.results += [
            Result("producer.methods", name, Outcome(Verdict.PASS, "")),
            Result("producer.values", name, Outcome(Verdict.NOT_APPLICABLE, "no <values>")),
            Result("producer.speed", name, Outcome(Verdict.PASS, "", {"dltensor": 120.0})),
            Result("consumer.speed", name, Outcome(Verdict.PASS, "", {"from_dlpack": 3400.0})),
        ]
    found.results += [
        Result("producer.released", "bad", Outcome(Verdict.FAIL, NASTY, {}, PROGRAM)),
        Result("producer.released", "good", Outcome(Verdict.PASS, "")),
        Result("consumer.negative", "good", Outcome(Verdict.WARN, "refused: " + LONG)),
    ]
    found.pairs = [
        Pair("good", "bad", Outcome(Verdict.FAIL, "holds [<0>]")),
        Pair("bad", "good", Outcome(Verdict.PASS, "same memory")),
        Pair("good", "good", Outcome(Verdict.WARN, "copied")),
        Pair("bad", "bad", Outcome(Verdict.WARN, "refused: BufferError")),
    ]
    return found


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


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)

PHONE, DESK = 360, 1280

# Runs in the page, and leaves what it measured in the title.
MEASURE = """
<script>
addEventListener("load", () => {
  const seen = e => { const r = e.getBoundingClientRect(); return r.width > 0 && r.height > 0 };
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => {
    v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  const contrast = e => { const s = getComputedStyle(e);
    const [a, b] = [light(s.color), light(s.backgroundColor)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05) };
  const inside = e => { const r = e.getBoundingClientRect();
    return r.left >= 0 && r.right <= innerWidth + 0.5 };
  const cells = [...document.querySelectorAll("summary .cell")].filter(e => !e.matches(":empty"));
  const verdicts = cells.filter(e => /[^\\s]/.test(e.lastChild.textContent));
  for (const one of document.querySelectorAll("details")) one.open = true;
  document.title = JSON.stringify({
    width: innerWidth,
    scroll: document.documentElement.scrollWidth,
    verdicts: verdicts.length,
    hidden: verdicts.filter(e => !seen(e)).length,
    outside: [...document.querySelectorAll("main *")].filter(e => seen(e) && !inside(e))
      .map(e => e.tagName + "." + e.className),
    pale: verdicts.filter(e => contrast(e) < 4.5).map(e => e.className),
    back: getComputedStyle(document.body).backgroundColor,
    labels: [...document.querySelectorAll("summary .label")].filter(seen).length,
    text: Math.min(...[...document.querySelectorAll(".time span")].map(e =>
      e.getBoundingClientRect().height)),
  });
});
</script>"""


def measure(tmp_path, width, dark):
    """What the browser saw, with a window of that width and that choice of colours."""
    source = tmp_path / "page.html"
    text = page("page.html", made(), "dlpack-doctor", made()).replace(
        "</body>", MEASURE + "</body>"
    )
    # A window of a desktop browser has a least width; a frame has none.
    source.write_text(text, encoding="utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text(
        f'<body style="margin:0"><iframe id=f src="page.html" width="{width}" height="3000" '
        'style="border:0"></iframe><script>addEventListener("load",()=>{document.title='
        'document.getElementById("f").contentDocument.title})</script></body>'
    )
    command = [
        BROWSER,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--allow-file-access-from-files",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1400,3000",
        "--blink-settings=preferredColorScheme=" + ("0" if dark else "1"),
        "--virtual-time-budget=3000",
        "--dump-dom",
        frame.as_uri(),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120)
    found = re.search(r"<title>(.*?)</title>", ran.stdout, re.DOTALL)
    assert found, ran.stderr[-2000:]
    return json.loads(found[1])


@pytest.mark.skipif(BROWSER is None, reason=f"no {BROWSERS[0]} on the search path")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK], ids=["phone", "desk"])
def test_the_page_is_legible(tmp_path, width, dark):
    seen = measure(tmp_path, width, dark)
    assert seen["width"] == width
    assert seen["scroll"] <= width
    assert seen["outside"] == []
    assert seen["verdicts"] > 40
    assert seen["hidden"] == 0
    assert seen["pale"] == []
    red, green, blue = map(int, re.findall(r"\d+", seen["back"])[:3])
    assert (red + green + blue < 200) is dark
    # On a phone each sign has a name beside it, since there are no columns.
    assert (seen["labels"] > 0) is (width == PHONE)
    assert seen["text"] >= 9
