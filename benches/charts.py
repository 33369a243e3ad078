"""Charts for docs/benchmarks.md, as SVG files that follow a light or a dark page."""

import math
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt

# Each colour for a light and for a dark page; the browser chooses.
COLOURS = {
    "text": ("#1f2328", "#e6edf3"),
    "muted": ("#59636e", "#9198a1"),
    "ours": ("#0969da", "#4493f8"),
    "other": ("#8c959f", "#768390"),
    "limit": ("#bc4c00", "#db6d28"),
    "grid": ("#d1d9e0", "#30363d"),
    "page": ("#ffffff", "#0d1117"),
}
TEXT, MUTED, OURS, OTHER, LIMIT, GRID, FILL = (light for light, _ in COLOURS.values())

# A label and its values, each with a flag: is it dlbridge's?
Bar = tuple[str, list[tuple[float, bool]]]
# A title, its bars, and dlbridge's budget.
Panel = tuple[str, list[Bar], float | None]

matplotlib.use("svg")
plt.rcParams.update(
    {
        "font.size": 9,
        "svg.fonttype": "none",
        "svg.hashsalt": "dlbridge",
        "figure.facecolor": FILL,
        "axes.facecolor": FILL,
        "text.color": TEXT,
        "axes.edgecolor": GRID,
        "axes.labelcolor": MUTED,
        "xtick.color": MUTED,
        "ytick.color": TEXT,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
)


def save(figure: Any, file: Path) -> None:
    figure.savefig(file, format="svg", metadata={"Date": None})
    svg = file.read_text()
    for name, (light, _) in COLOURS.items():
        svg = svg.replace(light, f"var(--{name})")
    light, dark = (
        "".join(f"--{name}:{colours[i]};" for name, colours in COLOURS.items()) for i in (0, 1)
    )
    style = f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
    file.write_text(svg.replace("<defs>", f"<defs>\n  <style>{style}</style>", 1))
    print(f"wrote docs/benchmarks/{file.name}")


def bars(title: str, subtitle: str, panels: list[Panel]) -> Any:
    """Panels of bars that start at 1, all on one logarithmic axis: multiples of the reference."""
    rows = math.ceil(len(panels) / 2)
    most = [max(len(panel[1]) for panel in panels[i : i + 2]) for i in range(0, len(panels), 2)]
    height = sum(most) * 0.2 + rows * 0.75 + 0.8
    figure, grid = plt.subplots(
        rows, 2, figsize=(9.4, height), sharex=True, squeeze=False, height_ratios=most
    )
    figure.suptitle(f"{title}\n{subtitle}", x=0.01, ha="left", fontsize=10)
    values = [value for _, shown, _ in panels for _, marks in shown for value, _ in marks]
    least, greatest = min(values, default=1), max(values, default=2)
    spread = greatest / least
    for axes, panel in zip(grid.flat, panels, strict=False):
        panel_title, shown, budget = panel
        axes.set_title(panel_title, loc="left", fontsize=9, fontweight="bold")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.tick_params(labelbottom=True, left=False)
        axes.grid(axis="x", color=GRID, linewidth=0.6)
        axes.axvline(1, color=MUTED, linewidth=0.8)
        if budget:
            axes.axvline(budget, color=LIMIT, linestyle="--", linewidth=1.2)
        for y, (_, marks) in enumerate(shown):
            for value, is_ours in reversed(marks):
                colour = OURS if is_ours else OTHER
                axes.plot([1, value], [y, y], color=colour, linewidth=3)
                axes.plot([value], [y], "o", color=colour, markersize=5)
            values = [value for value, _ in marks]
            text = " / ".join(f"{v:.2f}" if v < 9.95 else f"{v:.0f}" for v in values)
            side, where = ("right", -7) if max(values) < 1 else ("left", 7)
            axes.annotate(
                text, (max(values), y), (where, 0), textcoords="offset points", ha=side, va="center"
            )
        axes.set_yticks(range(len(shown)), [label for label, _ in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        # Room for the labels of the smallest and the largest value.
        axes.set_xlim(least / spread**0.16, greatest * spread**0.16)
    for axes in grid.flat[len(panels) :]:
        axes.axis("off")
    figure.tight_layout()
    return figure
