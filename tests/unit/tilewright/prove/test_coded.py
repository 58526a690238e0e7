"""Proofs of programs whose weights are coded: the decoder's bytes, and the order of what it writes."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from tests.common.onnx_models import model_of
from tests.unit.tilewright.prove.sides import both
from tilewright.isa.config import PRESETS
from tilewright.isa.encoding import Op, from_bytes, to_bytes
from tilewright.isa.program import Program
from tilewright.prove.checker.compare import prove
from tilewright.prove.checker.graph import QuantisedGraph


@pytest.fixture(scope="module")
def sides() -> tuple[QuantisedGraph, Program]:
    """A matrix product by weights of -8 to 7, which a code makes half as long, in several loads."""
    random = np.random.default_rng(5)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "sx", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "sw"], ["b"]),
        helper.make_node("MatMul", ["a", "b"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "sy", "z"], ["y"]),
    ]
    constants = {
        "w": random.integers(-8, 8, (128, 96)).astype(np.int8), "sw": np.float32(0.02),
        "sx": np.float32(0.05), "z": np.int8(3), "sy": np.float32(0.4),
    }  # fmt: skip
    model = model_of(nodes, {"x": np.zeros((3, 128), np.int8)}, ["y"], constants)
    return both(model.SerializeToString(), PRESETS["tiny"].with_(weight_codes=8))


def coded(program: Program) -> tuple[list[Op], list[int]]:
    """The instructions, and the numbers of those that load coded weights."""
    ops = from_bytes(program.instructions)
    return ops, [i for i, op in enumerate(ops) if op.name == "LOAD_CODED"]


def verdict(sides: tuple[QuantisedGraph, Program], **changed: bytes) -> str:
    """Why the program is not proved with these instructions or constants, "" if it is."""
    return prove(sides[0], replace(sides[1], **changed), seed=1).reason  # type: ignore[arg-type]


def test_coded_weights_are_proved(sides: tuple[QuantisedGraph, Program]) -> None:
    assert len(coded(sides[1])[1]) > 4
    assert verdict(sides) == ""


def test_wrong_codes_are_rejected(sides: tuple[QuantisedGraph, Program]) -> None:
    ops, loads = coded(sides[1])
    for at in loads[:3]:
        data = bytearray(sides[1].constants)
        data[ops[at]["offset"] + 5] ^= 8
        assert verdict(sides, constants=bytes(data))


@pytest.mark.parametrize(("field", "said"), [
    ("row", "outputs have other names"), ("beats", "beats are left over|ends too early"), ("mode", "coded weights: "),
])  # fmt: skip
def test_other_loads_are_rejected(sides: tuple[QuantisedGraph, Program], field: str, said: str) -> None:
    ops, loads = coded(sides[1])
    ops[loads[2]] = Op(ops[loads[2]].instruction, ops[loads[2]].values | {field: ops[loads[2]][field] ^ 1})
    assert re.search(said, verdict(sides, instructions=to_bytes(ops)))


def test_products_wait_for_coded_weights(sides: tuple[QuantisedGraph, Program]) -> None:
    """A product that does not wait for the load of its weights is a race."""
    ops, loads = coded(sides[1])
    (given,) = ops[loads[-1]].signals
    at = max(i for i, op in enumerate(ops) if op.name == "GEMM" and given in op.waits)
    waits = {name: 0 for name in ("wait0", "wait1") if ops[at][name] == given}
    ops[at] = Op(ops[at].instruction, ops[at].values | waits)
    said = verdict(sides, instructions=to_bytes(ops))
    assert "reads WGT" in said and "no semaphore orders them" in said
