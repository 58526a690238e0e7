"""Reasons that stop a proof: a missing rule, or something wrong with the program."""

from __future__ import annotations

from tilewright.common.errors import TilewrightError


class NoRule(TilewrightError):
    """An operator, an instruction or a form of one that this prover has no rule for: nothing is proved."""


class Finding(TilewrightError):
    """Something that is wrong with the program whatever it computes: a race, an access outside, a missing signal."""
