"""Explains a program's cycles: bounds, cycles and losses per layer, from a traced run of the cycle-level simulator."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tilewright.common.shown import Shown
from tilewright.compiler.stages.note_forms import is_tuned
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters
from tilewright.isa.program import Layer, Program
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.measure.clock import Clock, clock_of
from tilewright.measure.ends import Ends, ends_of
from tilewright.measure.latency import Latency, latency
from tilewright.runtime.cost import run_npu_steps
from tilewright.runtime.energy import Energy, EnergyModel, meter
from tilewright.simulator.attribution import Attributed, LayerLosses, attribute
from tilewright.simulator.blame import CAUSES
from tilewright.simulator.cycle import CycleDevice, Trace


@dataclass(repr=False)
class Explanation(Attributed, Shown):
    """A run of a program on the cycle-level simulator, its cycles accounted for layer by layer.

    Attributes:
        program: what ran.
        timing: of the memory it ran with.
        counters: of the run.
        rows: the NPU layers in the order of the program; fused ones are one row.
        traces: when every instruction ran, per NPU step.
        clock: that turns cycles into time; None where none is known.
        energies: of each row.
        row_events: of each row, as `events`: float64 [rows, events].
        energy_model: that gave them.
        later_cycles: of a run that finds the weights in the NPU; None where they do not stay there.
        events: of the whole run, as the meter of energy counts them; None has them counted.
    """

    program: Program
    timing: MemoryTiming
    counters: Counters
    rows: list[LayerLosses]
    traces: list[Trace]
    clock: Clock | None = None
    energies: list[Energy] = field(default_factory=list)
    energy_model: EnergyModel = field(default_factory=lambda: meter().load())
    events: np.ndarray | None = None
    row_events: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    later_cycles: int | None = None

    @property
    def name(self) -> str:
        """Name of the program."""
        return self.program.name

    @property
    def config(self) -> NpuConfig:
        """Configuration of the machine."""
        return self.program.config

    @property
    def tuned(self) -> bool:
        """Whether the program has schedules of the tuning log."""
        return is_tuned(self.program.notes)

    def facts(self) -> dict[str, Any]:
        """Returns facts, for `repr` and notebooks."""
        return {
            "program": self.program.name, "config": self.program.config.name, "cycles": self.cycles,
            "bound": self.bound, "utilization": f"{self.bound / self.cycles:.1%}" if self.cycles else "",
            "tuned": self.tuned, "uj": self.energy.total / 1e6, "layers": len(self.rows),
        }  # fmt: skip

    def table(self) -> list[list[str]]:
        """Layers with cycles, bound and what most of the cycles above it were lost to."""
        rows = [["layer", "cycles", "bound", "utilization", "lost most to"]]
        for row in self.rows:
            most = max(row.losses.items(), key=lambda loss: loss[1], default=("", 0))
            lost = f"{most[0]} {most[1]:,}" if most[1] > 0 else ""
            rows.append([row.layer.name, f"{row.cycles:,}", f"{row.bound:,}", f"{row.utilization:.0%}", lost])
        return rows

    @property
    def energy(self) -> Energy:
        """Energy of the NPU and the memory, for the whole run."""
        events = meter().of_program(self.program, self.cycles) if self.events is None else self.events
        return self.energy_model.energy(self.program.config, events)

    @property
    def latency(self) -> Latency:
        """Latency from end to end, with the CPU's steps."""
        return latency([self.program], self.cycles, self.clock)

    @property
    def ends(self) -> list[Ends]:
        """CPU ops around the turns of the NPU, for each entry point that has some."""
        return ends_of(self.program)

    @property
    def cycles(self) -> int:
        return self.counters.cycles or 0

    def active_cycles(self, row: LayerLosses) -> int:
        """Cycles in which an engine works for a layer, be it while other layers are computed: weights are loaded, and
        first steps made, in their time. Weights that instructions of a layer before load count with their beats."""
        layer = row.layer
        beats = -(-max(layer.read_bytes, layer.write_bytes) // self.program.config.bus_bytes)
        for trace in self.traces:
            low, high = layer.first - trace.first, layer.first + layer.count - trace.first
            if 0 <= low < high <= len(trace.times):
                return max(beats, covered(trace.started[low:high], trace.ended[low:high]))
        return beats

    @property
    def cpu_layers(self) -> list[Layer]:
        """The layers that run on the CPU."""
        return [layer for layer in self.program.layers if layer.where != "npu"]

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures as `tilewright explain --json` writes them."""
        return {
            "model": self.program.name,
            "config": self.program.config.name,
            "fingerprint": self.program.config.fingerprint,
            "macs_per_cycle": self.program.config.macs_per_cycle,
            "bytes_per_cycle": self.program.config.bus_bytes,
            "tuned": self.tuned,
            "notes": self.program.notes,
            "timing": asdict(self.timing),
            **performance(self.counters, self.bound),
            **({} if self.later_cycles is None else {"later_cycles": self.later_cycles}),
            **(self.clock.describe(self.cycles) if self.clock else {}),
            "losses": self.losses,
            "energy": describe(self.energy, self.energy_model, self.program.config),
            "layers": [
                _row(row) | {"active_cycles": self.active_cycles(row), "energy": e.to_dict()}
                for row, e in zip(self.rows, self.energies)
            ],
            "cpu_layers": [{"name": layer.name, "op": layer.op, "macs": layer.macs} for layer in self.cpu_layers],
            "ends": [ends.to_dict() for ends in self.ends],
            "latency": self.latency.to_dict(),
            "cpu_kernels": [
                {"step": k.step, "name": k.name, "op": k.op, "milliseconds": seconds * 1e3, "bytes": k.nbytes}
                for k, seconds in self.latency.kernels
            ],
        }


def covered(started: np.ndarray, ended: np.ndarray) -> int:
    """Cycles in the union of the intervals that begin after `started` and end with `ended`; 0 is never."""
    total, reached = 0, 0
    for start, end in sorted(zip(started[ended > 0].tolist(), ended[ended > 0].tolist())):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def performance(counters: Counters, bound: int) -> dict[str, Any]:
    """Returns time and traffic of a run for reports; nothing where the device has no clock."""
    found: dict[str, Any] = {}
    if counters.cycles is not None:
        found = {
            "cycles": counters.cycles,
            "bound_cycles": bound,
            "utilization": bound / counters.cycles if counters.cycles else 0.0,
            "bytes_read": counters.bytes_read,
            "bytes_written": counters.bytes_written,
            "engines": {name: asdict(engine) for name, engine in counters.engines.items()},
        }
    return found


def describe(energy: Energy, model: EnergyModel, config: NpuConfig) -> dict[str, Any]:
    """Describes the energy of a run for `--json`, with the model that it comes from."""
    found = {"technology": model.technology, "error": dict(model.error), "dram_pj_per_byte": model.dram_pj_per_byte}
    changed = model.changed
    stale = None if changed is None else bool(changed)
    return energy.to_dict() | found | {"stale": stale, "extrapolated": model.beyond(config)}


def events_of_rows(rows: list[LayerLosses], per_instruction: np.ndarray) -> np.ndarray:
    """Returns the events of each row, float64 [rows, events], from those of the instructions and its cycles."""
    found = np.zeros((len(rows), per_instruction.shape[1]))
    for number, row in enumerate(rows):
        found[number] = per_instruction[row.layer.first : row.layer.first + row.layer.count].sum(axis=0)
        found[number, meter().EVENTS.index("cycle")] = row.cycles
    return found


def _row(row: LayerLosses) -> dict[str, Any]:
    layer = row.layer
    return {
        "name": layer.name,
        "op": layer.op,
        "members": [{"name": m.name, "op": m.op, "macs": m.macs} for m in row.members],
        "tile": layer.tile,
        "macs": layer.macs,
        "read_bytes": layer.read_bytes,
        "write_bytes": layer.write_bytes,
        "minimum_bytes": layer.minimum_bytes,
        "compute_cycles": row.compute,
        "memory_cycles": row.memory,
        "bound_cycles": row.bound,
        "cycles": row.cycles,
        "utilization": row.utilization,
        "array_steps": row.steps,
        "losses": row.losses,
        "fill": row.fill,
        "spent": {cause: row.spent[cause] for cause in CAUSES},
    }


def explain(program: Program, timing: MemoryTiming | None = None, clock: Clock | None = None) -> Explanation:
    """Runs the program's NPU steps, whose cycles depend on no value, and accounts for them.

    Args:
        program: for any configuration.
        timing: of the external memory.
        clock: of the machine; by default that of the fastest board known to run it.
    """
    timing = timing or DEFAULT_MEMORY
    device = CycleDevice(program.config, timing, functional=False)
    counters = run_npu_steps(program, device, trace=True)
    later_cycles = None
    if program.later:  # memory is laid out as for a first run
        later = CycleDevice(program.config, timing, functional=False)
        later_cycles = run_npu_steps(program.of_later_runs(), later).cycles
    ops, config = program.of_first_run().ops(), program.config
    rows = attribute(ops, program.layers, device.traces, config, program.constants, timing)
    model, per_instruction = meter().load(), meter().per_instruction(ops, config, program.constants)
    events = per_instruction.sum(axis=0)
    events[meter().EVENTS.index("cycle")] = counters.cycles or 0
    of_rows = events_of_rows(rows, per_instruction)
    return Explanation(
        program, timing, counters, rows, list(device.traces), clock_of(config, clock),
        [model.energy(config, counts) for counts in of_rows], model, events, of_rows, later_cycles,
    )  # fmt: skip
