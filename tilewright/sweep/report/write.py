"""`write_report`: the page and the plots of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright.measure.compare import differences
from tilewright.store.files import write_files
from tilewright.sweep.database import Database
from tilewright.sweep.report.advice import advise
from tilewright.sweep.report.data import SweepData, load
from tilewright.sweep.report.inside import look_inside, plots_of
from tilewright.sweep.report.page import render
from tilewright.sweep.report.plots import front_plot, sensitivity_plot

PAGE = "report.html"


def write_report(
    folder: str | Path,
    output: str | Path,
    *,
    sweep: str | None = None,
    point: int | None = None,
    against: int | None = None,
    progress: Callable[[str, float], None] = lambda text, done: None,
) -> dict[str, Any]:
    """Writes `report.html` and every plot as PNG and SVG.

    Args:
        folder: with the sweep's database.
        output: folder to write to, made if missing.
        sweep: beginning of a sweep's id; by default the last one.
        point: number of the point to look into; by default the best by the first objective.
        against: number of the point to compare it with; by default the best by the last objective.
        progress: called with what is being done and the fraction done.

    Returns:
        Names of what was written and the numbers chosen, for JSON.

    Raises:
        UsageError: no database there, or no such sweep or point.
    """
    with Database.existing(folder) as database:
        data = load(database, sweep)
        progress("reading layers", 0.1)
        ends = _chosen(data, point, against)
        insides, missing = look_inside(database, data, ends, progress)
    advice = advise(data, insides)
    progress("drawing", 0.4)
    quantities = data.changing
    fronts = [front_plot(data, quantities[0], other, ends) for other in quantities[1:]]
    effects = [plot for q in quantities if (plot := sensitivity_plot(data, q)) is not None]
    drawn = [(found, plots_of(found)) for name in data.networks if (found := insides.get((ends[0], name))) is not None]
    progress("writing", 0.7)
    page = render(data, fronts, effects, insides, drawn, missing, advice, ends)
    files: dict[str, str | bytes] = {PAGE: page}
    for plot in [*fronts, *effects, *(plot for _, plots in drawn for plot in plots)]:
        files |= {f"{plot.name}.svg": plot.svg, f"{plot.name}.png": plot.png()}
    write_files(output, files)
    chosen, other = ends[0], ends[1] if len(ends) > 1 else None
    beside = {name: found.cycles for (number, name), found in insides.items() if number == other}
    return {
        "sweep": data.row["id"],
        "page": str(Path(output) / PAGE),
        "plots": sorted(name for name in files if name != PAGE),
        "points": len(data.points),
        "front": data.front,
        "recommended": advice.point,
        "recommendation": advice.sentences,
        "point": chosen,
        "against": other,
        "config_differences": differences(data.machine(ends[-1]).config, data.machine(chosen).config),
        "networks": {
            found.name: {"cycles": found.cycles, "against_cycles": beside.get(found.name)} for found, _ in drawn
        },
    }


def _chosen(data: SweepData, point: int | None, against: int | None) -> list[int]:
    """Numbers of the point looked into and of that beside it; the front's two ends unless others are asked for."""
    last = f"objective{len(data.space.objectives) - 1}"
    ends = data.front or [data.points[0]["number"]]
    first = ends[0] if point is None else data.point(point)["number"]
    second = (
        min(ends, key=lambda n: data.point(n)["metrics"][last]) if against is None else data.point(against)["number"]
    )
    return [first] if against is None and second == first else [first, second]
