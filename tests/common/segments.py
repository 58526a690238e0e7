"""Compiled segments run in this process, with the memory around their buffers watched."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.compiler import cpu
from tilewright.compiler.cpu.stages.entry import POISON
from tilewright.compiler.graph.graph import Graph

GUARD = 192  # bytes behind every buffer
GARBAGE = 0xA5  # what memory holds before


def run_segment(
    segment: cpu.Segment, graph: Graph, feeds: Mapping[str, np.ndarray]
) -> tuple[list[np.ndarray], list[str]]:
    """The outputs, and what the kernels did to memory that is not theirs, in words.

    Outputs and workspace are filled with garbage before. A poisoned workspace must be poison all over afterwards.
    """
    buffers = [np.ascontiguousarray(feeds[name]) for name in segment.inputs]
    for name in segment.constants:
        data = graph.tensor(name).data
        assert data is not None
        buffers.append(np.ascontiguousarray(data))
    raw = [_garbage(graph.tensor(name).nbytes) for name in segment.outputs]
    workspace = _garbage(segment.workspace_bytes)
    run = cpu.load(segment.object_code, segment.symbol)
    run([*(b.ctypes.data for b in buffers), *(r.ctypes.data for r in raw)], workspace.ctypes.data)
    faults = [
        f"written behind {name}"
        for name, r in zip((*segment.outputs, "the workspace"), (*raw, workspace), strict=True)
        if np.any(r[-GUARD:] != GARBAGE)
    ]
    content = workspace[:-GUARD]
    if segment.poisoned and np.any(content != POISON):
        at = np.flatnonzero(content != POISON)
        faults.append(f"{len(at)} bytes of the workspace written that belong to no buffer, the first at {at[0]}")
    outputs = []
    for name, r in zip(segment.outputs, raw, strict=True):
        t = graph.tensor(name)
        assert t.shape is not None
        outputs.append(r[:-GUARD].view(t.dtype).reshape(t.shape))
    return outputs, faults


def _garbage(nbytes: int) -> np.ndarray:
    """Memory aligned to 64 bytes, with a guard behind it."""
    memory = np.full(nbytes + GUARD + 64, GARBAGE, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + nbytes + GUARD]
