"""The inside of a point of a sweep: where its cycles go, beside another point."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.api.compilation import compile_program
from tilewright.measure.compare import Comparison, compare
from tilewright.measure.explain import Explanation, explain
from tilewright.measure.roofline import figure as roofline_figure
from tilewright.sweep.report.data import SweepData
from tilewright.sweep.report.plots import Plot, timeline_plot


@dataclass
class Inside:
    """A chosen point, and beside it another one, on one network.

    Attributes:
        network: name.
        explanation: of the chosen point.
        comparison: of the other point (a) with the chosen one (b), None without another.
        plots: roofline and timeline of the chosen point.
    """

    network: str
    explanation: Explanation
    comparison: Comparison | None
    plots: list[Plot]


def look_inside(data: SweepData, name: str, content: bytes, chosen: int, other: int | None) -> Inside:
    """Runs the network on the chosen point, and on the other one if there is one."""

    def run(number: int) -> Explanation:
        point = data.machine(number)
        config = point.config.with_(name=f"point {number}")
        program = compile_program(content, config, memory=point.timing, effort=data.row["effort"], tuning="off")
        program.name = name
        return explain(program, point.timing)

    found = run(chosen)
    label = "".join(c if c.isalnum() else "_" for c in name)
    roofline = Plot(f"roofline_{label}", "Roofline", "A point per layer, its area the layer's share of the cycles.",
                    roofline_figure(found))  # fmt: skip
    comparison = compare(run(other), found) if other is not None else None
    return Inside(name, found, comparison, [roofline, timeline_plot(found, label)])
