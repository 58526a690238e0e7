"""The device tcp://HOST:PORT as the registry of devices knows it; grpc is imported when one is opened."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tilewright.errors import UsageError
from tilewright.isa import device as isa_device
from tilewright.isa import host
from tilewright.isa.config import NpuConfig
from tilewright.runtime.backend import Backend


def _remote(config: NpuConfig | None, address: str, **options: Any) -> isa_device.Device:
    client = import_module("tilewright.remote.client")
    found: isa_device.Device = client.RemoteDevice(client.Address.parse(address), config, **options)
    return found


def _preset(address: str) -> str:
    device: Any = _remote(None, address)
    device.close()
    found = host.preset_of(device.config.fingerprint)
    if found is None:
        raise UsageError(
            f"{device.name} has configuration {device.config.fingerprint}, which is no preset; give its file with "
            "--config"
        )
    return found.name


BACKEND = Backend(
    "tcp", "a device that `tilewright serve` shares: HOST:PORT", _remote, "grpc", True, _preset, "HOST:PORT"
)
