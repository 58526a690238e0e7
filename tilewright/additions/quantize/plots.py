"""Pictures: the SQNR of the layers, and the candidates of a decision by time and accuracy."""

from __future__ import annotations

import io
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from tilewright.common.text import mathtext_escaped
from tilewright.quantize.decision import Decision
from tilewright.quantize.sqnr import Report

_STYLE: Any = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9, "axes.spines.top": False,
    "axes.spines.right": False, "svg.hashsalt": "tilewright",
}  # fmt: skip
_COLOURS = {"int8": "#1f5fa8", "int16": "#7b4fa3", "float": "#c4801c"}
_MOST = 40
"""Layers shown, the worst."""


def layers_picture(report: Report, kind: str) -> bytes:
    """A bar per layer, the worst at the top, and a line per output.

    Args:
        kind: "png" or "svg".
    """
    rows = report.layers[:_MOST]
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8, 1.2 + 0.2 * max(len(rows), 1)), layout="constrained")
        axes = figure.subplots()
        for precision, colour in _COLOURS.items():
            at = [i for i, row in enumerate(rows) if row.precision == precision]
            if at:
                axes.barh(at, [rows[i].sqnr for i in at], color=colour, label=precision)
        axes.set_yticks(range(len(rows)), [mathtext_escaped(_short(f"{row.op} {row.layer}")) for row in rows])
        axes.invert_yaxis()
        for decibels in report.outputs.values():
            axes.axvline(decibels, color="#c4451c", linewidth=0.8, linestyle="--")
        axes.set(xlabel="SQNR in dB; dashed: outputs", title=f"The {len(rows)} worst layers")
        axes.legend(loc="lower right", frameon=False)
        return _saved(figure, kind)


def pareto_picture(decision: Decision, kind: str) -> bytes:
    """The candidates by estimated cycles and dB; a line joins those than which none is as fast and more accurate.

    Args:
        kind: "png" or "svg".
    """
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        front = decision.front
        axes.plot([x.cycles for x in front], [x.decibels for x in front], color="#888888", linewidth=1, zorder=1)
        for one in decision.candidates:
            chosen = one is decision.chosen
            axes.scatter(one.cycles, one.decibels, color=_COLOURS["float" if one.kept else "int8"],
                         marker="*" if chosen else "o", s=140 if chosen else 30, zorder=2)  # fmt: skip
            text = mathtext_escaped(f"{one.name}, {one.share:.0%} of the MACs not in int8" if one.kept else one.name)
            axes.annotate(text, (one.cycles, one.decibels), xytext=(6, 0), textcoords="offset points", va="center")
        if decision.goal is not None:
            axes.axhline(decision.goal, color="#c4451c", linewidth=0.8, linestyle="--")
        axes.margins(0.25, 0.1)
        axes.set(xlabel="cycles, estimated", ylabel="SQNR of the worst output in dB; dashed: goal",
                 title="What was compared; the star was chosen")  # fmt: skip
        return _saved(figure, kind)


def _saved(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
    return buffer.getvalue()


def _short(text: str) -> str:
    return text if len(text) <= 48 else f"{text[:24]}…{text[-23:]}"
