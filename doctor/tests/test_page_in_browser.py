"""The page in a real browser: nothing is cut off on a phone, by day or by night."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from dlpack_doctor.report.render import page
from made_findings import made

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"no {NAMES[0]} on the search path")

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
