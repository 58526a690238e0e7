"""Checks that the RTL still elaborates to the designs that the calibrations measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilewright.fpga.bare import designs
from tilewright.isa.config import NpuConfig


def check_designs(measured: Iterable[tuple[NpuConfig, str]], report: Callable[[str], object]) -> list[str]:
    """Elaborates machines, seconds each, and says of each whether its design is the measured one.

    From then on the models know it, too (`tilewright.fpga.bare.designs.changed`), until the sources change.

    Args:
        measured: configurations with the digests of the designs that were measured.
        report: takes the line of a machine.

    Returns:
        Names of the machines that are other designs now.
    """
    changed = []
    for config, digest in measured:
        same = designs.digest(config) == digest
        report(f"{config.name}: {'as measured' if same else 'another design now'}")
        if not same:
            changed.append(config.name)
    return changed
