"""The register table as macros of C, for the headers of both sides."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.isa import registers


def register_lines(prefix: str) -> Iterator[str]:
    """Macros of identity, offsets and bit ranges, whose names begin with `prefix`."""
    yield f"#define {prefix}_IDENTITY 0x{registers.IDENTITY:08x}u"
    yield f"#define {prefix}_VERSION {registers.VERSION}"
    yield f"#define {prefix}_REGISTER_SPACE {registers.REGISTER_SPACE}"
    for register in registers.REGISTERS:
        yield f"#define {prefix}_REG_{register.name} 0x{register.offset:03x}"
        for bit in register.bits:
            yield f"#define {prefix}_REG_{register.name}_{bit.name}_LOW {bit.low}"
            yield f"#define {prefix}_REG_{register.name}_{bit.name}_BITS {bit.bits}"
