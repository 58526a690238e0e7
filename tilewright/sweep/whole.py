"""Whole sweeps: `run` of a space and networks, and `sweep` from the file of a space and the names of networks."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.common.options import collect, keywords
from tilewright.errors import UsageError
from tilewright.sweep.database import Database
from tilewright.sweep.dispatch import Dispatcher
from tilewright.sweep.fronts import pareto_front
from tilewright.sweep.networks import DEFAULT_NETWORKS, Network, network_name, resolve
from tilewright.sweep.options import SweepOptions
from tilewright.sweep.outcome import Outcome
from tilewright.sweep.runner import Sweep
from tilewright.sweep.search import search
from tilewright.sweep.space import Space, boards_of, load_space
from tilewright.sweep.verification import verify


def read(
    space: str | Path,
    networks: Sequence[str] = (),
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    clock_mhz: float | None = None,
    board: str | None = None,
) -> tuple[Space, list[Network]]:
    """A space and the networks it is swept over; see `sweep`."""
    return read_boards(space, networks, shapes=shapes, clock_mhz=clock_mhz, boards=[board])[board]


def read_boards(
    space: str | Path,
    networks: Sequence[str] = (),
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    clock_mhz: float | None = None,
    boards: Sequence[str | None],
) -> dict[str | None, tuple[Space, list[Network]]]:
    """Spaces with their networks, as `read` returns them, by board; networks are read once for all boards."""
    found: dict[str | None, tuple[Space, list[Network]]] = {}
    resolved: dict[tuple[str, ...], list[Network]] = {}
    for board in boards:
        named = tuple(networks) or tuple(load_space(space, board=board).models) or tuple(DEFAULT_NETWORKS)
        loaded = load_space(space, [network_name(name) for name in named], clock_mhz=clock_mhz, board=board)
        if named not in resolved:
            resolved[named] = resolve(named, shapes)
        found[board] = loaded, resolved[named]
    return found


@keywords(SweepOptions)
def sweep(
    space: str | Path,
    output: str | Path,
    networks: Sequence[str] = (),
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    clock_mhz: float | None = None,
    board: str | None = None,
    **options: Any,
) -> Outcome:
    """Sweeps the configurations of a space over networks, as `tilewright sweep` does.

    The local cluster starts processes: a script calls this below `if __name__ == "__main__":`.

    Args:
        space: TOML file with axes, constraints, search and objectives; see docs/sweeps.md.
        output: folder of the database, made if missing; what it has already is not computed again.
        networks: ONNX or TFLite files, or names of the zoo; by default those of the space, else `DEFAULT_NETWORKS`.
        shapes: of inputs that ONNX files leave open, by name.
        clock_mhz: for times; by default that of the space, of place and route, or of the calibrated model.
        board: that the space is for, in place of its own.
        options: fields of `tilewright.sweep.options.SweepOptions`, such as `jobs`, `synth` and `verify`.

    Returns:
        All points, and those of them that no other one beats.

    Raises:
        UsageError: space, networks or another argument cannot be used; one line that says why.
    """
    collect(SweepOptions, options, "sweep")  # refuses what is unknown before networks are read
    loaded, found = read(space, networks, shapes=shapes, clock_mhz=clock_mhz, board=board)
    return run(loaded, found, output, **options)


@keywords(SweepOptions)
def sweep_boards(
    space: str | Path,
    output: str | Path,
    networks: Sequence[str] = (),
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    clock_mhz: float | None = None,
    boards: Sequence[str] = (),
    **options: Any,
) -> dict[str, Outcome]:
    """Sweeps a space once for each of several boards, which share results in one database: a board is an axis.

    Args:
        boards: in place of those that the space names.
        space, output, networks, shapes, clock_mhz, options: as for `sweep`.

    Returns:
        What `sweep` returns, by board.

    Raises:
        UsageError: as `sweep`, or there is no board.
    """
    collect(SweepOptions, options, "sweep_boards")
    chosen = list(dict.fromkeys(boards)) or boards_of(space)
    if not chosen:
        raise UsageError(f"{space} names no board: board = [NAME, ...] in it, or boards in the call")
    spaces = read_boards(space, networks, shapes=shapes, clock_mhz=clock_mhz, boards=chosen)
    return {name: run(*spaces[name], output, **options) for name in chosen}


@keywords(SweepOptions)
def run(space: Space, networks: list[Network], folder: str | Path, **options: Any) -> Outcome:
    """Sweeps a space; what the folder's database has already is not computed again.

    Args:
        space: made for these networks.
        networks: each is compiled for every point.
        folder: of the database, made if missing.
        options: fields of `SweepOptions`.

    Raises:
        UsageError: a mistake in the arguments, or the scheduler is gone for good; the database is valid.
    """
    chosen = collect(SweepOptions, options, "run")
    folder = Path(folder)
    models = {network.digest: network.content for network in networks}
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(Database(folder))

        def dispatcher() -> Dispatcher:
            return Dispatcher(models, work.jobs, chosen.scheduler, folder / "workers.log")

        work = Sweep(space, networks, database, dispatcher, chosen)
        stack.callback(work.close)
        search(space, work.evaluate, work.sketching)
        verifications = verify(work, chosen.verify) if chosen.verify else []
        database.end_sweep(work.id)
        points = database.sweep_points(work.id)
        done = [p for p in points if p["state"] == "done"]
        rows = [tuple(p["metrics"][f"objective{n}"] for n in range(len(space.objectives))) for p in done]
        front = sorted((done[n] for n in pareto_front(rows)), key=lambda p: p["metrics"]["objective0"])
        return Outcome(
            work.id, points, front, work.computed, work.reused, verifications, work.metrics.area_model,
            work.metrics.clock_model, space, folder, work.unpruned,
        )  # fmt: skip
