"""Comparison of a model's program with onnxruntime, and its turns of the NPU, for tests of the rewrites."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import tilewright as tw
from tests.common import onnx_models
from tests.reference.quantized_models import Model
from tilewright.isa.config import PRESETS
from tilewright.isa.program import NpuStep, Program


def compared(m: Model, config: str, kinds: Sequence[str] = ("functional",), least: int = 0) -> Program:
    """Returns the program, after simulators of all `kinds` gave onnxruntime's bytes, `least` distinct ones or more."""
    proto, feeds = m.build(), m.feeds()
    program, session = tw.compile_program(proto, config, cache=False), onnx_models.session(proto)
    wanted = session.run(None, feeds)
    assert all(len(np.unique(expected)) >= least for expected in wanted)
    for kind in kinds:
        got = tw.Device(kind, PRESETS[config]).run(program, feeds)
        for output, expected in zip(session.get_outputs(), wanted, strict=True):
            np.testing.assert_array_equal(got[output.name], expected)
    return program


def turns_of(program: Program) -> int:
    """Returns the number of NPU steps."""
    return sum(isinstance(step, NpuStep) for step in program.steps)
