"""What an access of a program touches, said without the code that is tested."""

from __future__ import annotations

from tilewright.compiler.npu.emit.hazards import Access


def rows_of(access: Access) -> set[int]:
    """Returns the rows (of memory: bytes) that an access touches."""
    return {access.start + turn * access.stride + row for turn in range(access.times) for row in range(access.length)}
