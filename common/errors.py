"""Base of every error that is part of the interface: one clear line, no traceback."""


class TilewrightError(Exception):
    """A user-visible error: what, where, the value, and what would be accepted, in one line."""


class UsageError(TilewrightError):
    """A call that cannot be right: an unknown name, a missing file, a contradiction."""
