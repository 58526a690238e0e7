"""The report's plots: each one a matplotlib figure, written as PNG and SVG and placed in the page."""

from __future__ import annotations

import contextlib
import functools
import html
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tilewright.common.text import mathtext_escaped
from tilewright.measure.axes import Prefixed, number_text, scale
from tilewright.sweep.inside import Inside
from tilewright.sweep.report.data import Quantity, SweepData, effect

_STYLE: Any = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10.5, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.linewidth": 0.4, "grid.alpha": 0.6,
    "svg.hashsalt": "tilewright",
}  # fmt: skip
_FRONT, _OTHER, _REFUSED, _CHOSEN = "#1f5fa8", "#8fa8c4", "#d9d9d9", "#c4451c"
_ENGINES = {"LOAD": "#2a7f62", "GEMM": "#1f5fa8", "VECTOR": "#7b4fa3", "STORE": "#c4801c"}
_LAYERS = ("#6b7a8f", "#a8b4c4")
#: Inches beside the axes of a figure: left, right, bottom, top.
_MARGINS = 0.8, 0.15, 0.5, 0.3


@dataclass(frozen=True)
class Spot:
    """A place in a plot that shows a text when pointed at.

    Attributes:
        x, y, radius: in the coordinates of the SVG, points from the upper left.
        text: the text; lines by line breaks.
    """

    x: float
    y: float
    radius: float
    text: str


@dataclass
class Plot:
    """A plot and what it shows.

    Attributes:
        name: of its files.
        title, about: heading and one sentence for the page.
    """

    name: str
    title: str
    about: str
    figure: Figure
    spots: list[Spot] = field(default_factory=list)

    def png(self) -> bytes:
        buffer = io.BytesIO()
        with matplotlib.rc_context(_STYLE):
            self.figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
        return buffer.getvalue()

    @functools.cached_property
    def svg(self) -> str:
        """A stand-alone SVG file."""
        buffer = io.BytesIO()
        with matplotlib.rc_context(_STYLE):
            self.figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        return buffer.getvalue().decode()

    def inline(self) -> str:
        """The SVG for the page, with the spots in it."""
        text = self.svg
        text = text[text.index("<svg") :]
        marks = "".join(
            f'<circle cx="{s.x:.1f}" cy="{s.y:.1f}" r="{s.radius:.1f}" tabindex="0" '
            f'data-about="{html.escape(s.text)}"/>'
            for s in self.spots
        )
        end = text.rindex("</svg>")
        label = html.escape(self.title)
        head = f'<svg role="img" aria-label="{label}"'
        return head + text[4:end] + f'<g class="spots">{marks}</g></svg>'


@contextlib.contextmanager
def _figure(width: float, height: float) -> Iterator[Figure]:
    with matplotlib.rc_context(_STYLE):
        made = Figure(figsize=(width, height), dpi=72)
        # Fixed margins, in inches: a layout engine would draw each figure once more to find them.
        left, right, bottom, top = _MARGINS
        sides = {"left": left / width, "right": 1 - right / width, "bottom": bottom / height, "top": 1 - top / height}
        made.subplots_adjust(**sides)
        yield made


def _spot(axes: Axes, x: float, y: float, text: str, radius: float = 8.0) -> Spot:
    """A spot at a data point, in pixels; call it when everything is drawn into the axes."""
    axes.get_xlim(), axes.get_ylim()  # brings limits, and so the transformation, up to date
    px, py = axes.transData.transform((x, y))
    figure = axes.get_figure()
    assert figure is not None
    return Spot(float(px), float(figure.bbox.height - py), radius, text)


def describe(data: SweepData, number: int) -> str:
    """A point's axes and results, a line each."""
    point = data.point(number)
    lines = [f"point {number}" + ("" if point["state"] == "done" else f", {point['reason']}")]
    lines += [f"{name} {point['assignment'][name]}" for name in data.varied]
    metrics = point["metrics"]
    lines += [f"{q.label.split(',')[0]}: {number_text(metrics[q.key])}" for q in data.quantities]
    if data.latency.key != "cycles":
        lines.append(f"cycles: {number_text(metrics['cycles'])}")
    lines.append(f"utilisation {metrics['utilization']:.0%}")
    return "\n".join(lines)


def front_plot(data: SweepData, x: Quantity, y: Quantity, chosen: Sequence[int]) -> Plot:
    """A plot of all points over two quantities, and of the front: the points that none dominates."""
    front = data.front_over(x.key, y.key)
    at = {p["number"]: (p["metrics"][x.key], p["metrics"][y.key]) for p in data.points}
    refused = [p["number"] for p in data.points if p["state"] != "done"]
    others = [n for n in at if n not in front and n not in refused]
    with _figure(6.2, 4.3) as figure:
        axes = figure.subplots()
        axes.set(xlabel=mathtext_escaped(x.label), ylabel=mathtext_escaped(y.label))
        for numbers, colour, label in (
            (refused, _REFUSED, "breaks a constraint"), (others, _OTHER, "beaten"), (front, _FRONT, "front"),
        ):  # fmt: skip
            if numbers:
                across, up = zip(*(at[n] for n in numbers))
                axes.scatter(across, up, s=26, color=colour, label=label, linewidths=0, zorder=3)
        if len(front) > 1:
            across, up = zip(*(at[n] for n in front))
            axes.step(across, up, where="post", color=_FRONT, linewidth=1, zorder=2)
        for number in chosen:
            axes.scatter(*at[number], s=90, facecolors="none", edgecolors=_CHOSEN, linewidths=1.6, zorder=4)
            axes.annotate(str(number), at[number], (6, 6), textcoords="offset points", color=_CHOSEN)
        scale(axes, [v[0] for v in at.values()], "x")
        scale(axes, [v[1] for v in at.values()], "y")
        axes.legend(fontsize=9, frameon=False)
    spots = [_spot(axes, *at[n], describe(data, n)) for n in [*refused, *others, *front]]
    title = f"{y.label.split(',')[0]} over {x.label.split(',')[0]}"
    about = f"{len(front)} of {len(data.feasible)} points are on the front; circles mark the points looked into below."
    return Plot(f"front_{x.key}_{y.key}", title, about, figure, spots)


def sensitivity_plot(data: SweepData, quantity: Quantity) -> Plot | None:
    """A plot of each axis's effect on a quantity, all else equal; None where no axis varies."""
    axes_varied = data.varied
    if not axes_varied:
        return None
    columns = min(3, len(axes_varied))
    rows = -(-len(axes_varied) // columns)
    effects = {name: effect(data, name, quantity.key) for name in axes_varied}
    with _figure(6.2, 1.9 * rows + 0.3) as figure:
        figure.subplots_adjust(wspace=0.08, hspace=0.45)
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for place, (name, found) in zip(grid.flat, effects.items()):
            where = np.arange(len(found.values))
            place.fill_between(where, found.low, found.high, color=_OTHER, alpha=0.45, linewidth=0)
            place.plot(where, found.middle, color=_FRONT, marker="o", markersize=4)
            place.axhline(1.0, color="black", linewidth=0.6)
            place.set_xticks(where, [mathtext_escaped(number_text(v)) for v in found.values])
            place.set_title(mathtext_escaped(name), fontsize=10.5)
        for place in list(grid.flat)[len(axes_varied) :]:
            place.set_visible(False)
    spots = []
    for place, (name, found) in zip(grid.flat, effects.items()):
        for n, value in enumerate(found.values):
            if math.isfinite(found.middle[n]):
                text = f"{name} {value}\n{found.middle[n]:.2f} of the first value\n"
                text += f"{found.low[n]:.2f} to {found.high[n]:.2f}, {found.pairs[n]} pairs"
                spots.append(_spot(place, n, found.middle[n], text))
    about = (
        "Change against the axis' first value, all other axes equal: the line is the geometric mean, the band reaches "
        "from the least to the greatest change."
    )
    return Plot(f"sensitivity_{quantity.key}", quantity.label.split(",")[0], about, figure, spots)


def timeline_plot(found: Inside, name: str) -> Plot:
    """A timeline of the engines, by the share of each slot in which they work, and of the layers, in cycles."""
    total = max(1, found.cycles)
    edges = np.linspace(0, total, found.busy.shape[1] + 1)
    with _figure(9.0, 2.6) as figure:
        axes = figure.subplots()
        start, rows = 0, []
        for number, row in enumerate(found.rows):
            rows.append((start, row))
            axes.broken_barh([(start, row.cycles)], (4.15, 0.7), color=_LAYERS[number % 2], linewidth=0)
            start += row.cycles
        for level, (engine, colour) in enumerate(_ENGINES.items()):
            low = 3.15 - level
            shares = found.busy[list(_ENGINES).index(engine)] / 255
            axes.stairs(low + 0.7 * shares, edges, baseline=low, fill=True, color=colour, linewidth=0)
        axes.set_yticks([4.5, 3.5, 2.5, 1.5, 0.5], ["layers", *_ENGINES])
        axes.set(xlabel="cycles", xlim=(0, total), ylim=(0, 5))
        axes.grid(False)
        axes.xaxis.set_major_formatter(Prefixed())
    spots = []
    for at, row in rows:
        text = f"{row.layer.name}\n{row.layer.op}\n{row.cycles:,} cycles, bound {row.bound:,}"
        if row.cycles:
            spots.append(_spot(axes, at + row.cycles / 2, 4.5, text))
    about = (
        "A layer's bar reaches from the end of the one before to its own end. An engine's height is the share of the "
        "time in which it works."
    )
    return Plot(f"timeline_{name}", "Timeline", about, figure, spots)
