"""What a program makes happen: events of every instruction, counted from its loops, which depend on no value."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from isa.config import NpuConfig
from isa.encoding import Op
from isa.instructions import INSTRUCTION_BYTES, Memory, Source

#: A cycle of the clock; a step of GEMM with one product of the array, a row it writes to ACC, a step of DEPTHWISE; a
#: row VECTOR takes from ACC, and one from ACT; a step of ROW; a beat read, a beat written; a row of padding; an
#: instruction.
EVENTS = (
    "cycle", "product", "result", "window", "post", "element", "softmax", "beat read", "beat written", "padding",
    "instruction",
)  # fmt: skip
_AT = {name: n for n, name in enumerate(EVENTS)}
#: What is said where energy is explained by cause.
CAUSES = {
    "idle": ("cycle",),
    "array": ("product", "result", "window"),
    "vector": ("post", "element", "softmax"),
    "transfer": ("beat read", "beat written", "padding"),
    "fetch": ("instruction",),
}


def per_instruction(ops: Sequence[Op], config: NpuConfig) -> np.ndarray:
    """Events of every instruction, float64 [instructions, EVENTS]; cycles are left 0, and fetching is a share of a beat
    for every instruction."""
    found = np.zeros((len(ops), len(EVENTS)))
    gemm, vector = [1] * config.gemm_loops, [1] * config.vector_loops
    load, store, pad = [1, 1], [1, 1], [0, 0, 0, 0]
    for i, o in enumerate(ops):
        row = found[i]
        row[_AT["instruction"]] = 1
        row[_AT["beat read"]] = INSTRUCTION_BYTES / config.bus_bytes
        match o.name:
            case "END":
                gemm, vector = [1] * config.gemm_loops, [1] * config.vector_loops
                load, store, pad = [1, 1], [1, 1], [0, 0, 0, 0]
            case "GEMM_LOOP":
                gemm[o["level"]] = o["count"]
            case "VECTOR_LOOP":
                vector[o["level"]] = o["count"]
            case "LOAD_DIM":
                load[o["level"]] = o["count"]
            case "STORE_DIM":
                store[o["level"]] = o["count"]
            case "LOAD_PAD":
                pad = [o[side] for side in ("left", "right", "top", "bottom")]
            case "GEMM":
                row[_AT["product"]] = math.prod(gemm)
                row[_AT["result"]] = math.prod(gemm[o["reduce"] :])
            case "DEPTHWISE":
                row[_AT["window"]] = math.prod(gemm)
                emitted = (max(0, (gemm[n] - 1 - o[f"start{n}"]) // o[f"step{n}"] + 1) for n in (0, 1))
                row[_AT["result"]] = math.prod(emitted) * math.prod(gemm[2:])
            case "VECTOR":
                row[_AT["post" if o["source"] == Source.ACC else "element"]] = math.prod(vector)
            case "ROW":
                row[_AT["softmax"]] = math.prod(vector)
            case "LOAD":
                lines = load[0] * load[1]
                nbytes = o["count"] * Memory(o["target"]).row_bytes(config)
                row[_AT["beat read"]] += lines * math.ceil(nbytes / config.bus_bytes)
                whole = (load[0] + pad[2] + pad[3]) * load[1] * (pad[0] + pad[1] + o["count"])
                row[_AT["padding"]] = whole - lines * o["count"]
            case "STORE":
                nbytes = o["count"] * Memory.ACT.row_bytes(config)
                row[_AT["beat written"]] = store[0] * store[1] * math.ceil(nbytes / config.bus_bytes)
    return found


def total(ops: Sequence[Op], config: NpuConfig, cycles: int) -> np.ndarray:
    """Events of a run of all the instructions, float64 [EVENTS]."""
    found: np.ndarray = per_instruction(ops, config).sum(axis=0)
    found[_AT["cycle"]] = cycles
    return found
