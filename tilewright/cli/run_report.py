"""Reports of `tilewright run`: JSON and tables."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from tilewright.checking.report import CheckReport
from tilewright.cli import programs, terminal
from tilewright.compiler.stages.note_forms import UNUSED, general, is_tuned
from tilewright.isa.program import Program
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.measure.clock import Clock, clock_of
from tilewright.measure.explain import performance
from tilewright.measure.latency import latency
from tilewright.runtime.devices import Runner
from tilewright.simulator.bound import bound_cycles

if TYPE_CHECKING:
    from tilewright.dynamic.model import DynamicModel

_MOST_ROWS = 20  # of the table of differences
_COUNTED = ("macs", "npu_macs", "npu_mac_fraction", "cpu_ops", "npu_turns", "compile_seconds")


def summarise(
    program: Program | DynamicModel,
    runner: Runner,
    outputs: dict[str, Any],
    seconds: float,
    report: CheckReport | None,
    clock: Clock | None = None,
    memory: MemoryTiming = DEFAULT_MEMORY,
) -> dict[str, Any]:
    """The JSON form of a run.

    Args:
        clock: of the NPU, for times; by default that of the fastest board known to run it.
        memory: beside it, for the bound.
    """
    parts = [program] if isinstance(program, Program) else program.ran
    counted = programs.totals(program) if isinstance(program, Program) else _totals(program)
    result: dict[str, Any] = {
        "model": program.name,
        "config": program.config.name,
        "backend": runner.name,
        "outputs": {name: describe_output(value) for name, value in outputs.items()},
    }
    if "programs" in counted:
        result["programs"] = counted["programs"]
    result["notes"] = list(dict.fromkeys(note for part in parts for note in general(part.notes)))
    if counted["npu_macs"]:  # of the parts of a model some have nothing for the NPU
        result["notes"] = [note for note in result["notes"] if not note.startswith(UNUSED)]
    result["tuned"] = any(is_tuned(part.notes) for part in parts)
    result |= {key: counted[key] for key in _COUNTED}
    if runner.counters is not None and runner.counters.cycles is not None:
        layers = [layer for part in parts for layer in part.layers]
        result |= performance(runner.counters, bound_cycles(layers, program.config, memory))
        found = latency(parts, runner.counters.cycles, clock_of(program.config, clock))
        result["latency"] = found.to_dict() | {"text": found.sentence()}
    result["run_seconds"] = seconds
    result["gmacs_per_second"] = counted["macs"] / seconds / 1e9 if seconds else 0.0
    if report is not None:
        result["check"] = report.to_dict()
    return result


def describe_output(value: Any) -> dict[str, Any]:
    """Type, shape and digest of an output; a sequence has the number of its elements as shape."""
    if isinstance(value, list):
        parts = [describe_output(v) for v in value]
        digest = hashlib.sha256("".join(p["sha256"] for p in parts).encode()).hexdigest()
        return {"shape": [len(value)], "dtype": "sequence", "sha256": digest}
    if value is None:
        return {"shape": [], "dtype": "none", "sha256": ""}
    strings = value.dtype == np.object_
    content = repr(value.tolist()).encode() if strings else np.ascontiguousarray(value).tobytes()
    kind = "string" if strings else str(value.dtype)
    return {"shape": list(value.shape), "dtype": kind, "sha256": hashlib.sha256(content).hexdigest()}


def show(result: dict[str, Any], report: CheckReport | None) -> None:
    """The table form of a run."""
    console = terminal.table_console()
    table = Table(title=f"{result['model']} on {result['backend']} ({result['config']})", title_justify="left")
    for heading in ("output", "type", "shape", "sha256"):
        table.add_column(heading)
    for name, out in result["outputs"].items():
        table.add_row(name, out["dtype"], "x".join(map(str, out["shape"])), out["sha256"][:16])
    console.print(table)
    for note in result["notes"]:
        console.print(f"note: {note}", markup=False)
    count = result.get("programs", 0)
    several = f"{count} program{'' if count == 1 else 's'}; " if count else ""
    console.print(
        f"{terminal.human(result['macs'], 'MAC')}, {programs.on_the_npu(result)}, "
        f"{len(result['cpu_ops'])} ops on the CPU; {several}run {result['run_seconds']:.3f} s, "
        f"{result['gmacs_per_second']:.2f} GMAC/s",
        markup=False,
    )
    if "cycles" in result:
        console.print(result["latency"]["text"], markup=False)
        console.print(
            f"{result['cycles']:,} cycles, bound {result['bound_cycles']:,} ({result['utilization']:.1%}); "
            f"{terminal.human(result['bytes_read'], 'B')} read, {terminal.human(result['bytes_written'], 'B')} written",
            markup=False,
        )
    if report is None:
        return
    console.print(f"check: {report.summary()}", markup=False)
    rows = [r for r in report.rows if r.status != "equal"]
    if rows:
        table = Table(title="tensors that differ", title_justify="left")
        for heading in ("tensor", "where", "status", "elements", "differ", "max", "why"):
            table.add_column(heading, overflow="fold")
        for r in rows[:_MOST_ROWS]:
            found = (str(r.elements), str(r.mismatches), f"{r.max_abs_difference:g}", r.note or r.reason)
            table.add_row(r.name, r.where, r.status, *found)
        console.print(table)
        if len(rows) > _MOST_ROWS:
            console.print(f"and {len(rows) - _MOST_ROWS} more; --json lists all")
        if any(r.range for r in rows):
            console.print(f"tolerance of floats: {report.tolerance}; --tolerance gives another", markup=False)
    for name, why in report.skipped.items():
        console.print(f"not compared: {name}: {why}", markup=False)


def _totals(model: DynamicModel) -> dict[str, Any]:
    """Sums `programs.totals` over the programs of the last run."""
    parts = [programs.totals(program) for program in model.ran]
    summed = ("macs", "npu_macs", "cpu_ops", "npu_turns", "instructions", "constant_bytes", "compile_seconds")
    found: dict[str, Any] = {"model": model.name, "config": model.config.name, "programs": len(parts)}
    for key in summed:
        found[key] = sum((part[key] for part in parts), [] if key == "cpu_ops" else 0)
    found["npu_mac_fraction"] = found["npu_macs"] / found["macs"] if found["macs"] else 0.0
    return found
