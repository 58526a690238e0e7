"""Errors a user can cause. The command line prints them as one line and exits with code 2."""

from isa.errors import TilewrightError


class CompileError(TilewrightError):
    """The model cannot be compiled: damaged, unsupported or inconsistent. The message names node and value."""


class UnsupportedError(CompileError):
    """A valid model that needs something Tilewright does not have; says what, where, and what is accepted."""
