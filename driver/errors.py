"""Errors of the driver; each is one clear line."""

from tilewright.common.errors import TilewrightError


class TransportError(TilewrightError):
    """The transport failed: a missing device file, a dead link, a bus that does not answer."""


class BoardReset(TransportError):
    """The board was reset behind the driver's back; its memory contents are gone."""


class ProbeError(TilewrightError):
    """The board answers, but it is not the required one: no NPU, another version, another configuration."""


class BusyError(TilewrightError):
    """Another process holds the board."""
