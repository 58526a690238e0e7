"""The graph under construction from TOSA's operations. A value of rank 4 has up to two forms, like in the importer of
TFLite: TOSA's order NHWC, and that of the graph's convolutions, NCHW."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.graph.graph import Graph, Node, Quant, Tensor
from tilewright.compiler.graph.ops import QuantizedOp
from tilewright.compiler.graph.ops.elementwise import IDENTITY_TABLE, QLut
from tilewright.compiler.graph.tensor import EIGHT_BIT
from tilewright.compiler.importer.tosa.records import Run, TosaOp, TypeOf
from tilewright.compiler.limits import check_attributes, check_operands, check_positions, check_shape
from tilewright.compiler.onnx.onnx_ops import default_attributes, elem_type, evaluate, infer

FILE, PLANES = "file", "planes"
TO_PLANES, TO_FILE = (0, 3, 1, 2), (0, 2, 3, 1)
_FOLDED = 1 << 14  # elements of integer arithmetic done at import
#: Done at import however many elements there are: what stands between weights and their convolution.
_OF_WEIGHTS = ("Reshape", "Transpose", "Slice", "Concat", "Cast", "Add", "Sub", "Mul")

Handler = Callable[["TosaBuilder", TosaOp], None]
HANDLERS: dict[str, Handler] = {}
"""Importers by name of the operation, filled by the family files."""


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Registers a function as the importer of operations."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


class Function(Struct, frozen=True):
    """An integer value as a function of one or two 8-bit tensors, element by element.

    Attributes:
        roots: the tensors, as numbers of values of one shape.
        values: the integers for all their bytes as stored: int64, [256] or [256, 256].
    """

    roots: tuple[int, ...]
    values: np.ndarray


class TosaBuilder:
    """A graph under construction.

    Args:
        graph: receives tensors and nodes.
        run: the operations.

    Attributes:
        types: type by number of the value.
        constants: value by number, where it is known.
        forms: the graph's tensor in each form, by number of the value.
        functions: what a value is of 8-bit tensors, where that is known.
        sums: products whose int32 sums a RESCALE may take to the NPU, by number of the value.
        scaled: such products with their RESCALE, by number of its result: a CLAMP may follow.
        zeros: zero point of 8-bit values: that of the operation that makes them, else of those that read them.
        reasons: why an operation is left to the CPU, by its label.
    """

    def __init__(self, graph: Graph, run: Run) -> None:
        self.graph, self.types, self.wanted = graph, run.types, run.wanted
        self.constants: dict[int, np.ndarray] = {}
        self.forms: dict[int, dict[str, str]] = {}
        self.functions: dict[int, Function] = {}
        self.sums: dict[int, Any] = {}
        self.scaled: dict[int, Any] = {}
        self.zeros: dict[int, int] = {}
        self.reasons: dict[str, str] = {}
        self.op = TosaOp("", [], [], {})

    def take(self, number: int, name: str) -> None:
        """Makes a tensor of the graph the value of a number."""
        tensor = self.graph.tensor(name)
        if tensor.data is not None:
            self.constants[number] = tensor.data
            return
        if tensor.dtype in EIGHT_BIT:
            if tensor.quant is None:
                tensor.quant = Quant.of(1.0, self.zero(number))
            self.zeros[number] = int(tensor.quant.zero_point)
        self.forms[number] = {FILE: name}

    # --- queries of handlers ---

    def refuse(self, what: str) -> UnsupportedError:
        """The error for a valid construct that is not supported."""
        return UnsupportedError(f"{self.op.label}: {what}")

    def damaged(self, what: str) -> CompileError:
        """The error for an operation that makes no sense."""
        return CompileError(f"{self.op.label}: {what}")

    def operand(self, k: int) -> int:
        """The number of the k-th operand. Raises CompileError where it is missing."""
        if k >= len(self.op.operands):
            raise self.damaged(f"operand {k} is missing")
        return self.op.operands[k]

    def type(self, k: int) -> TypeOf:
        """The type of the k-th operand."""
        return self.types[self.operand(k)]

    def shape(self, k: int) -> tuple[int, ...]:
        return self.type(k).shape

    def target(self, k: int = 0) -> TypeOf:
        """The type of the k-th result."""
        if k >= len(self.op.results):
            raise self.damaged(f"result {k} is missing")
        return self.types[self.op.results[k]]

    def known(self, number: int) -> np.ndarray | None:
        """The value of a constant, None for others."""
        found = self.constants.get(number)
        if found is None and FILE in self.forms.get(number, {}):
            found = self.graph.const(self.forms[number][FILE])
        return found

    def const(self, k: int, what: str) -> np.ndarray:
        """The value of an operand that must be a constant."""
        found = self.known(self.operand(k))
        if found is None:
            raise self.refuse(f"{what} must be a constant")
        return found

    def scalar(self, k: int, what: str) -> int:
        """The only integer of an operand; 0 where it is left out."""
        if k >= len(self.op.operands):
            return 0
        found = self.const(k, what)
        if found.size != 1:
            raise self.damaged(f"{what} has {found.size} elements; one is needed")
        return int(found.reshape(-1)[0])

    def ints(self, k: int, attribute: str, count: int = -1) -> list[int]:
        """Integers of a shape operand, or of the attribute that older releases have instead."""
        if attribute in self.op.attrs:
            return self.numbers(attribute, count)
        found = [int(v) for v in self.const(k, attribute).reshape(-1)]
        if count not in (-1, len(found)):
            raise self.damaged(f"{attribute} is {found}; {count} values are needed")
        return found

    def numbers(self, attribute: str, count: int = -1) -> list[int]:
        """Integers of an attribute. Raises CompileError for another count."""
        value = self.op.attrs.get(attribute)
        found = [int(v) for v in np.asarray(value).reshape(-1)] if value is not None else []
        if value is None or (count >= 0 and len(found) != count):
            raise self.damaged(f"{attribute} is {value}; {count if count >= 0 else 'some'} integers are needed")
        return found

    def axis(self, rank: int) -> int:
        """The attribute `axis`. Raises CompileError outside the rank."""
        value = self.op.attrs.get("axis")
        if not isinstance(value, int) or not 0 <= value < rank:
            raise self.damaged(f"axis is {value}; 0 to {rank - 1} are accepted")
        return value

    def layout(self, *ks: int) -> str:
        """The form in which operands of rank 4 exist already: PLANES if a computed one has no other."""
        for k in ks:
            forms = self.forms.get(self.operand(k), {})
            if len(self.shape(k)) == 4 and PLANES in forms and FILE not in forms:
                return PLANES
        return FILE

    def value(self, k: int, form: str = FILE) -> str:
        """The tensor of an operand, in a form."""
        return self.form_of(self.operand(k), form)

    def form_of(self, number: int, form: str = FILE) -> str:
        """The tensor of a value, in a form."""
        forms = self.forms.setdefault(number, {})
        if form in forms:
            return forms[form]
        if not forms:
            data = self.constants.get(number)
            if data is None:
                raise self.damaged("reads a value that no operation before it makes")
            quant = Quant.of(1.0, self.zero(number)) if data.dtype in EIGHT_BIT else None
            forms[FILE] = self.graph.constant("const", data, quant)
            return self.form_of(number, form)
        old = next(iter(forms.values()))
        forms[form] = self.permuted(old, TO_PLANES if form == PLANES else TO_FILE)
        return forms[form]

    def zero(self, number: int) -> int:
        """The zero point of an 8-bit value."""
        return self.zeros.setdefault(number, self.wanted.get(number, 0))

    # --- emitting ---

    def onnx(self, op: str, inputs: Sequence[str], attrs: dict[str, Any] | None = None) -> str:
        """Appends an ONNX op in normal form and returns its result, which is known now where its operands are few."""
        full = {k: v for k, v in {**default_attributes(op), **(attrs or {})}.items() if v is not None}
        name = self.graph.unique(f"{self.op.name}.{self.op.line}.{op}")
        check_operands(self.op.label, len(inputs))
        check_attributes(self.op.label, full)
        node = Node(op, list(inputs), [name], full, name, (self.op.label,))
        tensors = [self.graph.tensor(i) if i else None for i in inputs]
        ((shape, dtype), *_) = infer(node, tensors)
        if shape is None or dtype is None:
            raise self.refuse("the shape of its result cannot be known")
        check_shape(f"{self.op.label}: {op}", name, shape)
        check_positions(self.op.label, op, shape)
        made = self.graph.add(Tensor(name, tuple(shape), dtype))
        known = all(t is None or t.data is not None for t in tensors)
        if known and (op in _OF_WEIGHTS or (dtype.kind in "ib" and made.size <= _FOLDED)):
            (value,) = evaluate(node, [None if t is None else t.data for t in tensors])
            made.data = value.astype(dtype).reshape(shape)
        else:
            self.graph.nodes.append(node)
        return name

    def quantized(self, op: QuantizedOp, inputs: Sequence[str], shape: Sequence[int], dtype: Any, zero: int) -> str:
        """Appends a quantised op whose result has the scale 1 and a zero point."""
        check_attributes(self.op.label, vars(op))
        name = self.graph.unique(f"{self.op.name}.{self.op.line}")
        check_shape(self.op.label, name, shape)
        self.graph.add(Tensor(name, tuple(shape), np.dtype(dtype), None, Quant.of(1.0, zero)))
        self.graph.nodes.append(Node.of(op, list(inputs), [name], name, (self.op.label,)))
        return name

    def relabelled(self, name: str, scale: Any, zero: int) -> str:
        """The same bytes with another scale and zero point, by a table that changes nothing."""
        old = self.graph.tensor(name)
        if old.quant is not None and float(old.quant.scale) == float(scale) and int(old.quant.zero_point) == zero:
            return name
        made = self.quantized(QLut(table=IDENTITY_TABLE), [name], old.shape, old.dtype, zero)
        self.graph.tensor(made).quant = Quant.of(scale, zero)
        return made

    def moved(self, op: str, inputs: Sequence[str], attrs: dict[str, Any] | None = None) -> str:
        """Appends an ONNX op that moves elements: its result has the scale of its first input."""
        name = self.onnx(op, inputs, attrs)
        self.graph.tensor(name).quant = self.graph.tensor(inputs[0]).quant
        return name

    def permuted(self, name: str, perm: Sequence[int]) -> str:
        """Transposes; a constant at once."""
        old = self.graph.tensor(name)
        if len(old.shape) != len(perm):
            raise self.damaged(f"an operand has shape {list(old.shape)}, rank {len(perm)} is needed")
        if old.data is not None:
            return self.graph.constant(name, np.ascontiguousarray(old.data.transpose(perm)), old.quant)
        return self.moved("Transpose", [name], {"perm": list(perm)})

    def constant(self, value: Any, dtype: Any = None) -> str:
        return self.graph.constant("const", np.asarray(value, dtype))

    def cast(self, name: str, dtype: Any) -> str:
        dtype = np.dtype(dtype)
        return name if self.graph.tensor(name).dtype == dtype else self.onnx("Cast", [name], {"to": elem_type(dtype)})

    def reshaped(self, name: str, shape: Sequence[int]) -> str:
        return self.moved("Reshape", [name, self.constant(list(shape), np.int64)], {"allowzero": 1})

    def finish(self, name: str, form: str = FILE, k: int = 0) -> None:
        """Makes a tensor the op's result. Raises CompileError if the text gives it another type or shape."""
        number, want, made = self.op.results[k], self.target(k), self.graph.tensor(name)
        shape = tuple(made.shape[i] for i in TO_FILE) if form == PLANES else made.shape
        if tuple(shape) != want.shape:
            raise self.damaged(f"its result has shape {list(shape)}; the text has {want}")
        if made.dtype != want.dtype:
            raise self.refuse(f"its result is {made.dtype}; the text has {want}")
        if made.dtype in EIGHT_BIT:
            if made.quant is None:
                made.quant = Quant.of(1.0, self.zero(number))
            self.zeros[number] = int(made.quant.zero_point)
        self.forms.setdefault(number, {})[form] = name
        if made.data is not None and form == FILE:
            self.constants[number] = made.data

    # --- integer arithmetic on int64, for the CPU ---

    def wide(self, name: str) -> str:
        """The integers of a tensor as int64."""
        return self.cast(name, np.int64)

    def pair(self, op: str, x: str, y: Any) -> str:
        """An ONNX op of two int64 operands; the second may be a number or an array."""
        return self.onnx(op, [x, y if isinstance(y, str) else self.constant(y, np.int64)])

    def shifted_right(self, x: str, amount: Any) -> str:
        """Shifts int64 right arithmetically. ONNX shifts unsigned numbers only, so a multiple of 2^amount is added."""
        lifted = self.cast(self.pair("Add", x, 1 << 62), np.uint64)
        shifted = self.onnx("BitShift", [lifted, self.constant(amount, np.uint64)], {"direction": "RIGHT"})
        return self.pair("Sub", self.wide(shifted), np.int64(1 << 62) >> np.asarray(amount, np.int64))

    def clipped(self, x: str, low: int, high: int) -> str:
        return self.onnx("Clip", [x, self.constant(low, np.int64), self.constant(high, np.int64)])
