"""What a search may measure, and how far it says it is."""

from __future__ import annotations

from tilewright.compiler.npu.schedule.problem import Budget
from tilewright.isa.config import PRESETS
from tilewright.isa.fields import INSTRUCTION_BYTES


def test_a_budget_counts_instructions() -> None:
    """The last image may have more of them than are left: progress then ends at 1 all the same."""
    told: list[float] = []
    budget = Budget(lambda config, image, arena_bytes: float(len(image) + arena_bytes), 10, told.append)
    assert budget(PRESETS["tiny"], bytes(4 * INSTRUCTION_BYTES), 7) == 4 * INSTRUCTION_BYTES + 7
    assert budget.left == 6
    budget(PRESETS["tiny"], bytes(INSTRUCTION_BYTES), 0)
    budget(PRESETS["tiny"], bytes(9 * INSTRUCTION_BYTES), 0)
    assert told == [0.4, 0.5, 1.0] and budget.left == -4
