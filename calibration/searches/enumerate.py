"""`python -m calibration.searches.enumerate`: compiles all points of the space on every rung, and writes the truth."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import click

from calibration.searches.truth import COLUMNS, DATA, SPACE
from tilewright.cli import terminal
from tilewright.common.native import jobs
from tilewright.fpga.bare.command import one_line_errors
from tilewright.store.files import write_text
from tilewright.sweep import Database, read
from tilewright.sweep.dispatch import Dispatcher, Task
from tilewright.sweep.ladder import FULL
from tilewright.sweep.options import SweepOptions
from tilewright.sweep.rungs import RUNGS
from tilewright.sweep.runner import Sweep


@click.command(epilog="\b\nExample:\n  python -m calibration.searches.enumerate -o build/truth\n")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="DIR",
              help="Folder of the results; what it has is not computed again.")  # fmt: skip
@click.option("--write", default=DATA, show_default=True, type=click.Path(path_type=Path), help="File of the truth.")
def main(output: Path, write: Path) -> None:
    """Compile every point of the space, which takes an hour of CPU time."""
    with one_line_errors(), terminal.Working("compiling") as working, Database(output) as database:
        space, networks = read(SPACE)
        dispatcher = Dispatcher({n.digest: n.content for n in networks}, jobs(), None, output / "workers.log")
        try:
            sweep = Sweep(space, networks, database, lambda: dispatcher, SweepOptions())
            tasks: dict[int, list[Task]] = {}  # by number in the grid, of the points that keep the constraints
            for number, assignment in enumerate(space.grid):
                point, reason = sweep.possible(assignment)
                if point is not None and not reason:
                    database.keep_point(point)
                    tasks[number] = [task for rung in (*RUNGS, FULL) for task in sweep.tasks(point, rung)]
            left = [task for row in tasks.values() for task in row if database.find(task.kind, task.key) is None]
            for done, (task, result) in enumerate(dispatcher.run(left)):
                database.keep(task.kind, task.key, task.row | result)
                working.update(f"compiling: {done:,} of {len(left):,}", done, len(left))
        finally:
            dispatcher.close()
        order = {network.digest: place for place, network in enumerate(networks)}
        lines = io.StringIO()
        table = csv.writer(lines, lineterminator="\n")
        for number, row in tasks.items():
            for digest, place in order.items():
                table.writerow([number, place, *_values(database, [t for t in row if t.row["network"] == digest])])
        write_text(write, lines.getvalue())
    click.echo(f"{len(tasks)} points of {len(networks)} networks; {write}")


def _values(database: Database, tasks: list[Task]) -> list[int]:
    """The columns of a network on a point, by its tasks. Raises `KeyError` where one failed."""
    found: dict[str, Any] = {}
    for task in tasks:
        row = database.find(task.kind, task.key) or {}
        if task.kind == "rung":
            found |= {row["rung"]: row["cycles"], "least_bytes": row["dram_bytes"]}
        else:
            found |= {name: value for name, value in row.items() if name in COLUMNS}
    return [found[name] for name in COLUMNS]


if __name__ == "__main__":
    main()
