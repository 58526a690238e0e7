"""Inputs that climb: places are set to the least or greatest value while the float before a quantiser grows or falls.

Small networks clamp most of their sums, so that random inputs give one output. onnxruntime computes the floats.
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
