"""Addresses looked up once for all runs of a program: memory that moves, inputs that need a check."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from tests.reference.quantized_models import Model
from tilewright.errors import InputError
from tilewright.isa.program import Program
from tilewright.runtime.binding import ExpectedInputs
from tilewright.runtime.executor import Executor
from tilewright.simulator.functional import FunctionalDevice


def _program(seed: int = 0) -> Program:
    m = Model(seed=seed)
    x = m.input((1, 8, 6, 5))
    m.output(m.requantized(m.op("Conv", x, m.weights((8, 8, 3, 3)), pads=[1] * 4), scale=1.0))
    found = tw.compile(m.build(), effort=0)
    assert isinstance(found, Program)
    return found


def _outputs(program: Program, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return tw.Device("functional").run(program, inputs)


def test_memory_that_moves() -> None:
    """Device memory grows into another place; kernels and tensors follow."""
    program = _program()
    device = FunctionalDevice(program.config)
    executor = Executor(program, device)
    first, second = (tw.random_inputs(program, seed) for seed in (1, 2))
    before = executor.run(first).outputs
    old = device.memory.data
    device.allocate(8 << 20)
    assert device.memory.data is not old
    old[:] = 85  # whoever still looked there would find this
    after = executor.run(second).outputs
    for inputs, found in ((first, before), (second, after)):
        for name, value in _outputs(program, inputs).items():
            np.testing.assert_array_equal(found[name], value)


def test_outputs_are_of_their_run() -> None:
    """Arrays that a run has given do not change with the next one."""
    program, device = _program(), tw.Device("functional")
    (name,) = (info.name for info in program.outputs)
    found = device.run(program, tw.random_inputs(program, 1))[name]
    kept = found.copy()
    assert not np.array_equal(device.run(program, tw.random_inputs(program, 2))[name], kept)
    np.testing.assert_array_equal(found, kept)


def test_inputs_that_need_no_check() -> None:
    program = _program()
    expected = ExpectedInputs(program)
    inputs = tw.random_inputs(program)
    ((name, value),) = inputs.items()
    assert expected.fit(inputs)
    assert expected.fit({name: np.asfortranarray(value)})
    for other in ({}, {name: value.tolist()}, {name: value[0]}, {name: value.astype(np.float64)}, {"a": value},
                  {name: value, "a": value}, value):  # fmt: skip
        assert not expected.fit(other)  # type: ignore[arg-type]
    assert not ExpectedInputs(replace(program, rising=[name])).fit(inputs)


@pytest.mark.parametrize("wrong", ["shape", "dtype", "name"])
def test_others_are_still_refused(wrong: str) -> None:
    program, device = _program(), tw.Device("functional")
    inputs = tw.random_inputs(program)
    ((name, value),) = inputs.items()
    device.run(program, inputs)
    bad = {"shape": {name: value[:, :1]}, "dtype": {name: value.astype(np.float64)}, "name": {"a": value}}[wrong]
    with pytest.raises(InputError):
        device.run(program, bad)


def test_any_layout_of_an_input() -> None:
    """An array with strides gives what its copy gives."""
    program = _program()
    ((name, value),) = tw.random_inputs(program).items()
    strided = np.repeat(value, 2, axis=-1)[..., ::2]
    assert not strided.flags.c_contiguous
    for key, found in _outputs(program, {name: strided}).items():
        np.testing.assert_array_equal(found, _outputs(program, {name: value})[key])
