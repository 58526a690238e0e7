"""CPU seconds of `tilewright report` for 100 points of `examples/sweeps/array.toml` on its five networks.

The sweep itself would take half an hour. So each network is compiled and run once, on `base`, and every point has that
result with its cycles scaled by the multipliers: the report reads, draws and writes as much as for a real sweep.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tilewright.fpga.bare.command import one_line_errors
from tilewright.isa.config import ConfigError, preset
from tilewright.isa.timing import DEFAULT_MEMORY
from tilewright.sweep import Database, load_space, resolve, worker
from tilewright.sweep.metrics import Metrics

SPACE = Path(__file__).resolve().parents[2] / "examples" / "sweeps" / "array.toml"
#: CPU seconds that 100 points on five networks may take.
TARGET = 8.0
EFFORT = 1


def make(folder: Path, count: int, names: Sequence[str]) -> None:
    """Makes the database of a sweep of `count` points over networks of the zoo."""
    networks = resolve(names)
    space = load_space(SPACE, list(names))
    worker.Models({network.digest: network.content for network in networks}).setup(None)
    task = {"kind": "cycles", "config": preset("base").to_dict(), "timing": asdict(DEFAULT_MEMORY), "effort": EFFORT,
            "sources": worker.sources_digest()}  # fmt: skip
    results = {network.digest: worker.evaluate(task | {"network": network.digest}) for network in networks}
    metrics = Metrics(space, networks, "model")
    rng, number = random.Random(0), 0
    with Database(folder) as database:
        database.keep_networks(networks)
        digests = {network.name: network.digest for network in networks}
        sweep = database.begin_sweep(space.text, digests, EFFORT, "model")
        while number < count:
            assignment = space.assignment(rng.randrange(space.size))
            try:
                point = space.point(assignment)
            except ConfigError:
                continue
            database.keep_point(point)
            rows: list[dict[str, Any]] = []
            for digest, result in results.items():
                cycles = result["cycles"] * preset("base").macs_per_cycle // point.config.macs_per_cycle
                row = {"point": point.id, "network": digest, "sources": task["sources"], "effort": EFFORT}
                database.keep("cycles", f"{point.id}{digest}", row | result | {"cycles": cycles})
                rows.append(row | result | {"cycles": cycles, "key": digest})
            found = metrics.of_results(point, rows)
            values = space.values(point) | found
            found |= {f"objective{n}": o.number(values) for n, o in enumerate(space.objectives)}
            database.keep_sweep_point(sweep, number, assignment, "done", point=point.id, metrics=found)
            number += 1
        database.end_sweep(sweep)


def cpu_seconds(folder: Path) -> float:
    """CPU seconds of the command, in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "tilewright", "report", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@click.command()
@click.option("--points", type=click.IntRange(min=1), default=100, show_default=True)
@click.argument("networks", nargs=-1)
def main(points: int, networks: tuple[str, ...]) -> None:
    """Measure `tilewright report` on a made-up sweep over NETWORKS of the zoo, by default those of the space."""
    names = networks or load_space(SPACE).models
    with one_line_errors(), tempfile.TemporaryDirectory() as folder:
        make(Path(folder), points, names)
        seconds = cpu_seconds(Path(folder))
        size = (Path(folder) / "report" / "report.html").stat().st_size
    target = f", target {TARGET:g}" if not networks and points == 100 else ""
    click.echo(
        f"{points} points, {len(names)} networks: {seconds:.1f} CPU seconds{target}; a page of {size / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    main()
