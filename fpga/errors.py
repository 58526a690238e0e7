"""What can go wrong on the way to a bitstream."""

from __future__ import annotations

from tilewright.common.errors import TilewrightError


class FpgaError(TilewrightError):
    """A build that cannot be, or that failed. The message says what, by how much, and what would work."""
