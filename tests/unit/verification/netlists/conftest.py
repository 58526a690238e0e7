"""The least network on a netlist, recorded once for the tests of a file: each makes its own `both`."""

from __future__ import annotations

import pytest

from tests.unit.verification.netlists.smallest_network import smallest_network
from tilewright.isa.program import Program
from verification.netlists.runs import NetworkRecording, Pair, record


@pytest.fixture(scope="module")
def network() -> Program:
    return smallest_network()


@pytest.fixture(scope="module")
def recording(both: Pair, network: Program) -> NetworkRecording:
    both.netlist.start()
    return record(both.netlist, both.baud, network)
