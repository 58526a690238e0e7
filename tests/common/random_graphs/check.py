"""Random graphs compiled for this CPU against onnxruntime, with every byte that a kernel must not touch watched."""

from __future__ import annotations

import numpy as np

from compiler import cpu
from compiler.passes import run_passes
from tests.common import onnx_models
from tests.common.random_graphs.builder import RandomGraph
from tests.common.segments import run_segment
from tilewright.api.build import ModelSource

TOLERANCE = 1e-4  # relative and absolute, where results are rounded on the way


def differences(graph: RandomGraph) -> list[str]:
    """What is wrong with the compiled graph, in words; nothing if it is right.

    It is compiled twice: as always, and with what is dead in the workspace poisoned and its buffers apart. The
    results must be those of onnxruntime, and the same to the bit.
    """
    want = onnx_models.run(graph.model, graph.feeds, optimize=False)
    imported = ModelSource(graph.model).graph()
    run_passes(imported)
    packed = cpu.PackedConstants(imported)
    found: list[str] = []
    results = []
    for poison in (False, True):
        segment = cpu.compile_segment(
            imported, imported.nodes, imported.inputs, imported.outputs, "random", packed=packed, poison=poison
        )
        got, faults = run_segment(segment, imported, graph.feeds)
        found += [f"{'poisoned: ' if poison else ''}{fault}" for fault in faults]
        results.append(dict(zip(segment.outputs, got, strict=True)))
    for name, exact in graph.exact.items():
        a, b, y = results[0][name], results[1][name], want[name]
        if a.tobytes() != b.tobytes():
            found.append(f"{name}: another result in a poisoned workspace")
        if a.shape != y.shape or a.dtype != y.dtype:
            found.append(f"{name}: {a.dtype} {a.shape}, onnxruntime has {y.dtype} {y.shape}")
        elif not (np.array_equal(a, y) if exact else np.allclose(a, y, TOLERANCE, TOLERANCE, equal_nan=True)):
            found.append(f"{name}: {np.sum(a != y)} of {a.size} elements differ from onnxruntime's")
    return found
