"""`python -m calibration.searches.margins`: how far programs at full effort stay above what the lower rungs say.

The bound is proven. The estimate and the first schedule leave a margin to what the search was seen to save
(`tilewright.sweep.rungs`), so a change of the compiler may use it up. Pairs of a machine and a network are drawn at
random from `margins.toml`; what each rung and full effort say of them is in `margins.csv`.
"""

from __future__ import annotations

import csv
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

from tilewright.cli import terminal
from tilewright.fpga.bare.command import one_line_errors
from tilewright.sweep import Database, read
from tilewright.sweep.dispatch import Dispatcher
from tilewright.sweep.ladder import FULL
from tilewright.sweep.options import SweepOptions
from tilewright.sweep.rungs import RUNGS
from tilewright.sweep.runner import Sweep
from tilewright.sweep.search import distinct
from tilewright.sweep.worker import Models, evaluate

SPACE = Path(__file__).with_name("margins.toml")
DATA = Path(__file__).with_name("margins.csv")


def pairs() -> Iterator[tuple[str, str, dict[str, int]]]:
    """Yields id of a point, name of a network, and the cycles by rung, `FULL` among them, pair after pair, for ever.

    Machines without an answer, such as those that are too small for a layer, are left out.
    """
    space, networks = read(SPACE)
    Models({n.digest: n.content for n in networks}).setup(None)
    with tempfile.TemporaryDirectory() as folder, Database(folder) as database:
        sweep = Sweep(space, networks, database, _no_cluster, SweepOptions())
        for number, assignment in enumerate(distinct(space)):
            point, reason = sweep.possible(assignment)
            if point is None or reason:
                continue
            network = networks[number % len(networks)]
            found: dict[str, int] = {}
            for rung in (*RUNGS, FULL):
                (task,) = [t for t in sweep.tasks(point, rung) if t.row["network"] == network.digest]
                result = evaluate(task.job)
                if result["state"] != "done":
                    break
                found[rung] = result["cycles"]
            else:
                yield point.id, network.name, found


def _no_cluster() -> Dispatcher:
    raise AssertionError("nothing is dispatched here")


def least(file: Path = DATA) -> dict[str, float]:
    """Returns the least ratio of cycles at full effort to those of each rung, over all pairs of a file."""
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    return {rung: min(int(row[FULL]) / max(1, int(row[rung])) for row in rows) for rung in RUNGS}


@click.command(epilog="\b\nExample:\n  python -m calibration.searches.margins --minutes 15\n")
@click.option("--minutes", type=click.FloatRange(0.1, 10_000), default=15.0, show_default=True, help="Time to spend.")
@click.option("--write", default=DATA, show_default=True, type=click.Path(path_type=Path), help="File of the pairs.")
def main(minutes: float, write: Path) -> None:
    """Compile networks for random machines on every rung, one process, and show the least ratios."""
    ends = time.monotonic() + 60 * minutes
    with (
        one_line_errors(),
        terminal.Working("compiling") as working,
        write.open("w", newline="", encoding="utf-8") as file,
    ):
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["point", "network", *RUNGS, FULL])
        for count, (point, network, found) in enumerate(pairs(), 1):
            table.writerow([point, network, *found.values()])
            file.flush()
            working.update(f"compiling: {count} pairs")
            if time.monotonic() > ends:
                break
    click.echo(f"{count} pairs; cycles over those of the rung, at least: "
               + ", ".join(f"{rung} {ratio:.3f}" for rung, ratio in least(write).items()))  # fmt: skip


if __name__ == "__main__":
    main()
