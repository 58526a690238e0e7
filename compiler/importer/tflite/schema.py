"""TFLite flatbuffers as plain Python values.

Everything that follows an offset of the file is read here; errors of a damaged file (struct errors, lengths beyond the
file) become one `CompileError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np

from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.graph.graph import Quant
from tilewright.compiler.importer.tflite.package import tflite
from tilewright.compiler.importer.tflite.packed import NARROW, coordinates, unpacked
from tilewright.compiler.limits import check_shape

IDENTIFIER = b"TFL3"
VARIABLE_OPS = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")
#: Exceptions of reading a damaged flatbuffer, or of building a graph from it.
DAMAGE = (
    struct.error, MemoryError, RecursionError, ArithmeticError, LookupError, TypeError, ValueError, RuntimeError,
    AttributeError, AssertionError,
)  # fmt: skip

_DTYPES = {
    tflite.TensorType.FLOAT32: np.float32, tflite.TensorType.INT32: np.int32, tflite.TensorType.UINT8: np.uint8,
    tflite.TensorType.INT64: np.int64, tflite.TensorType.INT8: np.int8, tflite.TensorType.BOOL: np.bool_,
    tflite.TensorType.INT16: np.int16, tflite.TensorType.FLOAT16: np.float16, tflite.TensorType.UINT32: np.uint32,
}  # fmt: skip
_TYPE_NAMES = {v: k for k, v in vars(tflite.TensorType).items() if isinstance(v, int)}
_OP_NAMES = {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}
_OPTION_NAMES = {v: k for k, v in vars(tflite.BuiltinOptions).items() if isinstance(v, int)}


@dataclass
class FileTensor:
    """A tensor of the file. `name` is unique; `dtype` is None for types that are not accepted (`type_name`);
    `quant_axis` is the file's value, also of a tensor with one scale.
    """

    index: int
    name: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    dtype: np.dtype | None
    type_name: str
    data: np.ndarray | None
    quant: Quant | None
    quant_axis: int = 0


@dataclass
class FileOp:
    """An operator of the file: `options` has the accessors of its flatbuffer table, or is None."""

    name: str
    index: int
    version: int
    inputs: list[int]
    outputs: list[int]
    options: Any = None
    intermediates: list[int] = field(default_factory=list)
    custom: bytes = b""

    @property
    def label(self) -> str:
        return f"{self.name} (op {self.index}, version {self.version})" if self.name else "inputs"

    def option(self, accessor: str, default: Any) -> Any:
        """The value of an option, `default` where the operator has no options."""
        return default if self.options is None else getattr(self.options, accessor)()


@dataclass
class FileModel:
    """A graph of a TFLite file; `inputs` and `outputs` are indices of tensors.

    `first` has the graphs that CALL_ONCE runs before everything else, `branches` those of IF, by their number in the
    file.
    """

    tensors: list[FileTensor]
    ops: list[FileOp] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    first: dict[int, FileModel] = field(default_factory=dict)
    branches: dict[int, FileModel] = field(default_factory=dict)

    @property
    def all_ops(self) -> list[tuple[FileModel, FileOp]]:
        """The operators with the graphs they are in, those of branches behind the rest."""
        return [(self, op) for op in self.ops] + [pair for graph in self.branches.values() for pair in graph.all_ops]

    @property
    def has_variables(self) -> bool:
        """True if values live from one run to the next."""
        return any(op.name in VARIABLE_OPS for op in self.ops)


def is_builtin(name: str) -> bool:
    """True if an operator is one of TFLite's own, by its name."""
    return name in _OP_NAMES.values() or name.startswith("operator ")


def is_tflite(data: bytes) -> bool:
    """True if the bytes carry the identifier of a TFLite flatbuffer."""
    return data[4:8] == IDENTIFIER


def read(data: bytes) -> FileModel:
    """Reads the one graph of a model, and those that set its variables first.

    Raises:
        CompileError: damaged. UnsupportedError: several graphs, unknown ops.
    """
    if len(data) < 16 or not is_tflite(data):
        raise CompileError("not a TFLite model: the identifier TFL3 is missing")
    try:
        return _Reader(data).model()
    except DAMAGE as error:
        raise CompileError(f"damaged TFLite model: {type(error).__name__}: {error}") from error


def _number_of(code: Any) -> int:
    """The operator an OperatorCode stands for: the larger of its two fields, by the schema.

    Older writers fill the byte `deprecated_builtin_code` alone, some newer ones the int32 `builtin_code` alone. The
    accessor `BuiltinCode` of the `tflite` package gives the byte for every number below 127, so the field is read here.
    """
    place = flatbuffers.number_types.UOffsetTFlags.py_type(code._tab.Offset(10))
    wide = code._tab.Get(flatbuffers.number_types.Int32Flags, place + code._tab.Pos) if place else 0
    return max(int(wide), int(code.DeprecatedBuiltinCode()))


class _Reader:
    """A reader of one untrusted flatbuffer, which checks every length and offset."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.root = tflite.Model.GetRootAs(data, 0)
        self.called: dict[int, FileModel] = {}

    def count(self, length: int, what: str) -> int:
        """Checks a length of the file, accepted only if the file could hold it."""
        if not 0 <= length <= len(self.data) // 4:
            raise CompileError(f"damaged TFLite model: {length} {what}")
        return length

    def table(self, value: Any, what: str) -> Any:
        if value is None:
            raise CompileError(f"damaged TFLite model: {what} is missing")
        if not 0 <= value._tab.Pos < len(self.data) - 3:
            raise CompileError(f"damaged TFLite model: {what} lies outside the file")
        return value

    def model(self) -> FileModel:
        if self.root.Version() != 3:
            raise CompileError(f"TFLite schema version {self.root.Version()}; 3 is accepted")
        count = self.count(self.root.SubgraphsLength(), "graphs")
        if count < 1:
            raise CompileError("damaged TFLite model: the graph is missing")
        found = self.graph_of(0)
        self.add_called(found, frozenset({0}), count)
        if 1 + len(self.called) != count:
            raise UnsupportedError(f"{count} subgraphs; one is accepted{self.remedy()}")
        return found

    def add_called(self, model: FileModel, around: frozenset[int], count: int) -> None:
        """Reads the graphs that operators of a graph call, and their callees, each once.

        Args:
            around: numbers of the graphs that are being read.
            count: number of all graphs.
        """
        for op in model.ops:
            table = model.first if op.name == "CALL_ONCE" else model.branches
            sides = {"CALL_ONCE": ("Init",), "IF": ("Then", "Else")}.get(op.name, ())
            for number in (int(op.option(f"{side}SubgraphIndex", 0)) for side in sides):
                if not 0 <= number < count or number in around:
                    raise CompileError(f"damaged TFLite model: {op.label} calls graph {number} of {count}")
                if number not in self.called:
                    graph = self.graph_of(number)
                    self.add_called(graph, around | {number}, count)
                    self.called[number] = graph
                table[number] = self.called[number]

    def graph_of(self, number: int) -> FileModel:
        """Reads one graph of the file."""
        graph = self.table(self.root.Subgraphs(number), "the graph")
        self.graph = graph
        names: set[str] = set()
        found = FileModel([])
        for index in range(self.count(graph.TensorsLength(), "tensors")):
            tensor = self.tensor(index, self.table(graph.Tensors(index), f"tensor {index}"))
            if not tensor.name or tensor.name in names:
                tensor.name = f"{tensor.name}:{index}"
            names.add(tensor.name)
            found.tensors.append(tensor)
        found.inputs = self.indices(graph.InputsLength, graph.Inputs, "graph inputs", False)
        found.outputs = self.indices(graph.OutputsLength, graph.Outputs, "graph outputs", False)
        for index in range(self.count(graph.OperatorsLength(), "operators")):
            op = self.op(index, self.table(graph.Operators(index), f"operator {index}"))
            if not self.densified(found, op):
                found.ops.append(op)
        made = {*found.inputs, *(i for op in found.ops for i in op.outputs)}
        for t in found.tensors:
            if t.index not in made and t.data is None and t.dtype is not None and 0 in t.shape:
                t.data = np.empty(t.shape, t.dtype)  # a constant without elements has no bytes to recognise it by
        return found

    def densified(self, model: FileModel, op: FileOp) -> bool:
        """True for an op that only writes out a sparse constant, which is read whole already and becomes its result."""
        if op.name != "DENSIFY" or len(op.inputs) != 1 or len(op.outputs) != 1 or op.inputs[0] < 0:
            return False
        source, target = model.tensors[op.inputs[0]], model.tensors[op.outputs[0]]
        if source.data is None or source.shape != target.shape or source.dtype != target.dtype:
            return False
        target.data, target.quant = source.data, target.quant or source.quant
        return True

    def remedy(self) -> str:
        """Advice for a model of several graphs, by its operators."""
        codes = [self.root.OperatorCodes(i) for i in range(self.count(self.root.OperatorCodesLength(), "operators"))]
        names = {_OP_NAMES.get(_number_of(self.table(code, "an operator code")), "") for code in codes}
        flow = sorted(names & {"WHILE", "CALL", "STABLEHLO_WHILE"})
        if flow:
            return (
                f". {', '.join(flow)} at run time: export the model without, or as ONNX, where branches and loops run"
            )
        return ". Each signature is a graph: export the one that is wanted alone"

    def indices(self, length: Callable[[], int], at: Callable[[int], int], what: str, optional: bool) -> list[int]:
        values = [int(at(i)) for i in range(self.count(length(), what))]
        total = self.graph.TensorsLength()
        for value in values:
            if not (-1 if optional else 0) <= value < total:
                raise CompileError(f"damaged TFLite model: {what} name tensor {value} of {total}")
        return values

    def tensor(self, index: int, t: Any) -> FileTensor:
        name = (t.Name() or b"").decode("utf-8", "replace")
        shape = tuple(int(t.Shape(i)) for i in range(self.count(t.ShapeLength(), "dimensions")))
        signature = tuple(int(t.ShapeSignature(i)) for i in range(self.count(t.ShapeSignatureLength(), "dimensions")))
        if len(shape) > 8 or any(s < 0 for s in shape):
            raise CompileError(f"damaged TFLite model: tensor {name!r} has shape {list(shape)}")
        kind = t.Type()
        dtype: np.dtype[Any] | None = np.dtype(_DTYPES[kind]) if kind in _DTYPES else None
        if kind in NARROW and self.stored(t):  # weights; activations of such types are not accepted
            dtype = np.dtype(np.int8)
        return FileTensor(
            index, name, shape, signature or shape, dtype, _TYPE_NAMES.get(kind, str(kind)),
            self.content(t, name, shape, dtype), self.quantisation(t, name, shape),
            int(t.Quantization().QuantizedDimension()) if t.Quantization() is not None else 0,
        )  # fmt: skip

    def stored(self, t: Any) -> bool:
        """True if the file holds a tensor's elements."""
        if not 0 <= t.Buffer() < self.root.BuffersLength():
            return False
        buffer = self.root.Buffers(t.Buffer())
        return buffer is not None and (buffer.DataLength() > 0 or buffer.Offset() > 1)

    def content(self, t: Any, name: str, shape: tuple[int, ...], dtype: np.dtype | None) -> np.ndarray | None:
        if not 0 <= t.Buffer() < self.root.BuffersLength():
            raise CompileError(f"damaged TFLite model: tensor {name!r} is in buffer {t.Buffer()}")
        buffer = self.table(self.root.Buffers(t.Buffer()), f"the buffer of {name!r}")
        size, offset = int(buffer.DataLength()), int(buffer.Offset())
        if offset > 1:
            raw = self.data[offset : offset + int(buffer.Size())]
            size = len(raw) if len(raw) == int(buffer.Size()) else -1
        elif size:
            raw = buffer.DataAsNumpy().tobytes() if 0 < size <= len(self.data) else b""
        if size == 0 or dtype is None:
            return None
        if t.IsVariable():
            raise UnsupportedError(f"tensor {name!r} is a variable; stateless models are accepted")
        try:
            if t.Sparsity() is not None:
                return self.sparse(t.Sparsity(), raw, shape, dtype)
            if t.Type() in NARROW:
                return unpacked(raw, NARROW[t.Type()], int(np.prod(shape, dtype=object))).reshape(shape)
        except CompileError as error:
            raise CompileError(f"damaged TFLite model: {name!r}: {error}") from None
        if len(raw) != int(np.prod(shape, dtype=object)) * dtype.itemsize:
            raise CompileError(f"damaged TFLite model: {name!r} has {len(raw)} bytes, shape {list(shape)} of {dtype}")
        return np.frombuffer(raw, dtype).reshape(shape)

    def sparse(self, sparsity: Any, raw: bytes, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """The whole tensor from its stored elements `raw`."""
        check_shape("tensor", "", shape)
        at = coordinates(sparsity, shape, self.count)
        if len(raw) != len(at) * dtype.itemsize:
            raise CompileError(f"{len(raw)} bytes for {len(at)} stored elements of {dtype}")
        whole = np.zeros(shape, dtype)
        whole[tuple(at.T)] = np.frombuffer(raw, dtype)
        return whole

    def quantisation(self, t: Any, name: str, shape: tuple[int, ...]) -> Quant | None:
        q = t.Quantization()
        if q is None or q.ScaleLength() == 0:
            return None
        count = self.count(q.ScaleLength(), "scales")
        scale = q.ScaleAsNumpy()
        zeros = q.ZeroPointAsNumpy() if self.count(q.ZeroPointLength(), "zero points") else np.zeros(1, np.int64)
        wrong = scale[~(np.isfinite(scale) & (scale >= 0))]
        if wrong.size:
            raise CompileError(f"{name!r}: scales must be positive and finite, one is {wrong[0]:g}")
        if zeros.size not in (1, count) or np.any(np.abs(zeros) >= 1 << 31):
            raise CompileError(f"damaged TFLite model: {name!r} has {count} scales and {zeros.size} zero points")
        if count == 1:
            return Quant.of(scale.reshape(()), zeros.reshape(()))
        axis = int(q.QuantizedDimension())
        if len(shape) == 1 and axis > 0:
            axis = 0  # biases of some converters name the channel axis of the weights; kernels read one scale a channel
        if not 0 <= axis < len(shape) or shape[axis] != count:
            raise CompileError(f"damaged TFLite model: {name!r} has {count} scales along axis {axis} of {list(shape)}")
        return Quant.of(scale, zeros, axis)

    def op(self, index: int, op: Any) -> FileOp:
        if not 0 <= op.OpcodeIndex() < self.root.OperatorCodesLength():
            raise CompileError(f"damaged TFLite model: operator {index} has code {op.OpcodeIndex()}")
        code = self.table(self.root.OperatorCodes(op.OpcodeIndex()), "an operator code")
        number = _number_of(code)
        name = _OP_NAMES.get(number, f"operator {number}")
        if name == "CUSTOM":
            name = (code.CustomCode() or b"").decode("utf-8", "replace") or "CUSTOM"
        made = FileOp(
            name, index, int(code.Version()),
            self.indices(op.InputsLength, op.Inputs, f"inputs of op {index}", True),
            self.indices(op.OutputsLength, op.Outputs, f"outputs of op {index}", False),
        )  # fmt: skip
        made.intermediates = self.indices(
            op.IntermediatesLength, op.Intermediates, f"intermediates of op {index}", True
        )
        if 0 < op.CustomOptionsLength() <= len(self.data):
            made.custom = op.CustomOptionsAsNumpy().tobytes()
        kind = _OPTION_NAMES.get(op.BuiltinOptionsType(), "NONE")
        options = op.BuiltinOptions()
        if options is not None and kind != "NONE" and hasattr(tflite, kind):
            made.options = getattr(tflite, kind)()
            made.options.Init(options.Bytes, options.Pos)
        return made
