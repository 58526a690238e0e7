"""`python -m calibration.searches`: points that searches compile until they reach the truth."""

from __future__ import annotations

import statistics
from typing import Any

import click
from rich.table import Table

from calibration.searches.truth import Searched, Truth
from tilewright.cli import arguments, terminal
from tilewright.fpga.bare.command import one_line_errors
from tilewright.sweep.space import SAMPLERS

SHARE = 0.99
SEEDS = 3
#: Objectives that are searched for.
OBJECTIVES = (
    ["geomean_microseconds", "lut"],
    ["geomean_microseconds", "lut", "bram"],
)


def compare(objectives: list[str], budget: int = 120, seeds: int = SEEDS) -> list[dict[str, Any]]:
    """Runs every search with several seeds.

    Returns:
        For each search its name, how many runs reached `SHARE` of the truth's hypervolume, the median of points at
        full effort until then, and the median of all of them.
    """
    truth = Truth(objective={"minimise": objectives})
    alone = {"method": "pareto", "prune": False, "budget": len(truth.rows) // 3}
    chosen: dict[str, dict[str, Any]] = {"nsga2 alone": alone}
    chosen |= {name: {"method": "pareto", "sampler": name, "budget": budget} for name in SAMPLERS if name != "gp"}
    chosen["grid, pruned"] = {"method": "grid"}
    found = []
    for name, table in chosen.items():
        runs = [truth.searched(**table, seed=seed) for seed in range(1 if "grid" in name else seeds)]
        found.append({"search": name, "points": len(truth.rows), **summary(runs)})
    return found


def summary(runs: list[Searched]) -> dict[str, Any]:
    """Returns the medians over runs of a search."""
    counts = [run.reaching(SHARE) for run in runs]
    reached = [count for count in counts if count is not None]
    return {
        "runs": len(runs),
        "reached": len(reached),
        "until": statistics.median(reached) if reached else None,
        "most": max(reached, default=None),
        "compiled": statistics.median(len(run.shares) for run in runs),
        "share": min(run.shares[-1] for run in runs),
    }


@click.command(epilog="\b\nExample:\n  python -m calibration.searches --budget 60\n")
@click.option("--budget", type=click.IntRange(10, 100_000), default=120, show_default=True, help="Points of a search.")
@click.option("--seeds", type=click.IntRange(1, 100), default=SEEDS, show_default=True, help="Runs of a search.")
@arguments.json_option
def main(budget: int, seeds: int, json_path: str | None) -> None:
    """Points at full effort until a search has 99 % of the truth's hypervolume."""
    terminal.prepare_json(json_path)
    entries = {}
    with one_line_errors(), terminal.Working("searching") as working, terminal.stdout_for_json(json_path):
        for number, objectives in enumerate(OBJECTIVES):
            title = ", ".join(objectives)
            working.update(f"searching by {title}", number, len(OBJECTIVES))
            entries[title] = compare(objectives, budget, seeds)
    if terminal.emit_json(json_path, entries):
        for title, rows in entries.items():
            terminal.table_console().print(_table(title, rows))


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    shown = Table(title=f"{title}: {rows[0]['points']} points", title_justify="left")
    shown.add_column("search")
    for heading in ("runs that reach 99 %", "points compiled until then", "most", "compiled in all", "least share"):
        shown.add_column(heading, justify="right")
    for row in rows:
        until, most = (f"{row[key]:g}" if row[key] is not None else "" for key in ("until", "most"))
        shown.add_row(row["search"], f"{row['reached']} of {row['runs']}", until, most, f"{row['compiled']:g}",
                      f"{row['share']:.1%}")  # fmt: skip
    return shown


if __name__ == "__main__":
    main()
