"""Errors of the driver; each is one clear line."""

from tilewright.common.errors import TilewrightError


class TransportError(TilewrightError):
    """The way to the board: a device file that is missing, a link that is dead, a bus that does not answer."""


class BoardReset(TransportError):
    """The board was reset behind the driver's back; what it held is gone."""


class ProbeError(TilewrightError):
    """The board answers, but it is not what is needed: no NPU, another version, another configuration."""


class BusyError(TilewrightError):
    """Another process holds the board."""
