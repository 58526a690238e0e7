"""The difference allowed between floats and the reference: rounding, and no more.

Two correct programs add the same products in another order and so round differently. A sum of n products is off by
about `sqrt(n) * u` of its terms, u being the unit roundoff of the type (Higham and Mary, "A new approach to
probabilistic rounding error analysis", SIAM J. Sci. Comput. 41(5), 2019: the bound `lambda * sqrt(n) * u` holds with
near certainty for a small lambda). Roundings of different layers are independent, so their squares add. What one layer
is off by, the next ones hand on in proportion to the tensor's range, which is why the limit is relative to the largest
magnitude in the tensor and not to each element.

How much a network amplifies what it is handed is not known before it runs: a Sigmoid turns 1e-6 of a logit of 100 into
1e-4 of a probability. It is measured where it matters, see `Conditioning`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from tilewright.errors import UsageError

if TYPE_CHECKING:
    import onnx

    from tilewright.compiler.importer.tflite.schema import FileModel

#: How many standard deviations of the rounding error are allowed.
LAMBDA = 4.0
#: The least relative limit by dtype: functions such as exp or erf are approximated, not only rounded.
LEAST = {"float64": 1e-12, "float32": 1e-5, "float16": 2.0**-9, "bfloat16": 2.0**-6}
#: A step of 16 bits, relative to their range.
STEP = 2.0**-16
#: The inputs are moved by this many units in the last place, and outputs may differ by this many times what that does.
MOVED_ULP = 4
MOVED_TIMES = 4.0
MOVES = 2  # runs
#: Above this share of the range the network is no witness: it decides by comparing, sorting or counting.
MOST_MOVED = 1e-3

_RECURRENT = ("RNN", "GRU", "LSTM")
#: Functions into 0..1 or -1..1 that references approximate as a whole: near 0 they are off in proportion to 1.
_BOUNDED = frozenset({"Sigmoid", "Tanh", "Softmax", "Erf", "LOGISTIC", "TANH", "SOFTMAX"})
_MOVES = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Slice", "RESHAPE"})
_HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Roundings:
    """Counts of the operations of a network that round.

    Attributes:
        terms: of all its sums of products, one sum per layer; other operators count one.
        nodes: operators.
        narrow: "float16" or "bfloat16" where results of operators are rounded to it, else "".
        sixteen: tensors that are quantised to 16 bits. What makes them is computed in floats, so that each may be off
            by a step.
    """

    terms: int = 1
    nodes: int = 1
    narrow: str = ""
    sixteen: int = 0
    bounded: frozenset[str] = frozenset()

    def relative(self, dtype: str) -> float:
        """The error to be expected of a tensor of this type, relative to its range; 0 for types of one byte."""
        if dtype not in LEAST:
            return 0.0
        own = roundoff(dtype if dtype == "float64" else "float32")
        variance = self.terms * own**2 + self.sixteen * STEP**2
        half = self.narrow or (dtype if dtype in _HALVES else "")
        if half:
            variance += self.nodes * roundoff(half) ** 2
        return max(LEAST[half or dtype], LAMBDA * math.sqrt(variance))

    def steps(self) -> float:
        """Allowed difference of a 16-bit tensor, in quantisation steps."""
        return math.ceil(LAMBDA * math.sqrt(self.sixteen))


def roundoff(dtype: str) -> float:
    """Unit roundoff of a float type: half the distance of 1 to the next number."""
    return float(ml_dtypes.finfo(dtype).eps) / 2


@dataclass(frozen=True)
class Tolerance:
    """Limits of `--tolerance`: an element passes if one of them allows its difference.

    Attributes:
        absolute: difference.
        relative: difference over the largest finite magnitude in the reference's tensor.
        ulp: difference in units in the last place of the reference's element.
    """

    absolute: float | None = None
    relative: float | None = None
    ulp: float | None = None

    @staticmethod
    def parse(text: str) -> Tolerance:
        """Parses "1e-4", which is relative, or "rel=1e-4,abs=1e-6,ulp=8" with one or more of the three.

        Raises:
            UsageError: anything else.
        """
        names = {"abs": "absolute", "rel": "relative", "ulp": "ulp"}
        found: dict[str, float] = {}
        for part in text.split(","):
            name, equals, number = part.rpartition("=")
            name = name.strip() if equals else "rel"
            try:
                value = float(number)
            except ValueError:
                value = -1.0
            if name not in names or names[name] in found or not 0 <= value < math.inf:
                raise UsageError(
                    f"tolerance {text!r}: give a number, which is relative to the largest magnitude in the tensor, "
                    "or abs=, rel= and ulp= with numbers from 0, such as rel=1e-4,ulp=8"
                )
            found[names[name]] = value
        return Tolerance(**found)

    def limits(self, expected: np.ndarray) -> np.ndarray | float:
        """The largest difference of every element that passes."""
        values = expected.astype(np.float64)
        finite = np.abs(values[np.isfinite(values)])
        limit: np.ndarray | float = self.absolute or 0.0
        if self.relative is not None:
            limit = max(float(limit), self.relative * float(finite.max()) if finite.size else 0.0)
        if self.ulp is not None:
            limit = np.maximum(limit, self.ulp * spacing(expected))
        return limit

    def __str__(self) -> str:
        named = (("rel", self.relative), ("abs", self.absolute), ("ulp", self.ulp))
        return ",".join(f"{name}={value:g}" for name, value in named if value is not None)


def spacing(values: np.ndarray) -> np.ndarray:
    """Units in the last place of floats, as float64; 0 for those that are not finite."""
    info = ml_dtypes.finfo(values.dtype)
    magnitude = np.abs(values.astype(np.float64))
    finite = np.isfinite(magnitude)
    _, exponent = np.frexp(np.maximum(np.where(finite, magnitude, 1.0), float(info.tiny)))
    return np.where(finite, np.ldexp(float(info.eps), exponent - 1), 0.0)


def default_tolerance(roundings: Roundings, dtype: str, name: str = "") -> Tolerance:
    """The rule without `--tolerance`.

    A tensor whose range is below the relative limit holds what cancellation or underflow has left of larger values: it
    is compared as if its range were the limit. What a Sigmoid or its like made may be off by a unit in the last place
    of 1, however small all of it is (a page without text).

    Args:
        name: of the tensor.
    """
    relative = roundings.relative(dtype)
    unit = 2 * roundoff(dtype) if name in roundings.bounded and dtype in LEAST else 0.0
    return Tolerance(absolute=max(relative**2, unit), relative=relative)


@dataclass
class Conditioning:
    """Amplification of rounding by a float network, measured on the reference.

    Its float inputs are moved by a few units in the last place, at random: no program can be asked to be more exact
    than the network's answer to its own input. Only networks without quantised operators are measured: in others a
    moved input moves whole steps.

    Parameters:
        run: the reference.
        inputs: of the run that is compared.
        expected: its outputs.
    """

    run: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
    inputs: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]
    _found: dict[str, float] | None = field(default=None, init=False)

    def limit(self, name: str) -> float:
        """The difference that an output may show; 0 where nothing was learned."""
        if self._found is None:
            self._found = self._measure()
        return self._found.get(name, 0.0)

    def _measure(self) -> dict[str, float]:
        found: dict[str, float] = {}
        floats = [name for name, value in self.inputs.items() if value.dtype.name in LEAST]
        for seed in range(MOVES if floats else 0):
            random = np.random.default_rng(seed)
            moved = {n: _moved(v, random) if n in floats else v for n, v in self.inputs.items()}
            for name, value in self.run(moved).items():
                before = self.expected.get(name)
                if before is None or value.dtype.name not in LEAST or value.shape != before.shape or not value.size:
                    continue
                a, b = value.astype(np.float64), before.astype(np.float64)
                with np.errstate(invalid="ignore"):
                    distance = np.abs(a - b)
                range_ = np.abs(b[np.isfinite(b)]).max(initial=0.0)
                change = MOVED_TIMES * float(distance[np.isfinite(distance)].max(initial=0.0))
                found[name] = max(found.get(name, 0.0), min(change, MOST_MOVED * float(range_)))
        return found


def _moved(values: np.ndarray, random: np.random.Generator) -> np.ndarray:
    eps = float(ml_dtypes.finfo(values.dtype).eps)
    scale = 1 + MOVED_ULP * eps * random.uniform(-1, 1, values.shape)
    return (values.astype(np.float64) * scale).astype(values.dtype)


def onnx_roundings(model: onnx.ModelProto) -> Roundings:
    """Counts the roundings of an ONNX model. Branches and loop bodies count once."""
    from onnx import TensorProto

    from tilewright.compiler.onnx.onnx_graphs import subgraphs

    halves = {TensorProto.FLOAT16: "float16", TensorProto.BFLOAT16: "bfloat16"}
    terms, nodes, sixteen, narrow = 0, 0, 0, ""
    bounded: set[str] = set()
    choices: list[onnx.NodeProto] = []
    wide = (TensorProto.INT16, TensorProto.UINT16)
    graphs = [model.graph]
    kinds = {i.name: i.type.tensor_type.elem_type for i in model.graph.input}
    while graphs:
        graph = graphs.pop()
        shapes = {i.name: tuple(i.dims) for i in graph.initializer}
        kinds |= {i.name: i.data_type for i in graph.initializer}
        for node in graph.node:
            graphs += subgraphs(node)
            choices += [node] * (node.op_type == "If")
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.HasField("t"):
                    shapes[node.output[0]] = tuple(attribute.t.dims)
                    kinds[node.output[0]] = attribute.t.data_type
                if node.op_type == "Cast" and attribute.name == "to":
                    kinds[node.output[0]] = attribute.i
            if node.op_type == "Constant":
                continue
            nodes += 1
            if node.op_type in _BOUNDED or (node.op_type in _MOVES and node.input[0] in bounded):
                bounded.update(node.output)
            if node.op_type == "QuantizeLinear":
                zero = kinds.get(node.input[2]) if len(node.input) > 2 else None
                sixteen += zero in wide or any(a.name == "output_dtype" and a.i in wide for a in node.attribute)
            terms += _terms(node.op_type, [shapes.get(name, ()) for name in node.input])
            if node.op_type not in ("Cast", "DequantizeLinear"):
                narrow = narrow or next((halves[kinds[n]] for n in node.input if kinds.get(n) in halves), "")
    for node in reversed(choices):  # inner ones first
        given = [[x.name in bounded for x in branch.output] for branch in subgraphs(node)]
        bounded.update(name for name, some in zip(node.output, zip(*given)) if any(some))
    return Roundings(max(terms, 1), max(nodes, 1), narrow, sixteen, frozenset(bounded))


def _terms(op: str, shapes: list[tuple[int, ...]]) -> int:
    """Length of the sums of one ONNX operator, by the shapes of its constant operands (() for others)."""
    if op in _RECURRENT and len(shapes) > 2 and shapes[1] and shapes[2]:
        return shapes[1][-1] + shapes[2][-1]
    weights = max(shapes, key=lambda shape: (len(shape) > 1, math.prod(shape)), default=())
    if len(weights) < 2 or not math.prod(weights):
        return 1
    if "Conv" in op:
        return math.prod(weights) // weights[1 if "Transpose" in op else 0]
    if "MatMul" in op or "Gemm" in op:
        return max(weights[-2:])
    return 1


def tflite_roundings(file: FileModel) -> Roundings:
    """Counts the roundings of a TFLite model: its weights have the output channels first, those of DEPTHWISE_CONV_2D
    last."""
    terms = 0
    bounded: set[str] = set()
    for graph, op in file.all_ops:
        if op.name in _BOUNDED or (op.name in _MOVES and graph.tensors[op.inputs[0]].name in bounded):
            bounded.update(graph.tensors[i].name for i in op.outputs)
        shapes = [graph.tensors[i].shape for i in op.inputs if i >= 0 and graph.tensors[i].data is not None]
        weights = next((shape for shape in shapes if len(shape) > 1 and all(shape)), ())
        product = any(word in op.name for word in ("CONV", "FULLY_CONNECTED", "LSTM", "RNN", "MATMUL"))
        outputs = weights[-1 if "DEPTHWISE" in op.name else 0] if weights else 1
        terms += max(math.prod(weights) // outputs, 1) if product and weights else 1
    return Roundings(max(terms, 1), max(len(file.all_ops), 1), bounded=frozenset(bounded))
