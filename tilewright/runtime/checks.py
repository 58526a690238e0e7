"""Checks that a program is for this device and this machine."""

from __future__ import annotations

from tilewright.errors import ConfigMismatchError
from tilewright.isa.device import Device
from tilewright.isa.program import CpuStep, Program


def check_config(program: Program, device: Device) -> None:
    """Raises `ConfigMismatchError` naming the fields that differ."""
    if program.config.fingerprint == device.config.fingerprint:
        return
    ours, theirs = program.config.to_dict(), device.config.to_dict()
    fields = [f"{k} {ours[k]} / {theirs[k]}" for k in ours if k != "name" and ours[k] != theirs[k]]
    raise ConfigMismatchError(
        f"{program.name} was compiled for configuration {program.config.name!r}, device {device.name!r} is "
        f"{device.config.name!r} (program / device: {', '.join(fields)}); compile it for {device.config.name!r}"
    )


def check_host(program: Program) -> None:
    """Raises `ConfigMismatchError` if the CPU kernels are for another kind of machine or use what this one lacks."""
    theirs = program.host.triple
    if not theirs or not any(isinstance(s, CpuStep) for s in program.steps):
        return
    from tilewright.compiler.cpu.target import Target  # LLVM takes 0.2 s to import

    ours = Target.host().triple
    if theirs.partition("-")[0] != ours.partition("-")[0]:
        raise ConfigMismatchError(
            f"{program.name} was compiled for host {theirs}, this machine is {ours}: its CPU kernels cannot run here; "
            "compile it without --host, or run it as C on that host (tilewright export-c)"
        )
    missing = Target.missing(program.host.features)
    if missing:
        raise ConfigMismatchError(
            f"{program.name}: its CPU kernels use {', '.join(missing)}, which this processor ({Target.host().cpu}) "
            "lacks; compile the model again on this machine"
        )
