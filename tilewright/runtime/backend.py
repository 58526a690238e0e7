"""`Backend`: a kind of device, as the registry of devices has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from tilewright.isa import device as isa_device


@dataclass(frozen=True)
class Backend:
    """A kind of device.

    Attributes:
        name: what users say; with `scheme`, an address starting with `name` and "://".
        summary: one line.
        make: from configuration, the text after "://" ("" without) and options to a device.
        module: what must be importable for it.
        scheme: takes an address; without one it is that of the environment variable TILEWRIGHT_<NAME>.
        preset: for devices that have a configuration of their own: from an address to the name of the preset.
        address: with `scheme`, what an address is.
    """

    name: str
    summary: str
    make: Callable[..., isa_device.Device]
    module: str
    scheme: bool = False
    preset: Callable[[str], str] | None = None
    address: str = ""

    @property
    def available(self) -> bool:
        try:
            return find_spec(self.module) is not None
        except ModuleNotFoundError:
            return False
