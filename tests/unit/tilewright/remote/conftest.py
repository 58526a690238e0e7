"""A program, its inputs, and what a device gives that is not served."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.unit.tilewright.remote.serving import MODEL
from tilewright.isa.device import Counters


@pytest.fixture(scope="session")
def program() -> tw.Program:
    return tw.compile_program(MODEL, "tiny")


@pytest.fixture(scope="session")
def inputs(program: tw.Program) -> dict[str, np.ndarray]:
    return tw.random_inputs(program, 5)


@pytest.fixture(scope="session")
def expected(program: tw.Program, inputs: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], Counters]:
    with tw.Device("cycle") as device:
        outputs = device.run(program, inputs)
        assert device.counters is not None
        return outputs, device.counters
