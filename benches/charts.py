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
# A label, its points, and a flag: is it dlbridge's?
Line = tuple[str, list[tuple[float, float]], bool]
# A title, and its points: the state, dlbridge's value, the floor's.
History = tuple[str, list[tuple[int, int, int]]]

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
        "".join(f"--{name}:{colours[i]};" for name, colours in COLOURS.items())
        for i in (0, 1)
    )
    style = f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
    file.write_text(svg.replace("<defs>", f"<defs>\n  <style>{style}</style>", 1))
    print(f"wrote docs/benchmarks/{file.name}")


def bars(title: str, subtitle: str, panels: list[Panel]) -> Any:
    """Panels of bars that start at 1, all on one logarithmic axis: multiples of the reference."""
    rows = math.ceil(len(panels) / 2)
    most = [
        max(len(panel[1]) for panel in panels[i : i + 2])
        for i in range(0, len(panels), 2)
    ]
    height = sum(most) * 0.2 + rows * 0.75 + 0.8
    figure, grid = plt.subplots(
        rows, 2, figsize=(9.4, height), sharex=True, squeeze=False, height_ratios=most
    )
    figure.suptitle(f"{title}\n{subtitle}", x=0.01, ha="left", fontsize=10)
    values = [
        value for _, shown, _ in panels for _, marks in shown for value, _ in marks
    ]
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
            axes.set_title(f"budget {budget}", loc="right", fontsize=9, color=LIMIT)
        for y, (_, marks) in enumerate(shown):
            for value, is_ours in reversed(marks):
                colour = OURS if is_ours else OTHER
                axes.plot([1, value], [y, y], color=colour, linewidth=3)
                axes.plot([value], [y], "o", color=colour, markersize=5)
            values = [value for value, _ in marks]
            text = " / ".join(f"{v:.2f}" if v < 9.95 else f"{v:.0f}" for v in values)
            side, where = ("right", -7) if max(values) < 1 else ("left", 7)
            axes.annotate(
                text,
                (max(values), y),
                (where, 0),
                textcoords="offset points",
                ha=side,
                va="center",
            )
        axes.set_yticks(range(len(shown)), [label for label, _ in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        # Room for the labels of the smallest and the largest value.
        axes.set_xlim(least / spread**0.16, greatest * spread**0.16)
    for axes in grid.flat[len(panels) :]:
        axes.axis("off")
    figure.tight_layout()
    return figure


def lines(
    title: str,
    subtitle: str,
    drawn: list[Line],
    ticks: dict[float, str],
    *,
    is_time: bool,
) -> Any:
    """Lines over a logarithmic axis, each labelled at its end."""
    figure, axes = plt.subplots(figsize=(9.4, 4))
    figure.subplots_adjust(left=0.08, right=0.8, top=0.86, bottom=0.08)
    figure.suptitle(f"{title}\n{subtitle}", x=0.01, ha="left", fontsize=10)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(ticks), list(ticks.values()))
    for _, points, is_ours in drawn:
        colour = OURS if is_ours else OTHER
        x, y = zip(*points, strict=True)
        axes.plot(x, y, "o-", color=colour, markersize=3, linewidth=1.8)
    if is_time:
        axes.set_yscale("log", base=1000)
        axes.set_ylim(bottom=1)
        axes.yaxis.set_major_formatter(
            lambda y, _: f"{y / 1000 ** power(y):g} {UNITS[power(y)]}"
        )
    else:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda y, _: f"{y / 1e6:g} M")
    axes.minorticks_off()
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    # Move overlapping labels apart.
    highest = -math.inf
    for label, points, is_ours in sorted(drawn, key=lambda line: line[1][-1][1]):
        end = axes.transData.transform(points[-1])[1]
        highest = max(end, highest + 13)
        axes.annotate(
            label,
            points[-1],
            (8, (highest - end) * 72 / figure.dpi),
            textcoords="offset points",
            color=OURS if is_ours else TEXT,
            va="center",
        )
    return figure


def history(title: str, marks: list[str], panels: list[History]) -> Any:
    """A small chart for each path: its values at each measured state, and the floor's."""
    rows = math.ceil(len(panels) / 2)
    figure, grid = plt.subplots(
        rows, 2, figsize=(9.4, rows * 1.25 + 1.3), sharex=True, squeeze=False
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    for axes, (name, points) in zip(grid.flat, panels, strict=False):
        x, ours, floor = zip(*points, strict=True)
        axes.set_title(name, loc="left", fontsize=9, fontweight="bold")
        axes.plot(x, floor, "o-", color=OTHER, markersize=2, linewidth=1.8)
        axes.plot(x, ours, "o-", color=OURS, markersize=3, linewidth=1.8)
        axes.annotate(
            f"{ours[-1]:,}",
            (x[-1], ours[-1]),
            (7, 0),
            textcoords="offset points",
            color=OURS,
            va="center",
        )
        axes.set_xlim(-0.3, len(marks) + 0.3)
        axes.set_ylim(0, max(*ours, *floor) * 1.1)
        axes.set_xticks(range(len(marks)), marks, rotation=90, fontsize=8)
        axes.yaxis.set_major_locator(plt.MaxNLocator(3))
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.grid(axis="y", color=GRID, linewidth=0.6)
    figure.tight_layout()
    return figure


UNITS = ["ns", "\u00b5s", "ms", "s"]


def power(nanoseconds: float) -> int:
    return min(3, max(0, round(math.log(nanoseconds, 1000))))
