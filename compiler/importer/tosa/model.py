"""A TOSA program as an ONNX model: COND_IF and WHILE_LOOP are If and Loop, what is between them is a node each.

So the control flow of TOSA is that of ONNX: constant conditions are settled at import, and a loop that ends by a value
of the inputs runs as any dynamic model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.tensor import EIGHT_BIT
from tilewright.compiler.importer.tosa.records import Block, Run, TosaModule, TosaOp, TypeOf
from tilewright.compiler.onnx.onnx_ops import OPSET, elem_type

DOMAIN, RUN = "tosa", "Run"
"""Domain and op of the nodes that hold TOSA's operations."""

#: Which operand has the zero point of which other, by operation.
_ZERO_POINTS = {
    "conv2d": {0: 3}, "conv3d": {0: 3}, "depthwise_conv2d": {0: 3}, "transpose_conv2d": {0: 3},
    "matmul": {0: 2, 1: 3}, "avg_pool2d": {0: 1}, "rescale": {0: 3}, "negate": {0: 1},
}  # fmt: skip
_MOVES = ("reshape", "transpose", "slice", "pad", "tile", "reverse", "max_pool2d", "identity", "concat", "clamp")
CONTROL = ("cond_if", "while_loop")
"""Operations with regions."""
_FLAG = TypeOf("i1", ())
_ARRAY = 1  # the code of an array among the attributes


def model_of(module: TosaModule, name: str) -> onnx.ModelProto:
    """A program as an ONNX model of a name. Raises CompileError where blocks do not fit their operation."""
    return _Converter(module).model(Path(name).stem)


def run_of(attribute: np.ndarray) -> Run:
    """The operations in a node's attribute `run`."""
    return msgspec.msgpack.decode(attribute.tobytes(), type=Run, ext_hook=_array)


def _packed(value: Any) -> msgspec.msgpack.Ext:
    array = np.asarray(value)
    return msgspec.msgpack.Ext(_ARRAY, numpy_helper.from_array(array).SerializeToString())


def _array(_code: int, data: memoryview) -> np.ndarray:
    array: np.ndarray = numpy_helper.to_array(onnx.TensorProto.FromString(bytes(data)))
    return array


class _Converter:
    """Turns blocks of a program into nodes. Names of values by number are handed down, as a block may come twice."""

    def __init__(self, module: TosaModule) -> None:
        self.module, self.wanted, self.taken = module, wanted_zeros(module), {*module.inputs, *module.outputs}
        self.constants: dict[str, np.ndarray] = {}
        self.serial = 0

    def model(self, name: str) -> onnx.ModelProto:
        module = self.module
        body, names = module.body, dict(zip(module.body.arguments, module.inputs))
        nodes, results = self._block(body, names)
        outputs = []
        for label, result in zip(module.outputs, results):
            outputs.append(label if label not in module.inputs else self._fresh(label))
            nodes.append(helper.make_node("Identity", [result], [outputs[-1]], label))
        graph = helper.make_graph(
            nodes, name, self._infos(module.inputs, body.arguments), self._infos(outputs, body.returns),
            [numpy_helper.from_array(value, label) for label, value in self.constants.items()],
        )  # fmt: skip
        versions = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=versions)

    def _block(self, block: Block, names: dict[int, str]) -> tuple[list[onnx.NodeProto], list[str]]:
        """The nodes of a block and the names of its results; `names` learns those of its values."""
        pieces: list[list[TosaOp]] = []
        for op in block.ops:
            if pieces and not _control(op) and not _control(pieces[-1][-1]):
                pieces[-1].append(op)
            else:
                pieces.append([op])
        later, wanted = set(block.returns), []
        for piece in reversed(pieces):
            wanted.append([r for op in piece for r in op.results if r in later])
            later.update(k for op in piece for k in _reads(op))
        nodes: list[onnx.NodeProto] = []
        for piece in pieces:
            makes = wanted.pop()
            nodes += self._control(piece[0], names) if _control(piece[0]) else [self._run(piece, makes, names)]
        return nodes, [self._name(k, names) for k in block.returns]

    def _run(self, ops: list[TosaOp], makes: list[int], names: dict[int, str]) -> onnx.NodeProto:
        """A node of operations without control flow."""
        made = {r for op in ops for r in op.results}
        numbers = dict.fromkeys(k for op in ops for k in op.operands)
        reads = [k for k in numbers if k not in made]
        inputs = [self._name(k, names) for k in reads]
        known = made.union(numbers)
        types = {k: self.module.types[k] for k in known}
        wanted = {k: self.wanted[k] for k in known if k in self.wanted}
        data = msgspec.msgpack.encode(Run(ops, types, reads, makes, wanted), enc_hook=_packed)
        names.update((k, self._fresh()) for k in makes)
        node = helper.make_node(RUN, inputs, [names[k] for k in makes], f"line {ops[0].line}", domain=DOMAIN)
        node.attribute.append(helper.make_attribute("run", numpy_helper.from_array(np.frombuffer(data, np.uint8))))
        node.attribute.append(helper.make_attribute("operations", len(ops)))
        if any(t.dtype in EIGHT_BIT for t in types.values() if t.element != "shape"):
            node.attribute.append(helper.make_attribute("quantised", 1))
        return node

    # --- control flow ---

    def _control(self, op: TosaOp, names: dict[int, str]) -> list[onnx.NodeProto]:
        if op.name not in CONTROL:
            raise CompileError(f"{op.label} has regions; {' and '.join(CONTROL)} have some")
        if len(op.blocks) != 2:
            raise CompileError(f"{op.label}: {len(op.blocks)} regions; two are needed")
        return self._if(op, names) if op.name == "cond_if" else self._loop(op, names)

    def _if(self, op: TosaOp, names: dict[int, str]) -> list[onnx.NodeProto]:
        condition, given = op.operands[:1], op.operands[1:]
        for side in op.blocks:
            self._agree(op, "a block's arguments", side.arguments, given)
            self._agree(op, "a block's results", side.returns, op.results)
        nodes, chosen = self._condition(op, condition, names)
        graphs = {}
        for key, side in zip(("then_branch", "else_branch"), op.blocks):
            inner = {**names, **dict(zip(side.arguments, (self._name(k, names) for k in given)))}
            made, results = self._block(side, inner)
            graphs[key] = helper.make_graph(made, key, [], self._infos(results, side.returns))
        names.update((k, self._fresh()) for k in op.results)
        return [*nodes, helper.make_node("If", [chosen], [names[k] for k in op.results], op.label, **graphs)]

    def _loop(self, op: TosaOp, names: dict[int, str]) -> list[onnx.NodeProto]:
        """The condition is computed before the loop, and at the end of each round for the next one."""
        condition, body = op.blocks
        for what, values in (("results", op.results), ("a block's arguments", condition.arguments),
                             ("a block's arguments", body.arguments), ("a block's results", body.returns)):  # fmt: skip
            self._agree(op, what, values, op.operands)

        def goes_on(carried: Sequence[str], names: dict[int, str]) -> tuple[list[onnx.NodeProto], str]:
            inner = {**names, **dict(zip(condition.arguments, carried))}
            nodes, results = self._block(condition, inner)
            more, result = self._condition(op, condition.returns, inner, results)
            return [*nodes, *more], result

        first = [self._name(k, names) for k in op.operands]
        before, go = goes_on(first, names)
        arguments = [self._fresh() for _ in first]
        nodes, carried = self._block(body, inner := {**names, **dict(zip(body.arguments, arguments))})
        after, again = goes_on(carried, inner)
        flags = [self._fresh(), self._fresh()]
        graph = helper.make_graph(
            [*nodes, *after], "body",
            [_info(flags[0], TypeOf("i64", ())), _info(flags[1], _FLAG), *self._infos(arguments, op.operands)],
            [_info(again, _FLAG), *self._infos(carried, op.operands)],
        )  # fmt: skip
        names.update((k, self._fresh()) for k in op.results)
        made = [names[k] for k in op.results]
        return [*before, helper.make_node("Loop", ["", go, *first], made, op.label, body=graph)]

    def _condition(
        self, op: TosaOp, values: Sequence[int], names: dict[int, str], known: Sequence[str] = ()
    ) -> tuple[list[onnx.NodeProto], str]:
        """A condition as a scalar."""
        types = [self.module.types[k] for k in values]
        if len(types) != 1 or types[0].element != "i1" or int(np.prod(types[0].shape)) != 1:
            found = ", ".join(map(str, types)) or "nothing"
            raise CompileError(f"{op.label}: its condition is {found}; one boolean is needed")
        name = known[0] if known else self._name(values[0], names)
        if not types[0].shape:
            return [], name
        self.constants["scalar"] = np.zeros(0, np.int64)
        return [helper.make_node("Reshape", [name, "scalar"], [made := self._fresh()], op.label)], made

    def _agree(self, op: TosaOp, what: str, values: Sequence[int], wanted: Sequence[int]) -> None:
        """Raises CompileError where values differ in number or type from others."""
        texts = [", ".join(str(self.module.types[k]) for k in some) or "nothing" for some in (values, wanted)]
        if texts[0] != texts[1]:
            raise CompileError(f"{op.label}: {what} are {texts[0]}; {texts[1]} is needed")

    # --- names ---

    def _name(self, number: int, names: dict[int, str]) -> str:
        if number in names:
            return names[number]
        if number not in self.module.constants:
            raise CompileError("damaged: a value is read that no operation before it makes")
        name = names[number] = f"c{number}" if f"c{number}" not in self.taken else self._fresh()
        self.constants[name] = self.module.constants[number]
        return name

    def _fresh(self, stem: str = "v") -> str:
        while True:
            self.serial += 1
            name = f"{stem}{self.serial}"
            if name not in self.taken:
                return name

    def _infos(self, names: Iterable[str], numbers: Iterable[int]) -> list[onnx.ValueInfoProto]:
        return [_info(name, self.module.types[k]) for name, k in zip(names, numbers)]


def _info(name: str, t: TypeOf) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, elem_type(t.dtype), t.shape)


def _control(op: TosaOp) -> bool:
    return bool(op.blocks) or op.name in CONTROL


def _reads(op: TosaOp) -> list[int]:
    """The numbers that an operation reads, and those inside its blocks."""
    found = list(op.operands)
    for block in op.blocks:
        found += [k for inner in block.ops for k in _reads(inner)] + block.returns
    return found


# --- zero points ---


def wanted_zeros(module: TosaModule) -> dict[int, int]:
    """The zero points with which 8-bit values are read, by number, through operations that only move them."""
    wanted: dict[int, int] = {}

    def want(number: int, zero: int, first: bool) -> None:
        """Notes a zero point; those of products count before those of a RESCALE."""
        if module.types[number].element in ("i8", "ui8") and (first or number not in wanted):
            wanted[number] = zero

    def visit(block: Block) -> None:
        for op in reversed(block.ops):
            for inner in op.blocks:
                visit(inner)
            for operand, zero in _ZERO_POINTS.get(op.name, {}).items():
                if zero < len(op.operands) and operand < len(op.operands):
                    value = module.constants.get(op.operands[zero])
                    if value is not None and value.size == 1 and value.dtype in EIGHT_BIT:
                        want(op.operands[operand], int(np.asarray(value).reshape(-1)[0]), op.name != "rescale")
            if op.name in _MOVES and op.results and op.results[0] in wanted:
                for operand in op.operands if op.name == "concat" else op.operands[:1]:
                    want(operand, wanted[op.results[0]], True)

    visit(module.body)
    return wanted
