"""The graph under construction. Every TFLite tensor has up to two forms: that of the file (NHWC), and, if of rank 4,
that of the graph's convolutions (NCHW). A handler requests the form it needs; a Transpose is made only where the other
one exists alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.graph.graph import Graph, Node, Quant, Tensor
from tilewright.compiler.graph.ops import QuantizedOp
from tilewright.compiler.graph.tensor import EIGHT_BIT
from tilewright.compiler.importer.tflite.package import tflite
from tilewright.compiler.importer.tflite.schema import FileModel, FileOp, FileTensor
from tilewright.compiler.importer.tflite.state_table import Variables
from tilewright.compiler.limits import MAX_SCALE, check_attributes, check_operands, check_positions, check_shape
from tilewright.compiler.onnx.functions import OWN_OPS, own_types
from tilewright.compiler.onnx.onnx_ops import default_attributes, elem_type, evaluate, infer

FILE, PLANES = "file", "planes"
PARTS = "parts"  # of complex numbers: real and imaginary along a last axis, the only form they have
_TO_PLANES, _TO_FILE = (0, 3, 1, 2), (0, 2, 3, 1)
_STEPS = (*EIGHT_BIT, np.dtype(np.int16))
_FOLDED = 1 << 14  # elements of integer arithmetic done at import: shapes, indices, loop counters


def planes_shape(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(shape[i] for i in _TO_PLANES)


def file_shape(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(shape[i] for i in _TO_FILE)


class TfliteBuilder:
    """A graph under construction from the operators of a TFLite file.

    Args:
        graph: receives tensors and nodes.
        model: the file.
        checked: compare shapes with those of the file (not where the caller changes input shapes).

    Attributes:
        forms: the graph's tensor in each form, by the index of the file's tensor.
        variables: variables of the model, None where they are not the graph's.
    """

    def __init__(self, graph: Graph, model: FileModel, checked: bool) -> None:
        self.graph, self.model, self.checked = graph, model, checked
        self.forms: dict[int, dict[str, str]] = {}
        self.op = FileOp("", 0, 0, [], [])
        self.taken = {t.name for t in model.tensors}
        self.variables: Variables | None = None

    # --- queries of handlers ---

    def refuse(self, what: str) -> UnsupportedError:
        """The error for a valid construct that is not supported."""
        return UnsupportedError(f"{self.op.label}: {what}")

    def damaged(self, what: str) -> CompileError:
        return CompileError(f"{self.op.label}: {what}")

    def source(self, k: int) -> FileTensor:
        """The k-th input of the op in the file. Raises CompileError where it is left out."""
        if k >= len(self.op.inputs) or self.op.inputs[k] < 0:
            raise self.damaged(f"input {k} is missing")
        return self.model.tensors[self.op.inputs[k]]

    def has(self, k: int) -> bool:
        return k < len(self.op.inputs) and self.op.inputs[k] >= 0

    def target(self, k: int = 0) -> FileTensor:
        if k >= len(self.op.outputs):
            raise self.damaged(f"output {k} is missing")
        return self.model.tensors[self.op.outputs[k]]

    def const(self, k: int, what: str) -> np.ndarray:
        """The value of an input that must be known at compile time."""
        t = self.source(k)
        name = self.forms.get(t.index, {}).get(FILE)
        data = t.data if t.data is not None else self.graph.const(name) if name else None
        if t.dtype is None:
            raise self.refuse(f"{what} {t.name!r} of type {t.type_name} is not supported")
        if data is None:
            raise self.refuse(f"{what} {t.name!r} must be a constant")
        return data

    def ints(self, k: int, what: str) -> list[int]:
        data = self.const(k, what)
        if data.dtype.kind != "i":
            raise self.damaged(f"{what} must be integers, not {data.dtype}")
        return [int(v) for v in data.reshape(-1)]

    def byte_quant(self, t: FileTensor) -> Quant:
        """The scale and zero point of an int8 or uint8 activation. Raises UnsupportedError for others."""
        if t.dtype not in EIGHT_BIT or t.quant is None:
            given = t.type_name + ("" if t.quant is not None or t.dtype not in EIGHT_BIT else " without scale")
            raise self.refuse(f"{t.name!r} is {given}; int8 and uint8 with one scale are accepted")
        if not t.quant.per_tensor or not float(t.quant.scale) > 0:
            raise self.refuse(f"{t.name!r} must have one positive scale")
        if not 1 / MAX_SCALE <= float(t.quant.scale) <= MAX_SCALE:
            raise self.refuse(f"{t.name!r} has scale {float(t.quant.scale):g}; up to 2^40 and from 2^-40 are accepted")
        info = np.iinfo(t.dtype)
        if not info.min <= int(t.quant.zero_point) <= info.max:
            raise self.damaged(f"zero point {int(t.quant.zero_point)} of {t.name!r} is no {t.dtype}")
        return t.quant

    def is_bytes(self, t: FileTensor) -> bool:
        return t.dtype in EIGHT_BIT and t.quant is not None

    def is_steps(self, t: FileTensor) -> bool:
        """True if the tensor's integers represent reals: 8 or 16 bits with a scale."""
        return t.dtype in _STEPS and t.quant is not None and bool(np.all(t.quant.scale > 0))

    def quantised(self) -> bool:
        """True if the op computes on 8-bit quantised activations."""
        ks = [k for k in range(len(self.op.inputs)) if self.has(k)]
        tensors = [t for t in map(self.source, ks) if t.data is None]
        tensors += [self.target(k) for k in range(len(self.op.outputs))]
        return any(self.is_bytes(t) for t in tensors)

    def is_complex(self) -> bool:
        """True if the op reads or makes complex numbers."""
        used = [i for i in (*self.op.inputs, *self.op.outputs) if 0 <= i < len(self.model.tensors)]
        return any(self.model.tensors[i].type_name == "COMPLEX64" for i in used)

    def wide(self) -> bool:
        """True if the op makes 16-bit activations, or reads one as its first input: int16 with any scale."""
        tensors = [self.source(0)] if self.has(0) else []
        tensors += [self.target(k) for k in range(len(self.op.outputs))]
        return any(t.dtype == np.int16 and t.quant is not None for t in tensors)

    def wide_scale(self, t: FileTensor) -> np.float32:
        """The scale of a 16-bit activation, whose zero point is 0. Raises UnsupportedError for others."""
        if t.dtype != np.int16 or t.quant is None:
            given = t.type_name + ("" if t.quant is not None or t.dtype != np.int16 else " without scale")
            raise self.refuse(f"{t.name!r} is {given}; int16 with one scale is accepted beside 16-bit activations")
        if not t.quant.per_tensor or int(t.quant.zero_point) != 0:
            raise self.refuse(f"{t.name!r} must have one scale and the zero point 0, as 16-bit activations do")
        if not 1 / MAX_SCALE <= float(t.quant.scale) <= MAX_SCALE:
            raise self.refuse(f"{t.name!r} has scale {float(t.quant.scale):g}; up to 2^40 and from 2^-40 are accepted")
        return np.float32(t.quant.scale)

    def steps(self, t: FileTensor) -> tuple[np.float32, int]:
        """The scale and zero point of an activation of 8 or 16 bits. Raises UnsupportedError for others."""
        if t.dtype == np.int16:
            return self.wide_scale(t), 0
        q = self.byte_quant(t)
        return np.float32(q.scale), int(q.zero_point)

    def shape(self, k: int) -> tuple[int, ...]:
        """The shape of an input in the graph, in the file's order of axes."""
        t = self.source(k)
        forms = self.forms.get(t.index)
        if not forms:
            return t.shape
        if FILE in forms:
            return self.graph.tensor(forms[FILE]).shape
        if PARTS in forms:
            return self.graph.tensor(forms[PARTS]).shape[:-1]
        return file_shape(self.graph.tensor(forms[PLANES]).shape)

    def layout(self, *ks: int) -> str:
        """The form in which inputs of rank 4 exist already: PLANES if a computed one does."""
        for k in ks:
            forms = self.forms.get(self.source(k).index, {})
            if len(self.shape(k)) == 4 and PLANES in forms and FILE not in forms:
                return PLANES
        return FILE

    def value(self, k: int, form: str = FILE) -> str:
        """The name of an input in a form."""
        return self.form_of(self.source(k), form)

    def form_of(self, t: FileTensor, form: str) -> str:
        forms = self.forms.setdefault(t.index, {})
        if form in forms:
            return forms[form]
        if not forms:
            if t.data is None:
                raise self.damaged(f"reads {t.name!r}, which no operator before it makes")
            forms[FILE] = self._constant(t)
            return self.form_of(t, form)
        if PARTS in forms:
            raise self.refuse(f"{t.name!r} has complex numbers, which no output of a model can be")
        old = self.graph.tensor(next(iter(forms.values())))
        if len(old.shape) != 4:
            raise self.damaged(f"{t.name!r} has shape {list(old.shape)}, rank 4 is needed")
        perm = _TO_PLANES if form == PLANES else _TO_FILE
        shape = tuple(old.shape[i] for i in perm)
        if old.data is not None:
            forms[form] = self.graph.constant(t.name, np.ascontiguousarray(old.data.transpose(perm)), old.quant)
            return forms[form]
        name = self._new_name(t, form)
        self.graph.add(Tensor(name, shape, old.dtype, None, old.quant))
        self.graph.nodes.append(Node("Transpose", [old.name], [name], {"perm": list(perm)}, name, (t.name,)))
        forms[form] = name
        return name

    def _constant(self, t: FileTensor) -> str:
        if t.dtype is None or t.data is None:
            raise self.refuse(f"constant {t.name!r} of type {t.type_name} is not supported")
        name = f"{t.name}.const"
        while name in self.graph.tensors or name in self.taken:
            name += "_"
        self.graph.add(Tensor(name, t.data.shape, t.data.dtype, t.data, t.quant if self.is_bytes(t) else None))
        return name

    def _new_name(self, t: FileTensor, form: str) -> str:
        """The file's name for the first form made; graph inputs and outputs keep it for the file's own form."""
        outside = t.index in self.model.outputs or t.index in self.model.inputs
        name = t.name
        if name in self.graph.tensors or (outside and form == PLANES):
            name = f"{t.name}.{form}"
            while name in self.graph.tensors or name in self.taken:
                name += "_"
        return name

    # --- emitting ---

    def result(self, shape: Sequence[int], form: str = FILE, k: int = 0) -> str:
        """Adds the tensor of an output; `shape` is in that form's order. Raises CompileError if the file disagrees."""
        t = self.target(k)
        shape = tuple(int(s) for s in shape)
        self.check_result(t, file_shape(shape) if form == PLANES else shape)
        if t.dtype is None:
            raise self.refuse(f"output {t.name!r} of type {t.type_name} is not supported")
        name = self._new_name(t, form)
        self.graph.add(Tensor(name, shape, t.dtype, None, t.quant if self.is_steps(t) else None))
        self.forms[t.index] = {form: name}
        return name

    def check_result(self, t: FileTensor, shape: tuple[int, ...]) -> None:
        """Raises CompileError unless an output of the file can get this shape, and has none yet."""
        check_shape(f"{self.op.label}: output", t.name, shape)
        if any(s < 0 for s in shape):
            raise self.damaged(f"output {t.name!r} would have shape {list(shape)}")
        unknown = self.op.custom and t.shape == ()  # converters know no shapes behind custom operators
        if self.checked and not _fits(shape, t) and not unknown:
            raise self.damaged(f"output {t.name!r} has shape {list(t.shape)} in the file, {list(shape)} follows")
        if self.forms.get(t.index) or t.data is not None:
            raise self.damaged(f"{t.name!r} is made twice")

    def quantized(self, op: QuantizedOp, inputs: Sequence[str], output: str) -> None:
        """Appends a quantised op whose output exists."""
        check_operands(self.op.label, len(inputs))
        check_attributes(self.op.label, vars(op))
        self.graph.nodes.append(Node.of(op, list(inputs), [output], output, (self.op.label,)))

    def onnx(self, op: str, inputs: Sequence[str], attrs: dict[str, Any] | None = None, output: str = "") -> str:
        """Appends an ONNX op in normal form; a fresh output gets its type by inference, a given one exists."""
        full = {k: v for k, v in {**default_attributes(op), **(attrs or {})}.items() if v is not None}
        name = output or self.graph.unique(f"{self.target().name}.{op}")
        check_operands(self.op.label, len(inputs))
        check_attributes(self.op.label, full)
        node = Node(op, list(inputs), [name], full, name, (self.op.label,))
        tensors = [self.graph.tensor(i) if i else None for i in inputs]
        ((shape, dtype),) = own_types(node, tensors) or infer(node, tensors)
        if shape is None or dtype is None:
            raise self.refuse("the shape of its result cannot be known")
        check_shape(f"{self.op.label}: {op}", name, shape)
        check_positions(self.op.label, op, shape)
        if not output:
            self.graph.add(Tensor(name, tuple(shape), dtype))
        made = self.graph.tensor(name)
        if made.shape != tuple(shape):
            raise self.damaged(f"result has shape {list(shape)}, not {list(made.shape)}")
        if made.dtype != dtype:
            raise self.damaged(f"result is {dtype}, the file has {made.dtype}")
        known = op not in OWN_OPS and all(t is None or t.data is not None for t in tensors)
        if known and dtype.kind in "ib" and made.size <= _FOLDED and name not in self.graph.outputs:
            (value,) = evaluate(node, [None if t is None else t.data for t in tensors])
            made.data = value.astype(dtype).reshape(shape)
        else:
            self.graph.nodes.append(node)
        return name

    def moved(self, op: str, inputs: Sequence[str], attrs: dict[str, Any] | None = None) -> str:
        """Appends an ONNX op that moves elements: its result has the scale of its first input."""
        name = self.onnx(op, inputs, attrs)
        self.graph.tensor(name).quant = self.graph.tensor(inputs[0]).quant
        return name

    def cast(self, name: str, dtype: Any, output: str = "") -> str:
        return self.onnx("Cast", [name], {"to": elem_type(np.dtype(dtype))}, output)

    def reshaped(self, name: str, shape: Sequence[int], output: str = "") -> str:
        return self.onnx("Reshape", [name, self.constant("shape", shape, np.int64)], {"allowzero": 1}, output)

    def section(self, name: str, start: int, end: int, axis: int) -> list[str]:
        """The inputs of a Slice that keeps `start` to `end` - 1 of an axis."""
        return [name, *(self.constant("slice", [v], np.int64) for v in (start, end, axis, 1))]

    def constant(self, stem: str, value: Any, dtype: Any = None, quant: Quant | None = None) -> str:
        return self.graph.constant(stem, np.asarray(value, dtype), quant)

    def dequantized(self, name: str, t: FileTensor) -> str:
        """The float32 values of a quantised tensor; others stay unchanged."""
        if not self.is_steps(t):
            return name
        assert t.quant is not None
        data = self.graph.const(name)
        if data is not None:
            along = [-1 if i == t.quant.axis else 1 for i in range(data.ndim)]
            zero, scale = (v if t.quant.per_tensor else v.reshape(along) for v in (t.quant.zero_point, t.quant.scale))
            return self.constant(name, (data.astype(np.int32) - zero).astype(np.float32) * scale)
        return self.onnx("DequantizeLinear", [name, *self._parameters(t)])

    def real(self, k: int, form: str = FILE) -> str:
        """An input as floats where it is quantised, else unchanged."""
        t = self.source(k)
        if t.data is not None and form == PLANES and t.quant is not None and not t.quant.per_tensor:
            raise self.refuse(f"{t.name!r} has scales per channel")
        return self.dequantized(self.value(k, form), t)

    def _parameters(self, t: FileTensor) -> list[str]:
        q = t.quant
        if q is None or not q.per_tensor:
            raise self.refuse(f"{t.name!r} must have one positive scale")
        assert t.dtype is not None
        if int(q.zero_point) != int(q.zero_point.astype(t.dtype)):
            raise self.damaged(f"zero point {int(q.zero_point)} of {t.name!r} is no {t.dtype}")
        return [self.constant("scale", q.scale), self.constant("zero_point", q.zero_point.astype(t.dtype))]

    def quantize_into(self, name: str, form: str = FILE, k: int = 0) -> None:
        """Makes the op's output from real values, or from integers that are not quantised."""
        t, value = self.target(k), self.graph.tensor(name)
        out = self.result(value.shape, form, k)
        if self.is_steps(t) and value.dtype == np.float32:
            self.onnx("QuantizeLinear", [name, *self._parameters(t)], output=out)
        elif value.dtype != t.dtype:
            raise self.refuse(f"its result is {value.dtype}, {t.name!r} is {t.type_name}")
        else:
            if value.quant is None:  # the Identity is folded
                value.quant = self.graph.tensor(out).quant
            self.onnx("Identity", [name], output=out)

    def activation(self, accessor: str = "FusedActivationFunction") -> tuple[float, float]:
        """The real bounds of the op's fused activation."""
        kind = self.op.option(accessor, tflite.ActivationFunctionType.NONE)
        found = _BOUNDS.get(kind)
        if found is None:
            raise self.refuse(f"fused activation {kind} is not supported; NONE, RELU, RELU6 and RELU_N1_TO_1 are")
        return found

    def activated(self, name: str) -> str:
        """Applies the op's fused activation to real values."""
        if self.op.option("FusedActivationFunction", 0) == tflite.ActivationFunctionType.TANH:
            return self.onnx("Tanh", [name])
        low, high = self.activation()
        if low == -np.inf and high == np.inf:
            return name
        if self.graph.tensor(name).dtype != np.float32:
            raise self.refuse("a fused activation on integers is not supported")
        return self.clipped(name, low, high)

    def clipped(self, name: str, low: float, high: float) -> str:
        """Clips real values to two bounds."""
        if high == np.inf:
            return self.onnx("Relu", [name]) if low == 0 else name
        return self.onnx("Clip", [name, *(self.constant("bound", v, np.float32) for v in (low, high))])

    def clamp(self, builtin: bool = False) -> tuple[int, int]:
        """The op's fused activation as limits in the output's quantised units; `builtin` as for `clamp_of`."""
        return self.clamp_of(self.target(), *self.activation(), builtin)

    def clamp_of(self, t: FileTensor, low: float, high: float, builtin: bool = False) -> tuple[int, int]:
        """Real limits in the quantised units of a tensor.

        Args:
            builtin: rounds as LiteRT's built-in kernels do, ties of limit over scale away from zero, then the zero
                point; else as XNNPACK does, ties to even with the zero point inside. 16 bits are always the former.
        """
        (scale, zero), info = self.steps(t), np.iinfo(t.dtype)

        def units(value: float, limit: int) -> int:
            if not np.isfinite(value):
                return limit
            steps = np.float32(value) / scale
            if builtin or t.dtype == np.int16:
                found = float(half_away(steps)) + zero
            else:
                found = float(np.rint(steps + np.float32(zero)))
            return int(min(max(found, info.min), info.max))

        return units(low, int(info.min)), units(high, int(info.max))


def half_away(values: np.ndarray | np.floating) -> np.ndarray:
    """Rounds to the nearest integers, ties away from zero, like C's `round`; float64."""
    wide = np.asarray(values, np.float64)  # a float32 half below an integer plus 1/2 is exact there
    return np.asarray(np.copysign(np.floor(np.abs(wide) + 0.5), wide))


def _fits(shape: tuple[int, ...], t: FileTensor) -> bool:
    """True if a shape is the file's; sizes its signature leaves open (-1) are only examples there."""
    if shape == t.shape:
        return True
    known = len(t.signature) == len(shape)
    return known and all(was in (-1, n) for n, was in zip(shape, t.signature))


_BOUNDS = {
    tflite.ActivationFunctionType.NONE: (-np.inf, np.inf),
    tflite.ActivationFunctionType.RELU: (0.0, np.inf),
    tflite.ActivationFunctionType.RELU6: (0.0, 6.0),
    tflite.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
}
