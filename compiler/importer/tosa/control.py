"""COND_IF and WHILE_LOOP: both sides are computed and one is chosen; loops whose condition is known are written out."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.importer.tosa.builder import HANDLERS, TosaBuilder, handles
from tilewright.compiler.importer.tosa.reading import unknown_operation
from tilewright.compiler.importer.tosa.records import Block, TosaOp
from tilewright.compiler.limits import check_nodes

#: Attributes that became operands in TOSA 1.0, beside the zero points.
_OLDER = ("quantization_info", "pad_const")

MAX_UNROLLED = 20_000
"""Most operations that the loops of a program may be written out to."""


def run_block(b: TosaBuilder, block: Block) -> None:
    """Emits the operations of a block."""
    for op in block.ops:
        b.op = op
        check_nodes("the graph", len(b.graph.nodes))
        handler = HANDLERS.get(op.name)
        if handler is None:
            raise unknown_operation(op.label, op.name, tuple(HANDLERS))
        for key in op.attrs:
            if key.endswith("_zp") or key in _OLDER:
                raise b.refuse(f"{key} is an attribute of TOSA before 1.0; operands are accepted")
        handler(b, op)


def _inlined(b: TosaBuilder, op: TosaOp, block: Block, given: list[int]) -> list[str]:
    """Emits a block with these values as its arguments; returns its results in TOSA's order of axes.

    A block may be emitted several times, so what is known of its values is forgotten before.
    """
    if len(block.arguments) != len(given):
        raise b.damaged(f"a block of {len(block.arguments)} arguments gets {len(given)}")
    names = [b.form_of(number) for number in given]
    for inner in (*block.arguments, *(r for o in block.ops for r in o.results)):
        for facts in (b.forms, b.functions, b.sums, b.scaled, b.zeros):
            facts.pop(inner, None)
    for o in block.ops:
        for r in o.results:
            b.module.constants.pop(r, None)
    for argument in block.arguments:
        b.module.constants.pop(argument, None)
    for argument, name, number in zip(block.arguments, names, given):
        b.forms[argument] = {"file": name}
        if number in b.zeros:
            b.zeros[argument] = b.zeros[number]
        data = b.graph.const(name)
        if data is not None:
            b.module.constants[argument] = data
    run_block(b, block)
    b.op = op
    return [b.form_of(number) for number in block.returns]


@handles("cond_if")
def conditional(b: TosaBuilder, op: TosaOp) -> None:
    if len(op.blocks) != 2:
        raise b.damaged(f"{len(op.blocks)} regions; two are needed")
    known = b.known(b.operand(0))
    if known is not None:
        chosen = _inlined(b, op, op.blocks[0 if known.reshape(-1)[0] else 1], op.operands[1:])
        for k, name in enumerate(chosen):
            b.finish(name, k=k)
        return
    condition = b.reshaped(b.value(0), [1])
    sides = [_inlined(b, op, block, op.operands[1:]) for block in op.blocks]
    for k, (first, second) in enumerate(zip(*sides)):
        made = b.onnx("Where", [condition, first, second])
        if b.graph.tensor(first).shape == ():
            made = b.reshaped(made, [])
        b.finish(made, k=k)


@handles("while_loop")
def loop(b: TosaBuilder, op: TosaOp) -> None:
    """Writes out a loop whose condition depends on constants only."""
    if len(op.blocks) != 2:
        raise b.damaged(f"{len(op.blocks)} regions; two are needed")
    condition, body = op.blocks
    numbers = list(op.operands)
    names = [b.form_of(n) for n in numbers]
    while True:
        fresh = _numbered(b, names, numbers)
        found = b.graph.const(_inlined(b, op, condition, fresh)[0])
        if found is None:
            raise b.refuse("its condition depends on inputs; loops whose number of rounds is known are accepted")
        if not bool(np.asarray(found).reshape(-1)[0]):
            break
        b.unrolled += len(condition.ops) + len(body.ops) + 1
        if b.unrolled > MAX_UNROLLED:
            raise b.refuse(f"its rounds are more than {MAX_UNROLLED} operations, so it is not written out")
        names = _inlined(b, op, body, fresh)
    for k, name in enumerate(names):
        data = b.graph.tensor(name)
        b.finish(b.graph.constant("const", data.data, data.quant) if data.data is not None else name, k=k)


def _numbered(b: TosaBuilder, names: list[str], like: list[int]) -> list[int]:
    """New numbers for the values that a round hands to the next."""
    fresh = []
    for name, number in zip(names, like):
        b.module.types.append(b.module.types[number])
        fresh.append(len(b.module.types) - 1)
        b.forms[fresh[-1]] = {"file": name}
        quant = b.graph.tensor(name).quant
        if quant is not None:
            b.zeros[fresh[-1]] = int(quant.zero_point)
    return fresh
