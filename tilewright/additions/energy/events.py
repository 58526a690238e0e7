"""Counts the events of a program per instruction, from its loops; no count depends on a value."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.isa.codes import CodeMode
from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import Op
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.instructions import ROW_WRITES, Memory, RowFunction, Source
from tilewright.isa.packing import unpacked
from tilewright.isa.program import CONSTANT_REGION, Program

EVENTS = (
    "cycle",           # of the clock
    "product",         # a step of GEMM: the whole array multiplies
    "multiplication",  # one of them by a weight that is not 0: by 0, nothing toggles behind the weight
    "input",           # a row of activations GEMM or DEPTHWISE takes, other than that of the step before
    "tile",            # the same of weights
    "result",          # a row GEMM or DEPTHWISE writes to ACC
    "sum",             # one that is added to what ACC has
    "window",          # a step of DEPTHWISE: the window moves
    "emission",        # one with a product of the window
    "post",            # a row VECTOR takes from ACC and writes to ACT
    "element",         # a row VECTOR writes to ACT that it took from there
    "operand",         # a row VECTOR reads from ACT
    "parameter",       # a row, or part of one, of PRM it reads, other than that of the step before
    "look-up",         # a row it looks up in a table
    "row step",        # a vector ROW reads
    "row",             # a row of which ROW keeps something
    "row result",      # a vector ROW writes
    "beat read",
    "beat written",
    "padding",         # a row of padding LOAD writes
    "instruction",
)  # fmt: skip
_AT = {name: n for n, name in enumerate(EVENTS)}
#: What is said where energy is explained by cause.
CAUSES = {
    "clock": ("cycle",),  # also of a cycle in which nothing works
    "array": ("product", "multiplication", "input", "tile", "result", "sum", "window", "emission"),
    "vector": ("post", "element", "operand", "parameter", "look-up", "row step", "row", "row result"),
    "transfer": ("beat read", "beat written", "padding"),
    "fetch": ("instruction",),
}


def of_program(program: Program, cycles: int) -> np.ndarray:
    """Counts the events of a run of all the program's instructions in so many cycles, float64 [EVENTS]."""
    return total(program.ops(), program.config, cycles, program.constants)


def total(ops: Sequence[Op], config: NpuConfig, cycles: int, constants: bytes | None = None) -> np.ndarray:
    """Sums `per_instruction`, and adds the cycles: float64 [EVENTS]."""
    found: np.ndarray = per_instruction(ops, config, constants).sum(axis=0)
    found[_AT["cycle"]] = cycles
    return found


def per_instruction(ops: Sequence[Op], config: NpuConfig, constants: bytes | None = None) -> np.ndarray:
    """Events of every instruction, float64 [instructions, EVENTS]; cycles are left 0, and fetching is a share of a beat
    for every instruction.

    Args:
        constants: of the program, for what of its weights is 0; without them none is.
    """
    found = np.zeros((len(ops), len(EVENTS)))
    weights = _Weights(config, constants)
    gemm, vector = [(1, 0, 0)] * config.gemm_loops, [(1, 0)] * config.vector_loops
    load, store, pad = _Box(), _Box(), [0, 0, 0, 0, 0]
    for i, o in enumerate(ops):
        row = found[i]
        row[_AT["instruction"]] = 1
        row[_AT["beat read"]] = INSTRUCTION_BYTES / config.bus_bytes
        match o.name:
            case "END":
                gemm, vector = [(1, 0, 0)] * config.gemm_loops, [(1, 0)] * config.vector_loops
                load, store, pad = _Box(), _Box(), [0, 0, 0, 0, 0]
            case "GEMM_LOOP":
                gemm[o["level"]] = (o["count"], o["act_stride"], o["wgt_stride"])
            case "VECTOR_LOOP":
                vector[o["level"]] = (o["count"], o["prm_stride"])
            case "LOAD_DIM":
                load.set(o)
            case "STORE_DIM":
                store.set(o)
            case "LOAD_PAD":
                pad = [o[side] for side in ("left", "right", "top", "bottom", "fill")]
            case "GEMM" | "DEPTHWISE":
                counts = [level[0] for level in gemm]
                row[_AT["input"]] = address_changes(counts, [level[1] for level in gemm])
                row[_AT["tile"]] = address_changes(counts, [level[2] for level in gemm])
                if o.name == "GEMM":
                    row[_AT["product"]] = math.prod(counts)
                    used = weights.used(o["wgt"], [(level[0], level[2]) for level in gemm])
                    row[_AT["multiplication"]] = math.prod(counts) * config.macs_per_cycle * used
                    row[_AT["result"]] = math.prod(counts[o["reduce"] :])
                else:
                    row[_AT["window"]] = math.prod(counts)
                    sides = (max(0, (counts[n] - 1 - o[f"start{n}"]) // o[f"step{n}"] + 1) for n in (0, 1))
                    row[_AT["emission"]] = row[_AT["result"]] = math.prod(sides) * math.prod(counts[2:])
                row[_AT["sum"]] = o["accumulate"] * row[_AT["result"]]
            case "VECTOR":
                source = Source(o["source"])
                counts = [level[0] for level in vector]
                outer = vector[o["reduce"] if source in (Source.SUM, Source.MAX) else 0 :]
                written = math.prod(level[0] for level in outer)
                row[_AT["post" if source == Source.ACC else "element"]] = written
                second = o["add"] or source == Source.MUL
                row[_AT["operand"]] = second * written + (source != Source.ACC) * math.prod(counts)
                row[_AT["look-up"]] = o["lut"] * written
                if source not in (Source.ACT, Source.MAX):
                    row[_AT["parameter"]] = _parameters(outer, config)
            case "VECTOR_WIDE":
                outer = vector[o["reduce"] :]
                row[_AT["post"]] = math.prod(level[0] for level in outer)
                row[_AT["parameter"]] = _parameters(outer, config)
            case "ROW":
                function = RowFunction(o["function"])
                counts = [level[0] for level in vector]
                row[_AT["row step"]] = math.prod(counts)
                if function in ROW_WRITES:
                    row[_AT["row result"]] = math.prod(counts)
                else:
                    row[_AT["row"]] = math.prod(counts[o["reduce"] :])
            case "LOAD" | "LOAD_PACKED":
                lines = load.counts[0] * load.counts[1]
                is_packed = o.name == "LOAD_PACKED"
                row_bytes = config.packed_tile_bytes if is_packed else Memory(o["target"]).row_bytes(config)
                nbytes = o["count"] * row_bytes
                row[_AT["beat read"]] += lines * math.ceil(nbytes / config.bus_bytes)
                whole = (load.counts[0] + pad[2] + pad[3]) * load.counts[1] * (pad[0] + pad[1] + o["count"])
                row[_AT["padding"]] = whole - lines * o["count"]
                if o["target"] == Memory.WGT:
                    weights.load(o, load, pad)
            case "LOAD_CODED":
                row[_AT["beat read"]] += o["beats"]
                if o["mode"] == CodeMode.WEIGHTS:
                    weights.coded(o)
            case "STORE":
                nbytes = o["count"] * Memory.ACT.row_bytes(config)
                lines = store.counts[0] * store.counts[1]
                row[_AT["beat written"]] = lines * math.ceil(nbytes / config.bus_bytes)
    return found


class _Box:
    """The outer dimensions of LOAD or STORE: rows of a plane, then planes."""

    def __init__(self) -> None:
        self.counts, self.row_strides, self.mem_strides = [1, 1], [0, 0], [0, 0]

    def set(self, o: Op) -> None:
        level = o["level"]
        self.counts[level], self.row_strides[level] = o["count"], o["row_stride"]
        self.mem_strides[level] = o["mem_stride"]


def address_changes(counts: Sequence[int], strides: Sequence[int]) -> int:
    """Number of steps of a loop nest whose address differs from the step before; the first step counts."""
    found, steps, back = 1, math.prod(counts), 0
    for count, stride in zip(counts, strides):
        steps //= count  # how often this level goes from its first to its last index
        if stride != back:
            found += (count - 1) * steps
        back += stride * (count - 1)  # by what the address falls when the next level advances
    return found


def _parameters(levels: Sequence[tuple[int, int]], config: NpuConfig) -> int:
    """Number of PRM reads for results of a loop nest, (count, stride in PRM) per level: one for each row that differs
    from the row before. With several passes each reads another part of its row."""
    counts = [count for count, _ in levels]
    return math.prod(counts) if config.vector_passes > 1 else address_changes(counts, [stride for _, stride in levels])


class _Weights:
    """Share of nonzero weights, per tile of WGT, as the LOADs put them there."""

    def __init__(self, config: NpuConfig, constants: bytes | None) -> None:
        self.bytes = None if constants is None else np.frombuffer(constants, np.uint8)
        self.tile_bytes = config.tile_bytes
        self.share = np.ones(config.wgt_tiles)

    def load(self, o: Op, box: _Box, pad: Sequence[int]) -> None:
        """Records the share of nonzero bytes of each loaded WGT tile; tiles from the arena are computed, and count as
        nonzero."""
        if self.bytes is None:
            return
        left, right, top, bottom, fill = pad
        padding = float(fill != 0)
        for z in range(box.counts[1]):
            for y in range(top + box.counts[0] + bottom):
                line = np.full(left + o["count"] + right, padding)
                if top <= y < top + box.counts[0]:
                    first = o["offset"] + z * box.mem_strides[1] + (y - top) * box.mem_strides[0]
                    line[left : left + o["count"]] = self._line(o, first)
                row = o["row"] + z * box.row_strides[1] + y * box.row_strides[0]
                self.share[np.arange(row, row + len(line)) % len(self.share)] = line

    def coded(self, o: Op) -> None:
        """Marks decoded tiles as nonzero; their contents are not looked at."""
        self.share[np.arange(o["row"], o["row"] + o["count"]) % len(self.share)] = 1.0

    def _line(self, o: Op, first: int) -> np.ndarray | float:
        assert self.bytes is not None
        count, is_packed = o["count"], o.name == "LOAD_PACKED"
        nbytes = count * self.tile_bytes // (2 if is_packed else 1)
        found = self.bytes[first : first + nbytes]
        if o["region"] != CONSTANT_REGION or len(found) < nbytes:
            return 1.0
        if is_packed:
            found = unpacked(found)
        share: np.ndarray = (found != 0).reshape(count, self.tile_bytes).mean(axis=1)
        return share

    def used(self, first: int, levels: Sequence[tuple[int, int]]) -> float:
        """Mean over the steps of a GEMM with these (count, stride) of WGT."""
        if self.bytes is None:
            return 1.0
        tiles = np.array([first])
        for count, stride in levels:
            if stride and count > 1:
                tiles = (tiles[:, None] + stride * np.arange(count)).ravel()
        return float(self.share[tiles % len(self.share)].mean())
