"""Base of every error that is part of the interface: one clear line, no traceback."""


class TilewrightError(Exception):
    """A user-visible error: what, where, the value, and what would be accepted, in one line."""
