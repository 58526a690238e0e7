"""LOAD_CODED on the simulators: random streams and damaged ones, by all models; machines without a decoder."""

import pytest

from tilewright.isa.config import PRESETS
from tilewright.isa.device import DeviceError
from tilewright.isa.encoding import op
from tilewright.isa.error_codes import ErrorCode
from tilewright.simulator.functional import FunctionalDevice
from verification.fuzz.codes import MACHINES, differences
from verification.programs.coded import coded_program
from verification.programs.equality import with_ops


@pytest.mark.medium
@pytest.mark.parametrize("machine", MACHINES)
def test_random_streams(machine: str) -> None:
    ends = set()
    for seed in range(12):
        lines, end = differences(MACHINES[machine], seed)
        assert not lines, f"python -m verification.fuzz.codes --machines {machine} --seed {seed} --count 1: {lines}"
        ends.add(end)
    assert "complete" in ends and len(ends) > 1


def test_a_machine_without_a_decoder_says_so() -> None:
    config = MACHINES["base"]
    program, _ = coded_program(1, config, damage=0.0)
    other = PRESETS["base"]
    with pytest.raises(DeviceError, match="LOAD_CODED: not on this machine, weight_codes is 0") as caught:
        program.run(FunctionalDevice(other))
    assert caught.value.code == ErrorCode.ILLEGAL_OPCODE


def test_weights_without_a_table_say_so() -> None:
    program, _ = coded_program(1, MACHINES["base"], damage=0.0)
    ops = [op("LOAD_CODED", region=2, mode=0, count=1, beats=1), op("END")]
    with pytest.raises(DeviceError, match="its stream of coded weights is damaged") as caught:
        with_ops(program, ops).run(FunctionalDevice(MACHINES["base"]))
    assert caught.value.code == ErrorCode.CODE and caught.value.pc == 0
