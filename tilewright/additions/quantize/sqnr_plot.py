"""SQNR of the layers as a picture."""

from __future__ import annotations

import io
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from tilewright.common.text import mathtext_escaped
from tilewright.quantize.sqnr import Report

_STYLE: Any = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9, "axes.spines.top": False,
    "axes.spines.right": False, "svg.hashsalt": "tilewright",
}  # fmt: skip
_COLOURS = {"int8": "#1f5fa8", "int16": "#7b4fa3", "float": "#c4801c"}
_MOST = 40
"""Layers shown, the worst."""


def picture(report: Report, kind: str) -> bytes:
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
        buffer = io.BytesIO()
        metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
        figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
    return buffer.getvalue()


def _short(text: str) -> str:
    return text if len(text) <= 48 else f"{text[:24]}…{text[-23:]}"
