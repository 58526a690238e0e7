"""Convolutions of 16-bit activations are proved, and faults in their results are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.common.tflite_models import Model, T
from tests.common.tflite_models import Op as Layer
from tests.unit.tilewright.prove.sides import both
from tilewright.isa.config import PRESETS
from tilewright.isa.encoding import Op, from_bytes, to_bytes
from tilewright.prove.checker.cells import VALUE
from tilewright.prove.checker.compare import prove
from tilewright.prove.checker.fields import as_integers, residues
from tilewright.prove.checker.names import Names
from tilewright.prove.checker.wide import join, split

BASE = PRESETS["base"].with_(name="wide16", wide_results=1)


def convolutions(depthwise: bool) -> bytes:
    """Two convolutions of int16, 3 by 3 with padding; the first has a stride, and may be depthwise."""
    r, channels = np.random.default_rng(3), 5 if depthwise else 12
    first = r.integers(-127, 128, (1, 3, 3, 5) if depthwise else (channels, 3, 3, 5))
    second = r.integers(-127, 128, (9, 3, 3, channels))
    scale = np.float32(0.01) if depthwise else np.full(channels, 0.01, np.float32)
    tensors = [
        T("x", (1, 7, 6, 5), "int16", np.float32(0.001)), T("w", first.shape, "int8", scale, data=first),
        T("b", (channels,), "int64", np.float32(1e-5), data=r.integers(-(1 << 33), 1 << 33, channels)),
        T("h", (1, 4, 3, channels), "int16", np.float32(0.002)),
        T("v", second.shape, "int8", np.full(9, 0.01, np.float32), data=second),
        T("c", (9,), "int64", np.float32(2e-5), data=r.integers(-1000, 1000, 9)),
        T("y", (1, 4, 3, 9), "int16", np.float32(0.003)),
    ]  # fmt: skip
    stride = {"Padding": 0, "StrideH": 2, "StrideW": 2}
    if depthwise:
        layer = Layer(
            "DEPTHWISE_CONV_2D", ["x", "w", "b"], ["h"], ("DepthwiseConv2DOptions", stride | {"DepthMultiplier": 1})
        )
    else:
        layer = Layer("CONV_2D", ["x", "w", "b"], ["h"], ("Conv2DOptions", stride))
    options = ("Conv2DOptions", {"Padding": 0, "StrideH": 1, "StrideW": 1, "FusedActivationFunction": 1})
    return Model(tensors, [layer, Layer("CONV_2D", ["h", "v", "c"], ["y"], options)], ["x"], ["y"]).build()


@pytest.mark.parametrize("depthwise", [False, True])
def test_results_of_16_bits_are_proved(depthwise: bool) -> None:
    graph, program = both(convolutions(depthwise), BASE)
    verdict = prove(graph, program, seed=1)
    assert verdict.proved, verdict
    assert verdict.rules["result of 16 bits"] > 2
    ops = from_bytes(program.instructions)
    at = next(i for i, o in enumerate(ops) if o.name == "VECTOR_WIDE")
    for name, step in (
        ("byte", -1 if ops[at]["byte"] else 1),
        ("a", 1),
        ("dst", 1),
        ("prm", 1),
        ("low", 1),
        ("high", -1),
        ("reduce", -1),
    ):
        wrong = Op(ops[at].instruction, ops[at].values | {name: ops[at][name] + step})
        changed = replace(program, instructions=to_bytes([*ops[:at], wrong, *ops[at + 1 :]]))
        assert not prove(graph, changed, seed=1).proved, name


def test_on_a_machine_without_them_all_runs_on_the_cpu() -> None:
    verdict = prove(*both(convolutions(depthwise=False), PRESETS["base"]), seed=1)
    assert verdict.proved, verdict
    assert verdict.instructions == 0


def test_both_bytes_are_the_value() -> None:
    names = Names(4)
    values = np.concatenate([names.random((5,), "x")[..., VALUE], residues(np.array([-32768, -1, 0, 77, 32767]))])
    high, low = split(names, values)
    assert np.array_equal(join(high, low), values)
    assert not as_integers(high[:5])[0].any()
    assert as_integers(high[5:])[1].tolist() == [-128, -1, 0, 0, 127]
    assert as_integers(low[5:])[1].tolist() == [-128, 127, -128, -51, 127]
