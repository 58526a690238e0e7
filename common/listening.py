"""Checks of servers that listen for clients: the address, and the token that clients have to know."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from tilewright.common.errors import UsageError


def host_and_port(address: str) -> tuple[str, int]:
    """Host (of IPv6 in brackets) and port of HOST:PORT. Raises `UsageError` for anything else."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(f"--listen must be HOST:PORT, not {address!r}")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether an address, or the name of a host to listen at, is of this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_reach(host: str, token: str | None) -> None:
    """Raises `UsageError` where other machines can reach a host that is listened at, and need know no token."""
    if token is None and not is_loopback(host):
        raise UsageError(f"{host} can be reached from other machines: give --token-file")


def read_token(path: str | Path) -> str:
    """The token in a file. Raises `UsageError` if it holds none that can be sent."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    return checked_token(content.decode("latin-1").strip(), str(path))


def checked_token(token: str, where: str) -> str:
    """The token. Raises `UsageError` if it cannot be sent, say from `where` it comes."""
    if not (token and token.isascii() and token.isprintable()):
        raise UsageError(f"{where} must hold a token: printable ASCII characters in one line")
    return token
