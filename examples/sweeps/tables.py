"""Tables from the databases of the example sweeps; docs/decisions/sweeps.md has them as they were then.

    for s in isa units queues memory pareto array; do tilewright sweep examples/sweeps/$s.toml -o build/sweeps/$s; done
    python examples/sweeps/tables.py build/sweeps

For each database: what each axis does with the other axes at their reference values, and the front.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilewright.sweep import Database
from tilewright.sweep.search import pareto_front
from tilewright.sweep.space import parse_space

_FRONT = 10
_METRICS = ("geomean_cycles", "utilization", "lut", "ff", "dsp", "bram")


def cell(name: str, value: float) -> str:
    """A metric for people."""
    return f"{value:.1%}" if name == "utilization" else f"{value:,.0f}"


def row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def heading(cells: list[str]) -> Iterator[str]:
    yield row(cells)
    yield row(["---"] * len(cells))


def axis_table(points: list[dict[str, Any]], axis: str, reference: dict[str, int]) -> Iterator[str]:
    """One row per value of an axis, the other axes at the reference."""
    yield from heading([f"`{axis}`", *_METRICS])
    for point in points:
        if all(value == reference[name] for name, value in point["assignment"].items() if name != axis):
            cells = [cell(name, point["metrics"][name]) for name in _METRICS]
            yield row([str(point["assignment"][axis]), *cells])


def front_table(points: list[dict[str, Any]]) -> Iterator[str]:
    """The front by the sweep's objectives, best first, thinned to a few rows."""
    count = sum(name.startswith("objective") for name in points[0]["metrics"])
    rows = [tuple(p["metrics"][f"objective{n}"] for n in range(count)) for p in points]
    front = sorted((points[n] for n in pareto_front(rows)), key=lambda p: p["metrics"]["objective0"])
    yield from heading([*(f"`{name}`" for name in points[0]["assignment"]), *_METRICS])
    for point in front[:: max(1, len(front) // _FRONT)]:
        cells = [cell(name, point["metrics"][name]) for name in _METRICS]
        yield row([*map(str, point["assignment"].values()), *cells])


def main(folder: Path) -> None:
    for path in sorted(folder.glob("*/sweep.sqlite")):
        with Database(path.parent) as database:
            sweep = database.query("select * from sweep order by started desc limit 1")[0]
            every = database.sweep_points(sweep["id"])
            cpu, results = database.query("select sum(cpu_seconds) as cpu, count(*) as n from result")[0].values()
        points = [p for p in every if p["state"] == "done"]
        print(
            f"\n### {path.parent.name}: {len(every)} points, {len(points)} done, {results} results, {cpu:.0f} CPU s\n"
        )
        if not points:
            continue
        space = parse_space(json.loads(sweep["space"]), json.loads(sweep["networks"]))
        if space.method == "grid":
            values = space.base.to_dict() | vars(space.timing)
            reference = {axis.field: values[axis.field] for axis in space.axes}
            for axis in space.axes:
                print("\n".join(axis_table(points, axis.field, reference)), end="\n\n")
        else:
            print("\n".join(front_table(points)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
