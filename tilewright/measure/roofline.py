"""The roofline plot of `tilewright explain`."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tilewright.common.text import mathtext_escaped
from tilewright.errors import UsageError
from tilewright.isa.config import NpuConfig
from tilewright.measure.explain import Explanation
from tilewright.measure.labels import short_name
from tilewright.simulator.attribution import LOSSES, LayerLosses
from tilewright.store.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".html")
_LABELS = 6
_APART = 11.0
#: Inches, and points of the smallest text: shown 400 pixels wide, it is 9 pixels high.
_SIZE, _FONT = (6, 6), 10
_KINDS = {"fused": "#7b4fa3", "depthwise": "#d1741f", "other": "#2b6cb0"}


class LayerRun(Protocol):
    """A run of a program seen layer by layer, as `Explanation` is."""

    @property
    def name(self) -> str:
        """Name of the program."""

    @property
    def config(self) -> NpuConfig: ...

    @property
    def rows(self) -> list[LayerLosses]: ...

    @property
    def cycles(self) -> int: ...

    @property
    def bound(self) -> int: ...

    def active_cycles(self, row: LayerLosses) -> int:
        """Cycles in which an engine works for a layer."""


def check_suffix(path: Path) -> None:
    """Raises `UsageError` for a kind of file that cannot be written."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--plot writes {', '.join(SUFFIXES)}, not {path.suffix or 'a file without suffix'!r}")


def points(found: LayerRun, rows: Sequence[LayerLosses]) -> tuple[np.ndarray, np.ndarray]:
    """MAC per byte and MAC per cycle of layers, as `figure` shows them: float64 [rows] each."""
    macs = np.array([row.layer.macs for row in rows], float)
    moved = np.array([max(1, row.layer.read_bytes, row.layer.write_bytes) for row in rows], float)
    cycles = np.array([max(1, found.active_cycles(row)) for row in rows], float)
    return macs / moved, macs / cycles


def figure(found: LayerRun) -> Figure:
    """MAC per cycle over MAC per byte moved, a point per layer with MACs, its area the layer's share of the cycles.

    Cycles are those in which an engine works for the layer, bytes those of the busier of the two channels of the bus:
    by these no layer can lie above the roof, whatever of it is done in the time of others.
    """
    from matplotlib.figure import Figure

    from tilewright.measure.axes import scale

    config = found.config
    peak, bus = config.macs_per_cycle, config.bus_bytes
    rows = [row for row in found.rows if row.layer.macs and row.cycles]
    x, y = points(found, rows)
    ridge = peak / bus
    low = min(float(x.min(initial=ridge)), ridge) / 2
    high = max(float(x.max(initial=ridge)), ridge) * 3
    shown = Figure(figsize=_SIZE, layout="constrained")
    axes, below = shown.subplots(2, height_ratios=(3, 1))
    below.set_axis_off()
    axes.set(xscale="log", yscale="log")
    axes.set(xlabel="MAC per byte moved (on the busier channel)", ylabel="MAC per cycle at work")
    axes.plot([low, ridge, high], [low * bus, peak, peak], color="black", linewidth=1.5)
    axes.annotate(f"{peak} MAC/cycle", (high, peak), (-6, 5), textcoords="offset points", ha="right")
    half = (low * ridge) ** 0.5
    axes.annotate(f"{bus} B/cycle", (half, half * bus), (-8, 4), textcoords="offset points", ha="right")
    kinds = ["fused" if len(r.members) > 1 else "depthwise" if r.losses["window"] else "other" for r in rows]
    for kind, colour in _KINDS.items():
        mine = [i for i, k in enumerate(kinds) if k == kind]
        if mine:
            areas = [20 + 1500 * rows[i].cycles / max(1, found.cycles) for i in mine]
            axes.scatter(x[mine], y[mine], areas, color=colour, alpha=0.6, linewidths=0, label=kind)
    bottom, top = float(min([low * bus, *y])) / 1.6, float(max([peak, *y])) * 3
    scale(axes, [low, high], "x")
    scale(axes, [bottom, top], "y")
    axes.set(xlim=(low, high), ylim=(bottom, top))
    above = sorted((i for i, row in enumerate(rows) if row.cycles > row.bound), key=lambda i: _above(rows[i]))
    worst = above[-_LABELS:][::-1]
    if worst:
        lines = [f"{number} {_about(rows[i])}" for number, i in enumerate(worst, 1)]
        text = mathtext_escaped("\n".join(["most cycles above the bound", *lines]))
        below.text(0, 1, text, transform=below.transAxes, ha="left", va="top", fontsize=_FONT)
    axes.grid(True, which="major", linewidth=0.4, alpha=0.6)
    if rows:
        marks = axes.legend(title="layers (area: cycles)", loc="lower right", fontsize=_FONT, title_fontsize=_FONT)
        for mark in marks.legend_handles:
            mark.set_sizes([40])
    utilization = found.bound / max(1, found.cycles)
    title = f"{found.name} on {config.name}: {found.cycles:,} cycles, utilisation {utilization:.0%}"
    axes.set_title(mathtext_escaped(title), fontsize=11, loc="left")
    shown.draw_without_rendering()  # lays it out, so that places are known
    places: list[list[float]] = (axes.transData.transform(np.column_stack([x, y])[worst]) * 72 / shown.dpi).tolist()
    for number, (i, lift) in enumerate(zip(worst, _lifts(places)), 1):
        axes.annotate(
            str(number), (x[i], y[i]), (0, lift), textcoords="offset points", ha="center", va="center",
            fontsize=_FONT, fontweight="bold",
        )  # fmt: skip
    return shown


def _lifts(places: Iterable[Sequence[float]]) -> list[float]:
    """Points to raise each number above its place (x, y), so that no two overlap."""
    taken: list[tuple[float, float]] = []
    lifts = []
    for px, py in places:
        at = py
        while any(abs(px - x) < _APART and abs(at - y) < _APART for x, y in taken):
            at += _APART
        taken.append((px, at))
        lifts.append(at - py)
    return lifts


def _above(row: LayerLosses) -> int:
    return row.cycles - row.bound


def _about(row: LayerLosses) -> str:
    lost = max(row.losses, key=row.losses.__getitem__)
    return f"{short_name(row.layer.name, 24)}: {_above(row):,}, mostly {lost}"


def write_plot(path: Path, found: Explanation) -> None:
    """Writes the plot as .png or .svg, or as an .html page with the numbers below it. Raises `UsageError`."""
    check_suffix(path)
    kind = path.suffix.lower()[1:]
    buffer = io.BytesIO()
    figure(found).savefig(buffer, format="png" if kind == "png" else "svg", dpi=130, metadata=_metadata(kind))
    data = buffer.getvalue()
    if kind == "html":
        data = _page(data.decode(), found).encode()
    write_bytes(path, data)


def _metadata(kind: str) -> dict[str, str | None]:
    return {"Software": None} if kind == "png" else {"Date": None, "Creator": None}


def _page(svg: str, found: Explanation) -> str:
    """The plot with a table of the layers below it."""
    rows = []
    for row in found.rows:
        layer = row.layer
        numbers = [layer.macs, layer.read_bytes + layer.write_bytes, layer.minimum_bytes, row.bound, row.cycles]
        cells = [layer.name, layer.op, *(f"{n:,}" for n in numbers), f"{row.utilization:.0%}"]
        rows.append([*cells, *(f"{row.losses[key]:,}" if row.losses[key] else "" for key in LOSSES)])
    heads = ("layer", "op", "MAC", "bytes", "least bytes", "bound", "cycles", "utilisation", *LOSSES)
    from jinja2 import Environment, StrictUndefined  # as pages alone need it

    template = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True).from_string(
        (files(__package__) / "roofline.html").read_text(encoding="utf-8")
    )
    return template.render(
        title=f"{found.program.name} on {found.program.config.name}",
        svg=svg[svg.index("<svg") :],
        heads=[(head, LOSSES.get(head, head)) for head in heads],
        rows=rows,
    )
