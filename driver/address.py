"""Addresses of boards: `TRANSPORT:WHERE?OPTION=VALUE&...`, as users write them after `board://`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.common.text import suggest
from tilewright.driver.errors import TransportError
from tilewright.driver.transport.base import Transport
from tilewright.driver.transport.pcie import PcieTransport
from tilewright.driver.transport.serial import SerialTransport
from tilewright.driver.transport.socket import SocketTransport
from tilewright.driver.transport.uio import UioTransport

_UNITS = {"k": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def number(text: str) -> int:
    """Parses a number: 12, 0x1000 or 64M. Raises `ValueError`."""
    unit = _UNITS.get(text[-1:], 0)
    return int(text[:-1], 0) * unit if unit else int(text, 0)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise ValueError(text)
    return value


@dataclass(frozen=True)
class Kind:
    """A kind of transport: its constructor, an example of the text after its name, its options with their readers, and
    the required ones.
    """

    make: Callable[..., Transport]
    where: str
    options: dict[str, Callable[[str], Any]]
    needed: tuple[str, ...] = ()


KINDS: dict[str, Kind] = {
    "serial": Kind(SerialTransport, "/dev/ttyUSB0", {"baud": number, "seconds": _seconds, "words": number}),
    "uio": Kind(UioTransport, "npu0", {"memory": str, "heap": str, "size": number}),
    "pcie": Kind(
        PcieTransport, "0000:01:00.0", {"size": number, "base": number, "registers": number, "event": number}, ("size",)
    ),
    "socket": Kind(SocketTransport, "/run/npu.sock", {"seconds": _seconds}),
}


def forms() -> str:
    """The forms of addresses, for messages."""
    return ", ".join(f"{name}:{kind.where}" for name, kind in KINDS.items())


def open_transport(address: str) -> Transport:
    """Opens the transport an address names.

    Raises:
        TransportError: the address is malformed, has an option that is unknown or cannot be read, or nothing is there.
    """
    name, colon, rest = address.partition(":")
    where, _, query = rest.partition("?")
    kind = KINDS.get(name)
    if kind is None or not colon or not where:
        raise TransportError(f"a board is given as one of {forms()}; not {address!r}")
    options: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        key, _, text = part.partition("=")
        if key not in kind.options:
            raise TransportError(
                f"{name}: unknown option {key!r}{suggest(key, kind.options)}; options: {', '.join(kind.options)}"
            )
        try:
            options[key] = kind.options[key](text)
        except ValueError:
            raise TransportError(f"{name}: option {key} cannot be {text!r}") from None
    for key in kind.needed:
        if key not in options:
            raise TransportError(f"{name}: option {key} is needed, as in {name}:{where}?{key}=64M")
    return kind.make(where, **options)
