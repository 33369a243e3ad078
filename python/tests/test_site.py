"""The guide as a browser shows it: `cargo xtask guide` makes its pages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "target/guide"
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
PAGES = [
    "index.html",
    *(
        f"html/{name}.html"
        for name in (
            "SAFETY",
            "docs/adapters",
            "docs/benchmarks",
            "docs/errors",
            "docs/frameworks",
            "docs/guide/calls",
            "docs/guide/coming-from",
            "docs/guide/extension",
        )
    ),
]
PHONE, DESK = 390, 1280
# Leaves in the title what it measures in each frame.
MEASURE = """
addEventListener("load", () => {
  const numbers = c => c.match(/[\\d.]+/g).map(Number);
  const light = c => { const [r, g, b] = numbers(c).map(v => {
    v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  document.title = JSON.stringify([...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, style = e => frame.contentWindow.getComputedStyle(e);
    const behind = e => {
      const c = numbers(style(e).backgroundColor);
      const isClear = c.length == 4 && c[3] == 0 && e.parentElement;
      return isClear ? behind(e.parentElement) : style(e).backgroundColor };
    const contrast = e => {
      const both = [light(style(e).color), light(behind(e))];
      const [a, b] = both.sort((x, y) => y - x);
      return (a + 0.05) / (b + 0.05) };
    const parts = ["p", "a", "td", "code"].map(tag => `[role=main] ${tag}`);
    const text = page.querySelectorAll([...parts, ".codehilite span", "pre", "h1"].join());
    return {
      scroll: page.documentElement.scrollWidth,
      back: numbers(style(page.body).backgroundColor),
      pale: [...text].filter(e => e.textContent.trim() && e.offsetWidth && contrast(e) < 4.5)
        .map(e => e.tagName + "." + e.className + " " + e.textContent.slice(0, 30)).slice(0, 5) };
  }));
});
"""


@pytest.mark.skipif(BROWSER is None, reason="no chromium on the search path")
@pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="`cargo xtask guide` was not run")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK], ids=["phone", "desk"])
def test_pages_fit_the_window_and_are_legible(tmp_path, width, dark):
    frames = "".join(
        f'<iframe src="{(SITE / page).as_uri()}" width="{width}" height="900"></iframe>'
        for page in PAGES
    )
    frame = tmp_path / "frame.html"
    frame.write_text(f"<style>iframe {{ border: 0 }}</style>{frames}<script>{MEASURE}</script>")
    command = [
        BROWSER,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--allow-file-access-from-files",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1400,3000",
        "--blink-settings=preferredColorScheme=" + ("0" if dark else "1"),
        "--virtual-time-budget=10000",
        "--dump-dom",
        frame.as_uri(),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120)
    found = re.search(r"<title>(.*?)</title>", ran.stdout, re.DOTALL)
    assert found, ran.stderr[-2000:]
    seen = dict(
        zip(PAGES, json.loads(found[1].replace("&amp;", "&").replace("&lt;", "<")), strict=True)
    )
    for page, it in seen.items():
        assert it["scroll"] <= width, page
        assert (sum(it["back"][:3]) < 200) is dark, page
        assert it["pale"] == [], page
