"""Errors a user can cause. The command line prints them as one line and exits with code 2."""

from tilewright.common.errors import TilewrightError


class CompileError(TilewrightError):
    """The model cannot be compiled: damaged, unsupported or inconsistent. The message names node and value."""


class UnsupportedError(CompileError):
    """A valid model that needs a feature Tilewright lacks. The message names feature, place, and accepted values."""


class StagingError(UnsupportedError):
    """A value that is only known while the model runs: one that decides shapes, a sequence, a string.

    Attributes:
        tensors: names, in the graph under construction, of the values that would have to be known; none where no value
            would help.
    """

    def __init__(self, message: str, tensors: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.tensors = tensors


class OpenShapeError(CompileError):
    """An input with dimensions that neither the model nor the caller gives."""
