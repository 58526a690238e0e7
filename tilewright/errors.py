"""Errors of the public API; like all `TilewrightError`s they are one clear line."""

from tilewright.common.errors import TilewrightError, UsageError


class InputError(UsageError):
    """Model inputs that do not fit the program: missing or unknown names, wrong shapes or types."""


class ConfigMismatchError(TilewrightError):
    """A program compiled for another configuration than that of the device."""


class UntrustedError(TilewrightError):
    """A program with native code of somebody whom the user does not trust; see `tilewright.store.trust`."""


__all__ = ["ConfigMismatchError", "InputError", "TilewrightError", "UntrustedError", "UsageError"]
