"""Small TFLite files, written field by field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import tflite

_TYPES = {"float32": 0, "float16": 1, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "int16": 7,
          "complex64": 8, "int8": 9, "resource": 13}  # fmt: skip


@dataclass
class T:
    """A tensor: scale and zero point as numbers or lists (then along `axis`); -1 in `signature` for open sizes."""

    name: str
    shape: Sequence[int]
    dtype: str = "int8"
    scale: Any = None
    zero: Any = 0
    axis: int = 0
    data: np.ndarray | None = None
    signature: Sequence[int] = ()


@dataclass
class Op:
    """`options`: (table name such as "Conv2DOptions", fields by their names). `variables`: inputs that are states."""

    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    options: tuple[str, dict[str, Any]] | None = None
    version: int = 1
    intermediates: Sequence[str] = ()
    variables: Sequence[str] = ()
    custom: bytes = b""


@dataclass
class Model:
    tensors: list[T]
    ops: list[Op]
    inputs: Sequence[str]
    outputs: Sequence[str]
    byte_codes: bool = True  # operators are numbered in both fields; False: only in the younger one
    copies: int = 1  # of the graph
    first: tuple[list[T], list[Op]] | None = None  # tensors and operators of a second graph, for CALL_ONCE
    called: Sequence[
        tuple[list[T], list[Op], list[str], list[str]]
    ] = ()  # graphs behind these, with inputs and outputs
    _buffers: list[bytes] = field(default_factory=lambda: [b""])

    def build(self) -> bytes:
        b = flatbuffers.Builder(1024)
        inner = [o for graph in ([self.first] if self.first else [], self.called) for g in graph for o in g[1]]
        codes = list(dict.fromkeys((o.name, o.version) for o in [*self.ops, *inner]))
        graphs = [self._graph(b, self.tensors, self.ops, self.inputs, self.outputs, codes)] * self.copies
        if self.first is not None:
            graphs.append(self._graph(b, *self.first, [], [], codes))
        graphs += [self._graph(b, *graph, codes) for graph in self.called]
        buffers = []
        for raw in self._buffers:
            data = b.CreateByteVector(raw) if raw else None
            tflite.BufferStart(b)
            if data is not None:
                tflite.BufferAddData(b, data)
            buffers.append(tflite.BufferEnd(b))
        made = []
        for name, version in codes:
            number = getattr(tflite.BuiltinOperator, name, tflite.BuiltinOperator.CUSTOM)
            own = b.CreateString(name) if number == tflite.BuiltinOperator.CUSTOM else 0
            tflite.OperatorCodeStart(b)
            if own:
                tflite.OperatorCodeAddCustomCode(b, own)
            if self.byte_codes:
                tflite.OperatorCodeAddDeprecatedBuiltinCode(b, min(number, 127))
            tflite.OperatorCodeAddBuiltinCode(b, number)
            tflite.OperatorCodeAddVersion(b, version)
            made.append(tflite.OperatorCodeEnd(b))
        vectors = [_offsets(b, made), _offsets(b, graphs), _offsets(b, buffers)]
        tflite.ModelStart(b)
        tflite.ModelAddVersion(b, 3)
        for add, part in zip(("OperatorCodes", "Subgraphs", "Buffers"), vectors):
            getattr(tflite, f"ModelAdd{add}")(b, part)
        b.Finish(tflite.ModelEnd(b), b"TFL3")
        return bytes(b.Output())

    def _graph(
        self,
        b: Any,
        made: Sequence[T],
        ops: Sequence[Op],
        inputs: Sequence[str],
        outputs: Sequence[str],
        codes: Sequence[tuple[str, int]],
    ) -> int:
        index = {t.name: i for i, t in enumerate(made)}
        variables = {n for o in ops for n in o.variables}
        tensors = [self._tensor(b, t, t.name in variables) for t in made]
        operators = []
        for o in ops:
            options, kind = _options(b, o)
            ins = _ints(b, [index[n] if n else -1 for n in o.inputs])
            outs = _ints(b, [index[n] for n in o.outputs])
            inner = _ints(b, [index[n] for n in o.intermediates]) if o.intermediates else 0
            custom = b.CreateByteVector(o.custom) if o.custom else 0
            tflite.OperatorStart(b)
            tflite.OperatorAddOpcodeIndex(b, codes.index((o.name, o.version)))
            tflite.OperatorAddInputs(b, ins)
            tflite.OperatorAddOutputs(b, outs)
            if inner:
                tflite.OperatorAddIntermediates(b, inner)
            if custom:
                tflite.OperatorAddCustomOptions(b, custom)
            if kind:
                tflite.OperatorAddBuiltinOptionsType(b, kind)
                tflite.OperatorAddBuiltinOptions(b, options)
            operators.append(tflite.OperatorEnd(b))
        parts = [
            _offsets(b, tensors), _ints(b, [index[n] for n in inputs]), _ints(b, [index[n] for n in outputs]),
            _offsets(b, operators),
        ]  # fmt: skip
        tflite.SubGraphStart(b)
        for add, part in zip(("Tensors", "Inputs", "Outputs", "Operators"), parts):
            getattr(tflite, f"SubGraphAdd{add}")(b, part)
        return int(tflite.SubGraphEnd(b))

    def _tensor(self, b: Any, t: T, variable: bool) -> int:
        buffer = 0
        if t.data is not None:
            buffer = len(self._buffers)
            self._buffers.append(np.ascontiguousarray(t.data.astype(t.dtype)).tobytes())
        name, shape, quant = b.CreateString(t.name), _ints(b, t.shape), None
        if t.scale is not None:
            scales = b.CreateNumpyVector(np.atleast_1d(np.asarray(t.scale, np.float32)))
            count = np.atleast_1d(t.scale).size
            zeros = b.CreateNumpyVector(np.broadcast_to(np.asarray(t.zero, np.int64), (count,)).copy())
            tflite.QuantizationParametersStart(b)
            tflite.QuantizationParametersAddScale(b, scales)
            tflite.QuantizationParametersAddZeroPoint(b, zeros)
            tflite.QuantizationParametersAddQuantizedDimension(b, t.axis)
            quant = tflite.QuantizationParametersEnd(b)
        signature = _ints(b, t.signature) if t.signature else 0
        tflite.TensorStart(b)
        tflite.TensorAddShape(b, shape)
        tflite.TensorAddType(b, _TYPES[t.dtype])
        tflite.TensorAddBuffer(b, buffer)
        tflite.TensorAddName(b, name)
        tflite.TensorAddIsVariable(b, variable)
        if signature:
            tflite.TensorAddShapeSignature(b, signature)
        if quant is not None:
            tflite.TensorAddQuantization(b, quant)
        return int(tflite.TensorEnd(b))


def _ints(b: Any, values: Sequence[int]) -> int:
    return int(b.CreateNumpyVector(np.asarray(list(values), np.int32)))


def _offsets(b: Any, values: Sequence[int]) -> int:
    b.StartVector(4, len(values), 4)
    for value in reversed(values):
        b.PrependUOffsetTRelative(value)
    return int(b.EndVector())


def _options(b: Any, o: Op) -> tuple[int, int]:
    if o.options is None:
        return 0, 0
    kind, fields = o.options
    values = {
        k: _ints(b, v) if isinstance(v, list) else b.CreateString(v) if isinstance(v, str) else v
        for k, v in fields.items()
    }
    getattr(tflite, f"{kind}Start")(b)
    for key, value in values.items():
        getattr(tflite, f"{kind}Add{key}")(b, value)
    return int(getattr(tflite, f"{kind}End")(b)), int(getattr(tflite.BuiltinOptions, kind))


def unary(op: str, x: T, y: T, options: tuple[str, dict[str, Any]] | None = None, version: int = 1) -> bytes:
    """A model of one op with one input."""
    return Model([x, y], [Op(op, [x.name], [y.name], options, version)], [x.name], [y.name]).build()
