"""`write_report`: the page and the plots of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright.errors import UsageError
from tilewright.measure.compare import differences
from tilewright.store.files import write_files
from tilewright.sweep.database import FILE, Database
from tilewright.sweep.report.data import SweepData, load
from tilewright.sweep.report.inside import look_inside
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
    folder = Path(folder)
    if not (folder / FILE).is_file():
        raise UsageError(f"{folder} has no {FILE}; `tilewright sweep -o {folder}` makes one")
    with Database(folder) as database:
        data = load(database, sweep)
        chosen, other = _chosen(data, point, against)
        marked = [chosen] if other is None else [chosen, other]
        progress("drawing", 0.0)
        quantities = data.changing
        fronts = [
            front_plot(data, x, y, marked) for number, x in enumerate(quantities[:-1]) for y in quantities[number + 1 :]
        ]
        effects = [plot for q in quantities if (plot := sensitivity_plot(data, q)) is not None]
        insides, missing = [], []
        for number, (name, digest) in enumerate(data.networks.items()):
            progress(f"looking into {name}", 0.2 + 0.7 * number / len(data.networks))
            content = database.network_content(digest)
            if content is None:
                missing.append(name)
            else:
                insides.append(look_inside(data, name, content, chosen, other))
    progress("writing", 0.9)
    plots = [*fronts, *effects, *(plot for inside in insides for plot in inside.plots)]
    page = render(data, fronts, effects, insides, missing, chosen, other)
    files: dict[str, str | bytes] = {PAGE: page}
    for plot in plots:
        files |= {f"{plot.name}.svg": plot.svg, f"{plot.name}.png": plot.png()}
    write_files(output, files)
    return {
        "sweep": data.row["id"],
        "page": str(Path(output) / PAGE),
        "plots": sorted(name for name in files if name != PAGE),
        "points": len(data.points),
        "front": data.front,
        "point": chosen,
        "against": other,
        "config_differences": differences(
            data.machine(other if other is not None else chosen).config, data.machine(chosen).config
        ),
        "networks": {
            i.network: {
                "cycles": i.explanation.cycles,
                "against_cycles": i.comparison.a.cycles if i.comparison is not None else None,
            }
            for i in insides
        },
    }


def _chosen(data: SweepData, point: int | None, against: int | None) -> tuple[int, int | None]:
    """Numbers of both points; the front's two ends unless others are asked for."""
    last = f"objective{len(data.space.objectives) - 1}"
    ends = data.front or [data.points[0]["number"]]
    first = ends[0] if point is None else data.point(point)["number"]
    if against is not None:
        return first, data.point(against)["number"]
    cheap = min(ends, key=lambda n: data.point(n)["metrics"][last])
    return first, cheap if cheap != first else None
