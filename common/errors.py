"""Base of every error that is part of the interface: one clear line, no traceback."""


class TilewrightError(Exception):
    """A user-visible error in one line: the problem, its place, the value, and the accepted values."""


class UsageError(TilewrightError):
    """A call that cannot be right: an unknown name, a missing file, a contradiction."""
