"""Recognises movement of 8-bit tensors that selects indices along each axis independently, as QTake.

    Resize, mode nearest      =>  QTake, where nothing outside of the input is read
    Slice with steps          =>  QTake
    Pad, reflected or edge    =>  QTake
    Tile, Expand              =>  QTake

A Slice without steps and a Split stay: they are parts of their operand, which the NPU reads in place.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.graph.ops.take import QTake
from tilewright.compiler.graph.quantization import is_activation
from tilewright.compiler.graph.resampling import Resampling

Indices = tuple[tuple[int, ...] | None, ...]


def recognise_takes(graph: Graph) -> None:
    changed = False
    for position, node in enumerate(graph.nodes):
        indices = _indices(graph, node)
        if indices is not None:
            take = QTake(indices=indices)
            graph.nodes[position] = Node.of(take, [node.inputs[0]], list(node.outputs), node.name, node.origin)
            changed = True
    if changed:
        graph.prune()


def _indices(graph: Graph, node: Node) -> Indices | None:
    if node.op not in ("Resize", "Upsample", "Slice", "Pad", "Tile", "Expand") or len(node.outputs) != 1:
        return None
    x, y = graph.tensor(node.inputs[0]), graph.tensor(node.outputs[0])
    if x.data is not None or not is_activation(x) or x.dtype != y.dtype:
        return None
    if x.quant is None or not x.quant.same_as(y.quant) or 0 in x.shape or 0 in y.shape:
        return None
    constants = [graph.const(name) if name else None for name in node.inputs]
    if node.op == "Slice":
        return _sliced(x.shape, y.shape, constants)
    if node.op in ("Tile", "Expand"):
        return _repeated(x.shape, y.shape)
    if node.op == "Pad":
        return _mirrored(x.shape, node.attrs.get("mode", "constant"), constants)
    mode = node.attrs.get("mode", "nearest")
    if mode not in ("nearest", b"nearest") and not (mode == "linear" and repeats(graph, node)):
        return None
    found = _resampling(graph, node)
    if found is None or found.crops:
        return None
    return tuple(None if found.unchanged(a) else tuple(map(int, found.nearest(a))) for a in range(len(x.shape)))


def _resampling(graph: Graph, node: Node) -> Resampling | None:
    """The parameters of a Resize or Upsample, None where they are not constant."""
    constants = [graph.const(name) if name else None for name in node.inputs]
    if any(name and value is None for name, value in zip(node.inputs[1:], constants[1:], strict=True)):
        return None
    shapes = (graph.tensor(name).shape for name in (node.inputs[0], node.outputs[0]))
    return Resampling.of(node.op, node.attrs, graph.opset, constants, *shapes)


def repeats(graph: Graph, node: Node) -> bool:
    """True if a Resize interpolates along axes of one value only. One that keeps its length may be moved, too."""
    found = _resampling(graph, node)
    return found is not None and all(n == 1 or found.unchanged(axis) for axis, n in enumerate(found.shape))


def _repeated(before: tuple[int, ...], after: tuple[int, ...]) -> Indices | None:
    """The indices of a Tile or Expand, None where axes come in front."""
    if len(before) != len(after):
        return None
    return tuple(None if m == n else tuple(i % m for i in range(n)) for m, n in zip(before, after))


def _mirrored(shape: tuple[int, ...], mode: str, constants: list[np.ndarray | None]) -> Indices | None:
    """Indices of a Pad with values of the tensor; None for one that cuts, mirrors twice, or pads with a constant."""
    pads = constants[1] if len(constants) > 1 else None
    if mode not in ("reflect", "edge") or pads is None or pads.size != 2 * len(shape) or (pads < 0).any():
        return None
    indices: list[tuple[int, ...] | None] = []
    for n, before, after in zip(shape, *pads.reshape(2, -1).tolist(), strict=True):
        if mode == "reflect" and max(before, after) >= n:
            return None
        at = np.arange(-before, n + after)
        places = np.clip(at, 0, n - 1) if mode == "edge" else n - 1 - np.abs(n - 1 - np.abs(at))
        indices.append(tuple(places.tolist()) if before or after else None)
    return tuple(indices)


def _sliced(shape: tuple[int, ...], after: tuple[int, ...], constants: list[np.ndarray | None]) -> Indices | None:
    """The indices of a Slice with steps; None for one without, or one whose bounds are not constant."""
    if len(constants) != 5 or any(c is None for c in constants[1:]):
        return None
    starts, ends, axes, steps = ([int(v) for v in c.reshape(-1)] for c in constants[1:] if c is not None)
    if all(step == 1 for step in steps):
        return None
    indices: list[tuple[int, ...] | None] = [None] * len(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        first, _, _ = slice(start, end, step).indices(shape[axis])  # bounds may count from the end
        places = tuple(first + step * i for i in range(after[axis]))
        indices[axis] = None if places == tuple(range(shape[axis])) else places
    return tuple(indices)
