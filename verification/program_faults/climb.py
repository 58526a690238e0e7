"""Inputs that show what random ones do not: those that climb, and levels.

Small networks clamp most of their sums, so that random inputs give one output. To climb, places are set to the least or
greatest value while the float before a quantiser grows or falls; onnxruntime computes the floats. Levels reach all sums
of rows, one of which may be the only one that a fault changes. So may one of many inputs of two values.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import onnxruntime

import tilewright as tw
from tilewright.isa.program import Program

#: Trials of an input, and after how many it is kept.
_TRIALS, _KEPT = 160, (50, 100, 159)
#: Inputs of two values.
_EXTREMES = 1000
#: Levels; steps of a quantiser between the least and the greatest value, and beyond these.
_LEVELS, _STEPS, _BEYOND = 1500, 255, 12
#: Elements of each float that are driven up and down, beside its mean.
_ELEMENTS = 6


def climbing(model: onnx.ModelProto, program: Program, seed: int = 0) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Inputs of a program by how they were found.

    Args:
        model: its network, quantised in the QDQ form.
    """
    given = {value.name for value in model.graph.input}
    floats = [n.input[0] for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[0] not in given]
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    known = {value.name for value in model.graph.output}
    opened.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(floats) if name not in known)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(opened.SerializeToString(), options)
    some, random = tw.random_inputs(program, 0), np.random.default_rng(seed)
    ends = {name: (2 * value.min(), 2 * value.max()) for name, value in some.items()}
    for name in dict.fromkeys(floats):
        (first,) = session.run([name], some)
        for element in (None, *random.integers(0, first.size, _ELEMENTS)):
            for sign in (1, -1):

                def height(x: dict[str, np.ndarray], name: str = name, at: object = element, sign: int = sign) -> float:
                    found = session.run([name], x)[0].ravel()
                    return sign * float(found.mean() if at is None else found[at])

                best = {k: random.uniform(*ends[k], v.shape).astype(v.dtype) for k, v in some.items()}
                top, share = height(best), 0.5
                for trial in range(_TRIALS):
                    other = {
                        k: np.where(random.random(v.shape) < share, random.choice(ends[k], v.shape), v).astype(v.dtype)
                        for k, v in best.items()
                    }
                    if (reached := height(other)) > top:
                        best, top = other, reached
                    share = max(0.02, share * 0.985)
                    if trial in _KEPT:
                        yield f"input that climbs {name}[{element}] times {sign}, {trial}", best


def levels(program: Program) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Inputs of a program whose rows, along the last axis, are nearly of one value each: these rise from the least to
    the greatest, of a row and from row to row, and elements of a row from one step of a quantiser to the next."""
    some = tw.random_inputs(program, 0)
    for number in range(_LEVELS):
        yield f"level {number} of {_LEVELS}", {k: _level(v, number) for k, v in some.items()}


def extremes(program: Program) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Inputs of a program of the least and the greatest value, in random shares."""
    some, random = tw.random_inputs(program, 0), np.random.default_rng(0)
    for number in range(_EXTREMES):
        yield (
            f"least and greatest values {number}",
            {
                k: np.where(random.random(v.shape) < random.random(), v.min(), v.max()).astype(v.dtype)
                for k, v in some.items()
            },
        )


def _level(some: np.ndarray, number: int) -> np.ndarray:
    """An input of the type and range of another one."""
    columns = some.shape[-1] if some.ndim else 1
    rows = max(1, some.size // max(columns, 1))
    low, step = float(some.min()), (float(some.max()) - float(some.min())) / _STEPS
    at = (number + np.arange(rows)[:, None] / rows) / _LEVELS * (_STEPS + 2 * _BEYOND) - _BEYOND
    found = low + step * np.floor(at + (np.arange(columns) + 0.5) / columns)
    if some.dtype.kind in "iub":
        found = np.clip(found, some.min(), some.max())
    return found.reshape(some.shape).astype(some.dtype)
