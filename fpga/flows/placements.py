"""Several placements of a netlist, of which the best is routed."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.flow import Progress

#: Placements at once, at most: each takes 1.3 GB for the larger designs.
AT_ONCE = 4
_CLOCK = re.compile(r"Max frequency for clock\s+'[^']*': ([0-9.]+) MHz")
#: Places the netlist of a folder with a seed, calling a function now and then, and returns the log.
Place = Callable[[Path, int, Callable[[], None]], str]
#: Places and routes the netlist of a folder with a seed.
Route = Callable[[Path, int], None]


def estimate(log: str) -> float:
    """The clock in MHz in a log of nextpnr, that of the slowest domain. Raises `FpgaError` if there is none."""
    found = [float(clock) for clock in _CLOCK.findall(log)]
    if not found:
        raise FpgaError("nextpnr gave no clock for the placement")
    return min(found)


def implement(
    directory: Path, files: Sequence[str], seeds: Sequence[int], place: Place, route: Route, progress: Progress
) -> int:
    """Places with every seed and routes the best by nextpnr's estimate; where that fails, the next one. With one seed
    there is nothing to choose.

    Args:
        directory: folder of the build, with the files that `place` needs and `route` writes.

    Returns:
        The seed that was routed.

    Raises:
        FpgaError: a tool failed, or no placement could be routed; then the message is that of the best one.
    """
    failures = []
    folders = {seed: directory / f"seed{seed}" for seed in seeds}
    order = list(seeds) if len(seeds) == 1 else _place_all(directory, files, folders, place, progress)
    for seed in order:
        progress("place and route")
        try:
            route(directory, seed)
        except FpgaError as failure:
            failures.append(failure)
            continue
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)
        return seed
    raise failures[0]


def _place_all(
    directory: Path, files: Sequence[str], folders: dict[int, Path], place: Place, progress: Progress
) -> list[int]:
    """Places with every seed, each in a folder of its own. Returns the placed seeds, the best first. Raises `FpgaError`
    if there is none.
    """
    clocks: dict[int, float] = {}
    failures: list[FpgaError] = []
    stop = threading.Event()

    def watch() -> None:
        if stop.is_set():
            raise FpgaError("placement: stopped")

    def one(seed: int) -> float:
        return estimate(place(folders[seed], seed, watch))

    with ThreadPoolExecutor(min(len(folders), os.cpu_count() or 1, AT_ONCE)) as pool:
        try:
            started = {}
            for seed, folder in folders.items():
                folder.mkdir(exist_ok=True)
                for name in files:
                    shutil.copy(directory / name, folder)
                started[pool.submit(one, seed)] = seed
            progress("placing")
            for done in as_completed(started):
                try:
                    clocks[started[done]] = done.result()
                except FpgaError as failure:
                    failures.append(failure)
                    continue
                best = max(clocks.values())
                progress(f"{len(clocks)} of {len(folders)} placed, the best {best:.1f} MHz before routing")
        finally:  # of Ctrl-C
            stop.set()
            pool.shutdown(cancel_futures=True)
    if not clocks:
        raise failures[0]
    return sorted(clocks, key=lambda seed: (-clocks[seed], seed))
