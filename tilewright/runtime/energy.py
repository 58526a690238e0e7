"""The interface between the core and a model of energy; `tilewright.energy` implements it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from tilewright import registry
from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import Op
from tilewright.isa.program import Program


class Energy(Protocol):
    """Energy of a run, in pJ.

    Attributes:
        logic, memories: by event: gates and clock; memories on the chip.
        dram: of external memory.
    """

    @property
    def logic(self) -> dict[str, float]: ...

    @property
    def memories(self) -> dict[str, float]: ...

    @property
    def dram(self) -> float: ...

    @property
    def chip(self) -> float:
        """pJ without external memory."""

    @property
    def total(self) -> float:
        """pJ with external memory."""

    def causes(self) -> dict[str, float]:
        """pJ by cause, external memory among them."""

    def to_dict(self) -> dict[str, Any]:
        """Energy for `--json`, in µJ."""


class EnergyModel(Protocol):
    """A calibrated model of the energy of events, in picojoules, for each machine.

    Attributes:
        technology: name of the process.
        coefficients: per part, event and term.
        error: mean and largest relative error on what was held back from the fit.
        dram_pj_per_byte: of external memory.
        machines: configurations it was calibrated and judged on.
    """

    @property
    def technology(self) -> str: ...

    @property
    def coefficients(self) -> Mapping[str, Mapping[str, Mapping[str, float]]]: ...

    @property
    def error(self) -> Mapping[str, float]: ...

    @property
    def dram_pj_per_byte(self) -> float: ...

    @property
    def machines(self) -> tuple[NpuConfig, ...]: ...

    @property
    def changed(self) -> list[str] | None:
        """Names of machines whose design has changed since the calibration; None where nobody has looked."""

    def totals(self, config: NpuConfig, counts: np.ndarray) -> np.ndarray:
        """Returns pJ of runs, external memory included: float64 [runs], of events as float64 [runs, events]."""

    def beyond(self, config: NpuConfig) -> list[str]:
        """Sizes of a configuration that are outside those of `machines`."""

    def energy(self, config: NpuConfig, counts: np.ndarray) -> Energy:
        """Energy of a run with these numbers of events, float64 [events]."""

    def sentence(self) -> str:
        """Technology, sources and error, for people."""


class Meter(Protocol):
    """Counts events of programs, and has the model of what they cost.

    Attributes:
        EVENTS: names of the events, in the order of counts.
    """

    EVENTS: tuple[str, ...]

    def load(self, file: Path | None = None) -> EnergyModel:
        """The calibrated model. Raises `UsageError`: it is missing or damaged."""

    def of_program(self, program: Program, cycles: int) -> np.ndarray:
        """Events of a run of a program in so many cycles, float64 [events]."""

    def total(self, ops: Sequence[Op], config: NpuConfig, cycles: int, constants: bytes | None = None) -> np.ndarray:
        """Events of instructions that take so many cycles, float64 [events]."""

    def per_instruction(self, ops: Sequence[Op], config: NpuConfig, constants: bytes | None = None) -> np.ndarray:
        """Events of each instruction, float64 [instructions, events], without cycles."""


def meter() -> Meter:
    """The meter that an addition brings. It takes a second to import: the RTL, and what is known of its area."""
    return cast(Meter, registry.service("energy"))
