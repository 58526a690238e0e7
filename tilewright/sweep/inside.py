"""`Inside`: where the cycles of one network on one machine go, layer by layer, kept with its result in the database.

A report shows every point from the inside without compiling anything again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.common.documents import parse_document
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Engine
from tilewright.isa.program import Layer
from tilewright.measure.explain import Explanation
from tilewright.runtime.energy import Energy, EnergyModel, meter
from tilewright.simulator.attribution import LOSSES, Attributed, LayerLosses
from tilewright.simulator.cycle import Trace

#: Engines whose work is kept, and the slots of equal length that a run is cut into for it.
ENGINES, SLOTS = ("LOAD", "GEMM", "VECTOR", "STORE"), 500
_LAYER = ("macs", "read_bytes", "write_bytes", "minimum_bytes")
_ROW = ("cycles", "compute", "memory", "bound")
#: What a record has of each row.
NUMBERS = (*_LAYER, *_ROW, "active", *LOSSES)
#: Bytes of a record unpacked, at most: a network of ten thousand layers.
_MOST = 1 << 24
#: Bytes of the length that a record begins with.
_HEAD = 4


@dataclass
class Inside(Attributed):
    """A run of a network on a machine, seen from the inside.

    Attributes:
        name: of the network.
        config: of the machine.
        rows: its NPU layers in order, fused ones in one row; `layer.first` is the number of the row.
        active: cycles in which an engine works for a layer, as `Explanation.active_cycles`: int64 [rows].
        events: what the meter of energy counts, float64 [rows, events].
        busy: share of each slot in which an engine works, 255 for all of it: uint8 [ENGINES, SLOTS].
    """

    name: str
    config: NpuConfig
    rows: list[LayerLosses]
    active: np.ndarray
    events: np.ndarray
    busy: np.ndarray

    @property
    def cycles(self) -> int:
        return sum(row.cycles for row in self.rows)

    def active_cycles(self, row: LayerLosses) -> int:
        """Cycles in which an engine works for a layer."""
        return int(self.active[row.layer.first])

    def energies(self, model: EnergyModel) -> list[Energy]:
        """Energy of each row, by a model."""
        return [model.energy(self.config, counts) for counts in self.events]


def record(found: Explanation) -> bytes:
    """Returns the compressed record of a run for the database; `read` reads it."""
    numbers = [
        [*(getattr(row.layer, key) for key in _LAYER), *(getattr(row, key) for key in _ROW),
         found.active_cycles(row), *(row.losses[key] for key in LOSSES)]
        for row in found.rows
    ]  # fmt: skip
    labels = [([member.name for member in row.members], row.layer.op) for row in found.rows]
    return pack(labels, np.array(numbers), found.row_events, busy_slots(found))


def pack(labels: Sequence[tuple[list[str], str]], numbers: np.ndarray, events: np.ndarray, busy: np.ndarray) -> bytes:
    """Returns a record of names of members and op of each row, and of numbers.

    Args:
        numbers: of each row, as `NUMBERS` names them: int64 [rows, NUMBERS].
        events, busy: as in `Inside`.
    """
    head = {"rows": labels, "losses": list(LOSSES), "events": list(meter().EVENTS), "slots": SLOTS}
    text = json.dumps(head).encode()
    parts = (numbers.astype("<i8"), events.astype("<f8"), busy)
    return zlib.compress(b"".join([len(text).to_bytes(_HEAD, "little"), text, *(part.tobytes() for part in parts)]))


def read(data: object, name: str, config: NpuConfig) -> Inside | None:
    """Reads a record of a network on a machine; None where it was made with other causes, events or slots.

    Raises:
        ValueError: what no `record` has written.
    """
    if not isinstance(data, bytes):
        raise ValueError("no bytes")
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(data, _MOST)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    length = int.from_bytes(content[:_HEAD], "little") + _HEAD
    head = parse_document(content[_HEAD:length], toml=False)
    if not unpacker.eof or not isinstance(head, dict) or set(head) != {"rows", "losses", "events", "slots"}:
        raise ValueError("no record of a run")
    losses, events = list(LOSSES), list(meter().EVENTS)
    if head["losses"] != losses or head["events"] != events or head["slots"] != SLOTS:
        return None
    labels = head["rows"] if isinstance(head["rows"], list) else [None]
    if not all(_is_label(label) for label in labels):
        raise ValueError("no layers")
    count, width = len(labels), len(NUMBERS)
    ends = np.cumsum([length, 8 * count * width, 8 * count * len(events), len(ENGINES) * SLOTS])
    if len(content) != ends[-1]:
        raise ValueError(f"{len(content)} bytes, not {ends[-1]}")
    numbers = np.frombuffer(content[length : ends[1]], "<i8").reshape(count, width)
    counts = np.frombuffer(content[ends[1] : ends[2]], "<f8").reshape(count, len(events))
    busy = np.frombuffer(content[ends[2] :], np.uint8).reshape(len(ENGINES), SLOTS)
    if not np.isfinite(counts).all() or (counts < 0).any() or (np.abs(numbers) > 1 << 60).any():
        raise ValueError("numbers that no run has")
    rows = [_row(n, members, op, values) for n, ((members, op), values) in enumerate(zip(labels, numbers.tolist()))]
    return Inside(name, config, rows, numbers[:, NUMBERS.index("active")], counts, busy)


def _is_label(label: object) -> bool:
    """Whether a part of a record is the names of a row's layers, and their op."""
    match label:
        case [[_, *_] as members, str()]:
            return all(isinstance(member, str) for member in members)
    return False


def _row(number: int, members: list[str], op: str, values: list[int]) -> LayerLosses:
    macs, read_bytes, write_bytes, minimum_bytes = values[: len(_LAYER)]
    layer = Layer(" + ".join(members), op, "npu", number, 1, macs, read_bytes, write_bytes, minimum_bytes)
    cycles, compute, memory, bound = values[len(_LAYER) : len(_LAYER) + len(_ROW)]
    losses = dict(zip(LOSSES, values[-len(LOSSES) :]))
    parts = [Layer(member, op, "npu") for member in members]
    return LayerLosses(layer, parts, cycles, compute, memory, bound, losses=losses)


def busy_slots(found: Explanation) -> np.ndarray:
    """Returns the share of each slot of a run in which an engine works, 255 for all of it: uint8 [ENGINES, SLOTS]."""
    engines = np.array([op.instruction.engine for op in found.program.ops()], int)
    edges = np.linspace(0, max(1, found.cycles), SLOTS + 1)
    shares = np.zeros((len(ENGINES), SLOTS))
    offset = 0
    for trace in found.traces:
        for number, name in enumerate(ENGINES):
            starts, ends = _intervals(trace, engines == Engine[name])
            shares[number] += np.diff(_covered(starts + offset, ends + offset, edges)) / np.diff(edges)
        offset += trace.cycles
    busy: np.ndarray = np.rint(255 * np.minimum(shares, 1)).astype(np.uint8)
    return busy


def _intervals(trace: Trace, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends of the instructions of an engine in order, overlaps cut off."""
    times = trace.times[chosen[trace.first : trace.first + len(trace.times)]].astype(float)
    times = times[(times[:, 2] > 0) & (times[:, 3] > 0)]
    times = times[np.argsort(times[:, 2], kind="stable")]
    ends = np.maximum.accumulate(times[:, 3]) if len(times) else np.zeros(0)
    starts = np.maximum(times[:, 2], np.concatenate([[0.0], ends[:-1]])) if len(times) else np.zeros(0)
    return np.minimum(starts, ends), ends


def _covered(starts: np.ndarray, ends: np.ndarray, edges: Iterable[float]) -> np.ndarray:
    """Cycles that intervals, which do not overlap, cover before each edge."""
    whole = np.concatenate([[0.0], np.cumsum(ends - starts)])
    edges = np.asarray(edges)
    begun = np.searchsorted(starts, edges, side="right")
    last_end = np.concatenate([[0.0], ends])[begun]
    covered: np.ndarray = whole[begun] - np.maximum(0, last_end - edges)
    return covered
