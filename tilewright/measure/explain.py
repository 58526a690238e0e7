"""Where a program's cycles go: bounds, cycles and losses per layer, from a traced run of the cycle-level simulator."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.table import Table

import tilewright as tw
from isa.device import Counters
from isa.program import Layer, Program
from isa.timing import MemoryTiming
from simulator.attribution import CAUSES, LOSSES, LayerLosses, attribute
from simulator.cycle import CycleDevice, Trace

#: Columns of the table: what they sum up.
_COLUMNS = {
    "pad": ("padding",), "win": ("window",), "traf": ("traffic",), "load": ("load",), "post": ("vector",),
    "store": ("store",), "fill": ("fill",), "rest": ("fetch", "pipeline"), "ovl": ("overlap",),
}  # fmt: skip


@dataclass
class Explanation:
    """Attributes:
    program: what ran.
    timing: of the memory it ran with.
    counters: of the run.
    rows: the NPU layers in the order they completed; fused ones are one row.
    traces: when every instruction ran, per NPU step.
    """

    program: Program
    timing: MemoryTiming
    counters: Counters
    rows: list[LayerLosses]
    traces: list[Trace]

    @property
    def cycles(self) -> int:
        return self.counters.cycles or 0

    @property
    def bound(self) -> int:
        return sum(row.bound for row in self.rows)

    @property
    def losses(self) -> dict[str, int]:
        return {key: sum(row.losses[key] for row in self.rows) for key in LOSSES}

    @property
    def cpu_layers(self) -> list[Layer]:
        return [layer for layer in self.program.layers if layer.where != "npu"]

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.program.name,
            "config": self.program.config.name,
            "fingerprint": self.program.config.fingerprint,
            "macs_per_cycle": self.program.config.macs_per_cycle,
            "bytes_per_cycle": self.program.config.bus_bytes,
            "timing": asdict(self.timing),
            **performance(self.counters, self.bound),
            "losses": self.losses,
            "layers": [_row(row) for row in self.rows],
            "cpu_layers": [{"name": layer.name, "op": layer.op, "macs": layer.macs} for layer in self.cpu_layers],
        }


def performance(counters: Counters, bound: int) -> dict[str, Any]:
    """What the reports say about time and traffic of a run; nothing where there was no clock."""
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


def explain(program: Program, timing: MemoryTiming | None = None) -> Explanation:
    """Runs the program once on random input and accounts for its cycles.

    Args:
        program: for any configuration.
        timing: of the external memory.
    """
    timing = timing or MemoryTiming()
    with tw.Device("cycle", timing=timing) as runner:
        runner.run(program, tw.random_inputs(program), trace=True)
        device = runner.load(program).device
        assert isinstance(device, CycleDevice) and runner.counters is not None
        rows = attribute(program.ops(), program.layers, device.traces, program.config, program.constants)
        return Explanation(program, timing, runner.counters, rows, list(device.traces))


def short(value: float) -> str:
    """1234567 as 1.2M: at most four characters."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor * 0.9995:
            return f"{value / factor:.{1 if value < 9.95 * factor else 0}f}{letter}"
    return f"{value:g}" if value else ""


def short_name(name: str, width: int) -> str:
    """Cut on the left: what tells layers apart is at the end. Of fused layers the first and the last one."""
    parts = name.split(" + ")
    if len(parts) > 2:
        name = f"{parts[0]} ..{len(parts)}.. {parts[-1]}"
    if len(name) > width and len(parts) > 1:
        name = f"{parts[0]} +{len(parts) - 1}"
    return name if len(name) <= width else "…" + name[len(name) - width + 1 :]


def table(found: Explanation, width: int) -> Table:
    """For people: per cent of each layer's cycles, so that a row sums up to 100."""
    shown = Table(
        title=f"{found.program.name} for {found.program.config.name}: cycles per layer, and per cent of them",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
        pad_edge=False,
        show_footer=True,
    )
    narrow = width < 98  # leaves out MAC and bytes
    names = [row.layer.name for row in found.rows]
    room = max(12, min(max(map(len, names), default=0), width - (68 if narrow else 86)))
    shown.add_column("layer", footer="all", no_wrap=True)
    sums = _cells(_sum(found.rows), room)
    for place, heading in enumerate(("MAC", "bytes", "least", "bound", "cycles", "util", *_COLUMNS), 1):
        if not (narrow and place <= 3):
            shown.add_column(heading, justify="right", no_wrap=True, footer=sums[place])
    for row in found.rows:
        cells = _cells(row, room)
        shown.add_row(cells[0], *cells[4 if narrow else 1 :])
    return shown


def _sum(rows: list[LayerLosses]) -> LayerLosses:
    """All rows as one; its bound is the sum of theirs."""
    layer = Layer(
        "all", "", "npu", macs=sum(r.layer.macs for r in rows), read_bytes=sum(r.layer.read_bytes for r in rows),
        write_bytes=sum(r.layer.write_bytes for r in rows), minimum_bytes=sum(r.layer.minimum_bytes for r in rows),
    )  # fmt: skip
    bound = sum(r.bound for r in rows)
    losses = {key: sum(r.losses[key] for r in rows) for key in LOSSES}
    return LayerLosses(layer, [], sum(r.cycles for r in rows), bound, bound, losses=losses)


def _cells(row: LayerLosses, room: int) -> list[str]:
    layer = row.layer
    cells = [short_name(layer.name, room), short(layer.macs)]
    cells += [short(layer.read_bytes + layer.write_bytes), short(layer.minimum_bytes)]
    cells += [str(row.bound), str(row.cycles), f"{row.utilization:.0%}" if row.cycles else ""]
    for keys in _COLUMNS.values():
        share = sum(row.losses[key] for key in keys) / row.cycles if row.cycles else 0.0
        cells.append("" if round(100 * share) == 0 else f"{100 * share:.0f}")
    return cells


def summary(found: Explanation) -> list[str]:
    """The lines under the table."""
    peak, bus = found.program.config.macs_per_cycle, found.program.config.bus_bytes
    lines = [
        "bound = max(MAC / peak, least bytes / bus), util = bound / cycles; lost: pad padding of channels and pixels, "
        "win depthwise window, traf avoidable traffic, load waiting for LOAD, post for VECTOR, store for STORE, "
        "fill array empty before and after a layer, rest pipelines and fetch, ovl shared with neighbours",
        f"{found.cycles:,} cycles, bound {found.bound:,} ({_percent(found.bound, found.cycles)}); "
        f"peak {peak} MAC and {bus} B per cycle; memory latency {found.timing.read_latency}, "
        f"a beat every {found.timing.read_interval}",
    ]
    lost = sorted(((n, key) for key, n in found.losses.items() if n), reverse=True)
    if lost:
        parts = ", ".join(f"{key} {n:,} ({_percent(n, found.cycles)})" for n, key in lost)
        lines.append(f"{found.cycles - found.bound:,} cycles above the bound: {parts}")
    fill: dict[str, int] = {}
    for row in found.rows:
        for cause, n in row.fill.items():
            fill[cause] = fill.get(cause, 0) + n
    if any(fill.values()):
        parts = ", ".join(f"{cause} {n:,}" for cause, n in sorted(fill.items(), key=lambda f: -f[1]) if n)
        lines.append(f"fill waited for: {parts}")
    cpu = found.cpu_layers
    if cpu:
        names = ", ".join(f"{layer.name} ({layer.op})" for layer in cpu[:8])
        more = f" and {len(cpu) - 8} more" if len(cpu) > 8 else ""
        lines.append(f"on the CPU, not counted: {names}{more}")
    return lines


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "0%"
