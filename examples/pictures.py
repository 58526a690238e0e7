"""Draws the pictures of the documentation: `make pictures`.

docs/images/timeline.svg: ResNet-8 of the zoo on `base`, when each engine worked, by the cycle-level simulator.
The others are the diagrams of `diagrams.py`; `python examples/pictures.py npu.svg tiles.svg` draws some.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from diagrams import DIAGRAMS
from matplotlib.figure import Figure

import tilewright as tw
from tilewright import zoo
from tilewright.isa.instructions import Engine
from tilewright.measure.explain import Explanation, explain

TIMELINE = "timeline.svg"
FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images"
ENGINES = {
    Engine.LOAD: "LOAD\nfrom DRAM",
    Engine.GEMM: "GEMM\n16 x 16 array",
    Engine.VECTOR: "VECTOR\nrequantise, add",
    Engine.STORE: "STORE\nto DRAM",
}
COLOURS = (
    "#4c78a8",
    "#f58518",
    "#54a24b",
    "#e45756",
    "#72b7b2",
    "#b279a2",
    "#9d755d",
    "#d4a72c",
    "#7a8b99",
    "#3b6e8f",
    "#bf5b17",
)
STYLE = {"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 11, "svg.hashsalt": "tilewright"}
#: Bars of a layer that are closer than this share of the width are drawn as one.
NEAR = 1 / 700


def main(names: list[str]) -> None:
    """Draws the pictures of these names, all of them without a name."""
    FOLDER.mkdir(exist_ok=True)
    for name in names or [TIMELINE, *DIAGRAMS]:
        path = FOLDER / name
        with matplotlib.rc_context(STYLE):
            figure = resnet8() if name == TIMELINE else DIAGRAMS[name]()
            figure.savefig(path, metadata={"Date": None, "Creator": None})
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        print(f"{shown}: {path.stat().st_size} bytes")


def resnet8() -> Figure:
    return timeline(explain(tw.compile_program(zoo.build_quantized("resnet8"), "base", cache=False)))


def timeline(found: Explanation) -> Figure:
    """One track per engine; the colour says for which layer it worked."""
    figure = Figure(figsize=(10, 3.6), layout="constrained", facecolor="white")
    axes = figure.subplots()
    bars = _bars(found)
    for (engine, layer), intervals in bars.items():
        level = len(ENGINES) - list(ENGINES).index(engine)
        bars_of_one = [(a, b - a) for a, b in merged(intervals, NEAR * found.cycles)]
        axes.broken_barh(bars_of_one, (level - 0.36, 0.72), color=COLOURS[layer % len(COLOURS)], linewidth=0.5)
    for layer, row in enumerate(found.rows):
        mine = bars.get((Engine.GEMM, layer))
        if mine and row.cycles > 0.03 * found.cycles:
            middle = (min(a for a, _ in mine) + max(b for _, b in mine)) / 2
            name = row.layer.name.replace(" + ", "\n+ ")
            axes.annotate(name, (middle, len(ENGINES) - 1), ha="center", va="center", color="white", fontsize=9)
    axes.set_yticks(range(len(ENGINES), 0, -1), list(ENGINES.values()))
    axes.tick_params(axis="y", length=0)
    axes.set(xlim=(0, found.cycles), xlabel="cycles", ylim=(0.5, len(ENGINES) + 0.5))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.spines[["top", "right", "left"]].set_visible(False)
    macs, peak = sum(row.layer.macs for row in found.rows), found.program.config.macs_per_cycle
    above = found.cycles / found.bound - 1
    title = (
        f"ResNet-8, {macs / 1e6:.1f} MMAC on {peak} multipliers: {found.cycles:,} cycles, {above:.0%} above the bound"
    )
    axes.set_title(title, fontsize=12, loc="left")
    return figure


def _bars(found: Explanation) -> dict[tuple[Engine, int], list[tuple[int, int]]]:
    """Intervals in which an engine worked for a layer (a row of the explanation)."""
    layer_of = {}
    for number, row in enumerate(found.rows):
        for layer in row.members:
            layer_of |= dict.fromkeys(range(layer.first, layer.first + layer.count), number)
    ops = found.program.ops()
    bars: dict[tuple[Engine, int], list[tuple[int, int]]] = defaultdict(list)
    offset = 0
    for trace in found.traces:
        for index, (_, _, started, ended) in enumerate(trace.times.tolist()):
            engine, layer = ops[trace.first + index].instruction.engine, layer_of.get(trace.first + index)
            if engine in ENGINES and layer is not None and started and ended:
                bars[engine, layer].append((offset + started, offset + ended))
        offset += trace.cycles
    return bars


def merged(intervals: Sequence[tuple[float, float]], gap: float) -> list[tuple[float, float]]:
    """Sorts intervals, and merges those that touch or are at most `gap` apart: a plot cannot show them apart."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if found and start - found[-1][1] <= gap:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
