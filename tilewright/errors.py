"""Errors of the public API; like all `TilewrightError`s they are one clear line."""

from common.errors import TilewrightError


class UsageError(TilewrightError):
    """A call that cannot be right: an unknown name, a missing file, a contradiction."""


class InputError(UsageError):
    """Model inputs that do not fit the program: missing or unknown names, wrong shapes or types."""


class ConfigMismatchError(TilewrightError):
    """A program compiled for another configuration than that of the device."""
