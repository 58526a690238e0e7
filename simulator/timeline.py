"""Timelines of the cycle-level simulator: cycles per layer, and a trace for Perfetto or chrome://tracing.

A cycle is shown as a microsecond. Tracks: the layers; per engine the instructions in the order they complete, their
waits for semaphores, and the fill of the queue.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from tilewright.common.store import write_atomically
from tilewright.isa.encoding import Op
from tilewright.isa.instructions import Engine
from tilewright.isa.program import Layer
from tilewright.simulator.cycle import Trace

_PROCESS = 1
_LAYERS = 1  # track numbers: layers, then two per engine
_ENGINES = list(Engine)[1:]


class LayerCycles(Struct, frozen=True):
    """Start and end of a layer, in cycles of the whole program (0 = before its first cycle).

    Attributes:
        layer: the layer.
        first, last: first cycle of its first instruction, cycle in which its last one completed; layers overlap.
        cycles: cycles from the completion of the layers before it to its own; these sum up to the run.
    """

    layer: Layer
    first: int
    last: int
    cycles: int


def _offsets(traces: Sequence[Trace]) -> list[int]:
    """The cycle before the first one of each run, with the runs one after the other."""
    offsets = [0]
    for trace in traces:
        offsets.append(offsets[-1] + trace.cycles)
    return offsets


def layer_cycles(layers: Iterable[Layer], traces: Sequence[Trace]) -> list[LayerCycles]:
    """The NPU layers in the order of the program. A layer whose last results are still on their way to memory when a
    later one is complete has the cycles up to then.

    Args:
        layers: `Program.layers`.
        traces: traces of the runs of a program's NPU steps, in order.
    """
    found = []
    for trace, offset in zip(traces, _offsets(traces)):
        mine = []
        for layer in layers:
            low, high = layer.first - trace.first, layer.first + layer.count - trace.first
            if layer.count == 0 or low < 0 or high > len(trace.times):
                continue
            started, ended = trace.started[low:high], trace.ended[low:high]
            if ended.any():
                mine.append((layer, int(started[started > 0].min()) + 1, int(ended.max())))
        mine.sort(key=lambda entry: entry[0].first)
        lasts = [last for _, _, last in mine[:-1]] + [trace.cycles]
        ends = reversed(list(itertools.accumulate(reversed(lasts), min)))
        before = 0
        for (layer, first, last), end in zip(mine, ends):
            found.append(LayerCycles(layer, offset + first, offset + last, end - before))
            before = end
    return found


def events(ops: Sequence[Op], layers: Iterable[Layer], traces: Sequence[Trace]) -> list[dict[str, Any]]:
    """The trace as JSON objects of the Chrome trace event format.

    Args:
        ops: the program's instructions.
        layers, traces: as for `layer_cycles`.
    """
    layers = list(layers)
    out = [_name("process_name", 0, "Tilewright NPU"), _name("thread_name", _LAYERS, "layers")]
    for index, engine in enumerate(_ENGINES):
        out.append(_name("thread_name", _track(index), engine.name))
        out.append(_name("thread_name", _track(index) + 1, f"{engine.name} waits"))
    for number, row in enumerate(layer_cycles(layers, traces)):
        about = {"cat": "layer", "id": number, "name": row.layer.name, "pid": _PROCESS, "tid": _LAYERS}
        details = {"op": row.layer.op, "cycles": row.cycles, "macs": row.layer.macs, "tile": row.layer.tile}
        out.append(about | {"ph": "b", "ts": row.first, "args": details})
        out.append(about | {"ph": "e", "ts": row.last + 1})
    layer_of = {pc: layer.name for layer in layers for pc in range(layer.first, layer.first + layer.count)}
    for trace, offset in zip(traces, _offsets(traces)):
        out += _run_events(ops, layer_of, trace, offset)
    return out


def _track(index: int) -> int:
    return _LAYERS + 1 + 2 * index


def _name(kind: str, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": track, "args": {"name": name}}


def _run_events(ops: Sequence[Op], layer_of: dict[int, str], trace: Trace, offset: int) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    free = dict.fromkeys(_ENGINES, 0)  # the cycle after the last slice: slices of a track must not overlap
    levels: list[tuple[int, Engine, int]] = []
    for index, (dispatched, waited, started, ended) in enumerate(trace.times.tolist()):
        pc = trace.first + index
        operation = ops[pc]
        engine = operation.instruction.engine
        if engine == Engine.FETCH or not started:
            continue
        levels += [(dispatched + 1, engine, 1), (started + 1, engine, -1)]
        track = _track(_ENGINES.index(engine))
        layer = layer_of.get(pc, "")
        base = {"ph": "X", "pid": _PROCESS, "cat": engine.name}
        if waited:
            names = " and ".join(str(s) for s in operation.waits)
            wait = {"name": f"semaphore {names}", "tid": track + 1, "ts": offset + waited, "dur": started - waited}
            out.append(base | wait | {"args": {"instruction": pc, "for": operation.name, "layer": layer}})
        if ended:
            first = max(started + 1, free[engine])
            free[engine] = ended + 1
            run = {"name": f"{operation.name} {layer}".rstrip(), "tid": track, "ts": offset + first}
            details = {"instruction": pc, "layer": layer, "taken": offset + started, "completed": offset + ended}
            details |= {k: v for k, v in operation.values.items() if v}
            out.append(base | run | {"dur": max(1, ended + 1 - first), "args": details})
    level = dict.fromkeys(_ENGINES, 0)
    for cycle, engine, change in sorted(levels):
        level[engine] += change
        counter = {"ph": "C", "name": f"{engine.name} queue", "pid": _PROCESS, "ts": offset + cycle}
        out.append(counter | {"args": {"instructions": level[engine]}})
    return out


def write_timeline(path: str | Path, ops: Sequence[Op], layers: Iterable[Layer], traces: Sequence[Trace]) -> None:
    """Writes `events` as a JSON file that Perfetto (ui.perfetto.dev) and chrome://tracing open."""
    document = {
        "traceEvents": events(ops, layers, traces),
        "displayTimeUnit": "ns",
        "otherData": {"unit": "1 us = 1 cycle"},
    }
    write_atomically(path, json.dumps(document, separators=(",", ":")))
