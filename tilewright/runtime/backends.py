"""Devices by name: simulators, RTL, boards, servers."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tilewright import registry
from tilewright.common.installation import told
from tilewright.common.text import suggest
from tilewright.errors import UsageError
from tilewright.isa import device as isa_device
from tilewright.isa.config import NpuConfig
from tilewright.runtime.backend import Backend


def _imported(module: str, name: str) -> Any:
    """A class or function of a device's package.

    Imported when a device of the kind is opened: grpc, the serial port and Amaranth take 0.1 to 0.2 s each and are not
    installed everywhere.

    Raises:
        MissingPackageError: with the command that brings it.
    """
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise (told(error) or error) from None


def _simulator(module: str, name: str) -> Callable[..., isa_device.Device]:
    """A factory of a simulator: the class of that name, which takes a configuration and options."""
    return lambda config, address, **options: _imported(module, name)(config, **options)


def _board(config: NpuConfig | None, address: str, **options: Any) -> isa_device.Device:
    transport = _imported("tilewright.driver.address", "open_transport")(address)
    found: isa_device.Device = _imported("tilewright.driver.board", "BoardDevice")(transport, config, **options)
    return found


def _board_preset(address: str) -> str:
    with _imported("tilewright.driver.board", "BoardDevice")(
        _imported("tilewright.driver.address", "open_transport")(address)
    ) as device:
        name: str = device.config.name
        return name


BACKENDS: dict[str, Backend] = {}


def register(backend: Backend) -> None:
    """Makes a kind of device known to `Device` and the command line."""
    BACKENDS[backend.name] = backend


def find(name: str) -> tuple[Backend, str]:
    """The kind of device that a name means, and the address in it. Raises UsageError: there is none."""
    stem, colon, address = name.partition("://")
    found = BACKENDS.get(stem)
    if found is not None and found.scheme and not colon:
        address = os.environ.get(f"TILEWRIGHT_{stem.upper()}", "")
    if found is None or bool(colon or address) != found.scheme or not found.available:
        raise UsageError(_why_not(name, stem, found, bool(colon)))
    return found, address


def _why_not(name: str, stem: str, found: Backend | None, addressed: bool) -> str:
    """The error text for a device name that has no backend here."""
    if found is not None and not found.available:
        package = found.module.partition(".")[0]
        return f"device {name!r}: {told(ModuleNotFoundError(name=package)) or f'{package} is not installed'}"
    if found is not None and found.scheme:
        variable = f"TILEWRIGHT_{stem.upper()}"
        return f"device {name!r} says no address: give {stem}://ADDRESS (ADDRESS is {found.address}), or set {variable}"
    if found is not None and addressed:
        return f"device {stem!r} takes no address: give {stem!r}, not {name!r}"
    there = ", ".join(f"{b.name}://ADDRESS" if b.scheme else b.name for b in BACKENDS.values() if b.available)
    hint = suggest(stem, [b.name for b in BACKENDS.values() if b.available])
    return f"unknown device {name!r}{hint}; available: {there or 'none'}"


def preset_of(name: str) -> str | None:
    """The preset a device has by itself, as boards and served ones do; None for devices that take that of the program.

    Raises:
        UsageError: unknown device. TilewrightError: it does not answer, or its configuration is no preset.
    """
    backend, address = find(name)
    return backend.preset(address) if backend.preset is not None else None


_BOARD_ADDRESS = "serial:PORT, uio:NAME, pcie:SLOT or socket:PATH"

for _backend in (
    Backend("functional", "functional simulator: the definition of the ISA, no clock",
            _simulator("tilewright.simulator.functional", "FunctionalDevice"), "tilewright.simulator.functional"),
    Backend("cycle", "cycle-level simulator: the same bytes with the clock of the RTL",
            _simulator("tilewright.simulator.cycle", "CycleDevice"), "tilewright.simulator.cycle"),
    Backend("rtl", "the RTL itself in Verilator, built on first use",
            _simulator("tilewright.hw.sim.device", "RtlDevice"), "tilewright.hw.sim.device"),
    Backend("board", f"an FPGA: {_BOARD_ADDRESS}", _board, "tilewright.driver.board", True, _board_preset,
            _BOARD_ADDRESS),
    *registry.devices(),
):  # fmt: skip
    register(_backend)
