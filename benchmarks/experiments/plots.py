"""Plots of the experiments, all in one style, small enough to lie beside the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
from PIL import Image

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_LOOKS = (
    ("#1b6ca8", "o", "-"),
    ("#c8553d", "s", "--"),
    ("#3a7d44", "^", "-."),
    ("#8a5a9e", "D", ":"),
)


@dataclass(frozen=True)
class Line:
    xs: Sequence[float]
    ys: Sequence[float]
    spread: Sequence[float] | None = None  # a standard deviation for every point

    @property
    def deviation(self) -> Line:
        return Line(self.xs, self.spread or ())

    def scaled(self, by: float) -> Line:
        """In another unit, and without the deviation."""
        return Line(self.xs, [y * by for y in self.ys])


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x: str
    y: str
    lines: Mapping[str, Line]
    top: float | None = None
    is_logarithmic: bool = False  # along x


def draw(path: Path, title: str, panels: Sequence[Panel]) -> None:
    figure, all_axes = plt.subplots(
        1, len(panels), figsize=(1 + 3.6 * len(panels), 3.6), squeeze=False, layout="constrained"
    )
    for axes, panel in zip(all_axes[0], panels, strict=True):
        _draw(axes, panel)
    figure.suptitle(title)
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Writes a figure with few colours, and closes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = BytesIO()
    figure.savefig(drawn, dpi=80)
    plt.close(figure)
    Image.open(drawn).convert("RGB").quantize(32).save(path, optimize=True)


def _draw(axes: Axes, panel: Panel) -> None:
    for count, (name, line) in enumerate(panel.lines.items()):
        color, marker, style = _LOOKS[count % len(_LOOKS)]
        aside = 0.0
        if line.spread is not None:  # bars beside, not over, each other
            aside = 0.8 * (count - (len(panel.lines) - 1) / 2)
        axes.errorbar(
            [x + aside for x in line.xs],
            line.ys,
            yerr=line.spread,
            label=name,
            color=color,
            marker=marker,
            linestyle=style,
            markersize=4,
            capsize=2,
            elinewidth=0.8,
        )
    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    axes.set_ylim(0, panel.top)
    if panel.is_logarithmic:
        xs = sorted({x for line in panel.lines.values() for x in line.xs})
        axes.set_xscale("log")
        axes.set_xticks(xs, [f"{x:g}" for x in xs])
        axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
