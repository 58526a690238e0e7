"""A row in the instruction table is all that assembler, encoder, decoders, C header and reference page need."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.common.paths import ROOT
from tilewright.isa import instructions


@pytest.mark.medium
def test_everything_is_derived_from_the_row() -> None:
    command = [sys.executable, "-m", "tests.unit.isa.example_instruction"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    # opcode in bits 0..7, factor -5 in bits 32..55, level 2 in bits 56..58
    assert int(found["word"], 16) == 0x36 | (2**24 - 5) << 32 | 2 << 56
    assert found["text"] == ["VECTOR_SCALE factor=-5 level=2"] * 2
    # RTL: legal, operands in their limits, engine 3; a level beyond the configuration is not in its limits
    assert found["decoded"] == [[1, 1, 3], [1, 0, 3]]
    header = found["files"]["isa/include/tilewright_isa.h"]
    assert "case TW_OP_VECTOR_SCALE:" in header.split("int tw_configures")[1].split("default:")[0]
    assert "TW_OP_VECTOR_SCALE = 0x36" in header or "TW_OP_VECTOR_SCALE 0x36" in header
    assert (
        "### VECTOR_SCALE" in found["files"]["docs/isa.md"]
        and "multiplier of the example" in found["files"]["docs/isa.md"]
    )


@pytest.mark.parametrize(
    ("name", "opcode", "message"),
    [("NEW", 0x34, "opcode 0x34 of NEW is that of ROW"), ("ROW", 0x36, "two instructions are called ROW")],
)
def test_a_name_or_an_opcode_twice_is_an_error(name: str, opcode: int, message: str) -> None:
    row = instructions._i(name, opcode, "Does nothing.")
    with pytest.raises(ValueError, match=message):
        instructions.indexed((*instructions.INSTRUCTIONS, row))


def test_the_opcode_of_the_example_is_free() -> None:
    assert example_instruction_opcode() not in instructions.BY_OPCODE


def example_instruction_opcode() -> int:
    """Read from the text: importing the example lengthens the table of this process."""
    text = (ROOT / "tests" / "unit" / "isa" / "example_instruction.py").read_text(encoding="utf-8")
    found = re.search(r'"VECTOR_SCALE", (0x[0-9a-f]+)', text)
    assert found is not None
    return int(found[1], 16)
