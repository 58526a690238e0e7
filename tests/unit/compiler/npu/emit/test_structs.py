"""The C header of the assembler's structures is up to date."""

from tilewright.compiler.npu.emit import generate
from tilewright.isa.generate import files


def test_header_is_not_stale() -> None:
    assert files.stale(generate.OUTPUTS) == [], f"run `{generate.COMMAND}`"
