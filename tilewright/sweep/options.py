"""`SweepOptions`: everything that may be chosen about a sweep beside its space, networks and folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.errors import UsageError
from tilewright.sweep.outcome import Progress
from tilewright.sweep.space import TOOLS


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Choices about a sweep.

    Attributes:
        jobs: worker processes of the local cluster; None for one per CPU.
        scheduler: address of a Dask scheduler to use in their place.
        synth: area by "model" (the calibrated one), "yosys" (counts), or "nextpnr" (counts and clock).
        effort: of the compiler's schedule search, 0..3.
        retry_failed: compute again what failed before.
        verify: number of points whose cycles are compared with those of the RTL.
        progress: called after every result.

    Raises:
        UsageError: an unknown way to count the area.
    """

    jobs: int | None = None
    scheduler: str | None = None
    synth: str = "model"
    effort: int = 1
    retry_failed: bool = False
    verify: int = 0
    progress: Callable[[Progress], None] = lambda _: None

    def __post_init__(self) -> None:
        if self.synth not in TOOLS:
            raise UsageError(f"--synth must be one of {', '.join(TOOLS)}, not {self.synth!r}")
