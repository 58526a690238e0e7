"""Errors of building a bitstream."""

from __future__ import annotations

from tilewright.common.errors import TilewrightError


class FpgaError(TilewrightError):
    """A build that is impossible or failed. The message names the cause, by how much, and a working alternative."""
