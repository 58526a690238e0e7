"""Causes that keep products off the NPU; there is none where shapes have other ranks than planes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import tilewright as tw
from tests.reference.quantized_models import Model
from tilewright.cli import cli
from tilewright.isa.program import Program
from tilewright.isa.program_parts import EntryPoint
from tilewright.measure import off_npu

STEP = 0.25  # of every scale: sums of products are halves and quarters of result steps, so many are ties


def _weights(m: Model, *shape: int) -> str:
    """A constant of all values that 8 bits have, its ends among them."""
    values = m.rng.integers(-127, 128, shape)
    values.flat[:2] = -127, 127
    return str(m.op("DequantizeLinear", m.const(values, np.int8), m.const(STEP, np.float32), m.const(0, np.int8)))


def _bias(m: Model, size: int) -> str:
    values = m.const(m.rng.integers(-900, 900, size), np.int32)
    return str(m.op("DequantizeLinear", values, m.const(STEP * STEP, np.float32), m.const(0, np.int32)))


def _finish(m: Model, y: str, steps: int = 512) -> None:
    """Quantises the result at so many steps of the sum."""
    m.output(m.requantized(y, scale=STEP * STEP * steps, zero=3))


def _input(m: Model, *shape: int) -> str:
    return m.input(shape, scale=STEP, zero=-2)


def _conv(size: tuple[int, ...], weights: tuple[int, ...], **attrs: Any) -> Callable[[Model], None]:
    def make(m: Model) -> None:
        x, w = _input(m, *size), _weights(m, *weights)
        _finish(m, m.op("Conv", x, w, _bias(m, weights[0]), **attrs))

    return make


def _transposed(m: Model) -> None:
    _finish(m, m.op("ConvTranspose", _input(m, 1, 16, 19), _weights(m, 16, 8, 4), pads=[1, 1], strides=[2]))


def _rows(*size: int) -> Callable[[Model], None]:
    def make(m: Model) -> None:
        x = m.op("MatMul", _input(m, *size), _weights(m, size[-1], 24))
        _finish(m, m.op("Add", x, _bias(m, 24)))

    return make


def _gemm_between_reshapes(m: Model) -> None:
    rows = m.op("Reshape", _input(m, 3, 20, 32), m.const([-1, 32], np.int64))
    rows = m.op("Gemm", rows, _weights(m, 24, 32), _bias(m, 24), transB=1)
    _finish(m, m.op("Reshape", rows, m.const([3, 20, 24], np.int64)))


ON_NPU = {
    "1-D": _conv((1, 16, 40), (32, 16, 3), pads=[1, 1]),
    "1-D of one value": _conv((1, 16, 1), (8, 16, 3), pads=[1, 1]),
    "1-D strides, dilations, batch": _conv((2, 16, 41), (32, 16, 3), pads=[2, 2], strides=[2], dilations=[2]),
    "1-D depthwise": _conv((1, 16, 41), (16, 1, 5), pads=[2, 2], group=16),
    "1-D transposed": _transposed,
    "rows of rank 3": _rows(3, 20, 32),
    "rows of rank 4": _rows(2, 3, 5, 32),
    "Gemm between Reshapes": _gemm_between_reshapes,
}


@pytest.mark.medium
@pytest.mark.parametrize("name", ON_NPU)
def test_other_ranks_run_on_the_npu(name: str) -> None:
    """One spatial axis and rows of any rank are planes of the NPU; every byte is onnxruntime's, ties and ends too."""
    m = Model(seed=7)
    ON_NPU[name](m)
    model = m.build()
    program = tw.compile(model, cache=False)
    assert isinstance(program, Program)
    assert off_npu.causes(program) == [] and program.npu_macs == program.macs > 0
    for ends in (False, True):
        feeds = m.feeds()
        if ends:
            feeds = {k: np.where(m.rng.random(v.shape) < 0.5, v.min(), v.max()) for k, v in feeds.items()}
        report = tw.check(model, feeds, keep="all", program=program)
        assert report.ok, report.summary()


def _recurrent(kind: str, gates: int) -> Callable[[Model], None]:
    def make(m: Model) -> None:
        x = _input(m, 10, 2, 8)
        w, r = (m.const(m.rng.normal(size=(1, gates * 16, n)), np.float32) for n in (8, 16))
        m.output(m.op(kind, x, w, r, outputs=2, hidden_size=16)[0])

    return make


def _einsum(m: Model) -> None:
    m.output(m.op("Einsum", _input(m, 3, 20, 32), m.const(np.ones((32, 24)), np.float32), equation="...ij,jk->...ik"))


OFF_NPU = {
    "3-D": (_conv((1, 8, 4, 5, 5), (16, 8, 3, 3, 3), pads=[1] * 6), "QConv: 3 spatial axes; the NPU has 1 or 2",
            4 * 5 * 5 * 16 * 8 * 27),
    "LSTM": (_recurrent("LSTM", 4), "LSTM: the file has its steps in floats", 10 * 2 * 4 * 16 * (8 + 16)),
    "GRU": (_recurrent("GRU", 3), "GRU: the file has its steps in floats", 10 * 2 * 3 * 16 * (8 + 16)),
    "Einsum": (_einsum, "Einsum: the file has it in floats", 3 * 20 * 32 * 24),
}  # fmt: skip


@pytest.mark.parametrize("name", OFF_NPU)
def test_causes(name: str) -> None:
    make, text, macs = OFF_NPU[name]
    m = Model()
    make(m)
    program = tw.compile(m.build(), cache=False, effort=0)
    assert isinstance(program, Program)
    (cause,) = off_npu.causes(program)
    assert cause.cause.startswith(text)
    assert (cause.layers, cause.macs, cause.share) == (1, macs, 1.0)
    named = EntryPoint("entry", [], [], 0, len(program.steps), 0, len(program.layers))
    linked = replace(program, entries=[named], notes=[f"entry: {note}" for note in program.notes])
    assert off_npu.causes(linked) == [cause]


def test_shares_are_those_of_the_whole(tmp_path: Path) -> None:
    """Half of two equal convolutions is on the NPU; the command says so, in its table and for programs."""
    m = Model(seed=3)
    x, w = _input(m, 1, 16, 40), _weights(m, 16, 16, 3)
    _finish(m, m.op("Conv", x, w, pads=[1, 1]))
    m.output(m.op("Conv", m.outputs[0], m.const(np.ones((16, 16, 3)), np.float32), pads=[1, 1]))
    path = tmp_path / "half.onnx"
    onnx.save(m.build(), path)
    shown, written = (
        CliRunner().invoke(cli, ["info", str(path), *more], prog_name="tilewright") for more in ([], ["--json", "-"])
    )
    found = json.loads(written.stdout)
    assert found["off_npu"] == [
        {"cause": "Conv: the file has it in floats", "layers": 1, "macs": found["macs"] // 2, "share": 0.5}
    ]
    text = " ".join(shown.stdout.split())
    assert "Conv: the file has it in floats │ 1 │ 50.0%" in text
