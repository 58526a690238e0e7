"""Placement and routing of a netlist: one placement, or the best of several."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fpga.board import Capacity
from fpga.errors import FpgaError
from fpga.routing import Tried, Watch
from fpga.toolchain import CONSTRAINTS, NETLIST, PLACEMENT, PLACEMENT_LOG, Family, Plan, run

#: Placements at once, at most: each takes 1.3 GB for the larger designs.
AT_ONCE = 4
_CLOCK = re.compile(r"Max frequency for clock\s+'[^']*': ([0-9.]+) MHz")
Progress = Callable[[str], None]


def estimate(log: str) -> float:
    """The clock in MHz by a log of nextpnr, that of the slowest domain. Raises `FpgaError` if there is none."""
    found = [float(clock) for clock in _CLOCK.findall(log)]
    if not found:
        raise FpgaError("nextpnr gave no clock for the placement")
    return min(found)


@dataclass(frozen=True)
class Implementation:
    """What is placed and routed: the netlist in `directory`, for `mhz`; `crowded`: it takes much of the FPGA; `left`:
    LUTs it leaves, where it fills the FPGA, None where it does not."""

    family: Family
    platform: Any
    capacity: Capacity
    directory: Path
    mhz: float
    crowded: bool
    left: int | None = None

    @property
    def makes_room(self) -> bool:
        """Whether it is placed twice, the second time with room where wires are few, and then moved about."""
        return self.left is not None and self.family.room is not None

    def run(self, seeds: Sequence[int], progress: Progress) -> int:
        """Leaves what the packer takes in the folder. Returns the seed that was routed.

        Raises:
            FpgaError: a tool is missing or failed, or no placement could be routed; then the message is that of the
                best one.
        """
        if self.makes_room:
            assert self.family.can_refine is not None
            self.family.can_refine()
        plan = self.floorplan(progress)
        if len(seeds) == 1:
            plan(self.directory, seeds[0], progress)
            if self.makes_room:
                self.place(self.directory, seeds[0], self._watch(self.directory, progress))
            self.finish(self.directory, seeds[0], progress)
            return seeds[0]
        failures = []
        for seed in self.place_all(seeds, plan, progress):
            shutil.copy(self._folder(seed) / NETLIST, self.directory / NETLIST)
            if self.makes_room:
                shutil.copy(self._folder(seed) / PLACEMENT, self.directory / PLACEMENT)
            try:
                self.finish(self.directory, seed, progress)
            except FpgaError as failure:
                failures.append(failure)
                continue
            for folder in map(self._folder, seeds):
                shutil.rmtree(folder)
            return seed
        raise failures[0]

    def finish(self, folder: Path, seed: int, progress: Progress) -> None:
        """Routes the netlist of a folder. Where it fills the FPGA, what `place` has placed there is placed once more,
        with room where wires are few; then cells are moved, for shorter wires and from where they are still few."""
        if not self.makes_room:
            progress("place and route")
            step = self.family.route(self.platform, self.mhz, seed, self.crowded)
        else:
            assert self.left is not None and self.family.room is not None
            assert self.family.refine is not None and self.family.route_placed is not None
            if self.conflicts(folder, progress):
                progress(f"{self.family.room(folder, self.left)} LUTs of room")
            self.place(folder, seed, self._watch(folder, progress))
            progress("moving cells")
            self.family.refine(folder, False, progress)
            if self.conflicts(folder, progress):
                progress("moving cells")
                self.family.refine(folder, True, progress)
            progress("routing")
            step = self.family.route_placed(self.platform, self.mhz)
        run(step, folder, Watch(folder / step.log, self.mhz, progress))

    def place_all(self, seeds: Sequence[int], plan: Plan, progress: Progress) -> list[int]:
        """Places with every seed, each in a folder of its own. Returns those that could be, the best by nextpnr's
        estimate first. Raises `FpgaError` if there is none."""
        clocks: dict[int, float] = {}
        failures: list[FpgaError] = []
        stop = threading.Event()

        def watch() -> None:
            if stop.is_set():
                raise FpgaError("placement: stopped")

        def one(seed: int) -> float:
            folder = self._folder(seed)
            self.place(folder, seed, watch)
            return estimate((folder / PLACEMENT_LOG).read_text(encoding="utf-8"))

        with ThreadPoolExecutor(min(len(seeds), os.cpu_count() or 1, AT_ONCE)) as pool:
            try:
                started = {}
                for number, seed in enumerate(seeds, 1):
                    folder = self._folder(seed)
                    folder.mkdir(exist_ok=True)
                    for name in (NETLIST, CONSTRAINTS):
                        shutil.copy(self.directory / name, folder)
                    which = f"seed {number} of {len(seeds)}"
                    plan(folder, seed, partial(_told, progress, which))
                    started[pool.submit(one, seed)] = seed
                progress("placing")
                for done in as_completed(started):
                    try:
                        clocks[started[done]] = done.result()
                    except FpgaError as failure:
                        failures.append(failure)
                        continue
                    best = max(clocks.values())
                    progress(f"{len(clocks)} of {len(seeds)} placed, the best {best:.1f} MHz before routing")
            finally:  # of Ctrl-C
                stop.set()
                pool.shutdown(cancel_futures=True)
        if not clocks:
            raise failures[0]
        return sorted(clocks, key=lambda seed: (-clocks[seed], seed))

    def floorplan(self, progress: Progress) -> Plan:
        """What gives the blocks of the netlist their sites; does nothing where they are left to nextpnr: with room to
        spare shorter wires made no difference to the clock."""
        if self.family.floorplan is None or not self.crowded:
            return lambda folder, seed, progress: None
        progress("placing blocks")
        return self.family.floorplan(self.platform, self.directory, (self.capacity.dsp, self.capacity.bram))

    def place(self, folder: Path, seed: int, watch: Callable[[], None]) -> None:
        """Places the netlist of a folder."""
        assert self.family.place is not None, "`fpga.build` takes no other family"
        run(self.family.place(self.platform, self.mhz, seed, self.crowded), folder, watch)

    def conflicts(self, folder: Path, progress: Progress) -> bool:
        """Routes what was placed in a folder for some passes. Returns whether connections got in each other's way; then
        `family.room` and `family.refine` find where."""
        assert self.family.trial is not None
        progress("trial of routing")
        step = self.family.trial(self.platform, folder, self.mhz)
        try:
            run(step, folder, Watch(folder / step.log, self.mhz, progress, tries=True))
        except Tried:
            return True
        return False

    def _watch(self, folder: Path, progress: Progress) -> Watch:
        return Watch(folder / PLACEMENT_LOG, self.mhz, progress)

    def _folder(self, seed: int) -> Path:
        return self.directory / f"seed{seed}"


def _told(progress: Progress, which: str, text: str) -> None:
    progress(f"{which}: {text}")
