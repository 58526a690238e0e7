"""Random programs of a machine on RTL and both simulators."""

from __future__ import annotations

from tilewright.isa.config import NpuConfig
from verification.programs.equality import Trio, case


def random_programs_agree(config: NpuConfig, opcode: str) -> None:
    """Asserts that 25 programs are equal in bytes, cycles and errors, and that the opcode is in some of them."""
    trio, found = Trio(config), 0
    for seed in range(25):
        program, timing = case(seed, config)
        found += sum(o.name == opcode for o in program.ops)
        assert not (lines := trio.differences(program, timing)), (seed, timing, lines)
    assert found
