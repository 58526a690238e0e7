"""`CompileOptions`: everything a user may choose about the compilation of a graph, checked in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.common.errors import UsageError
from tilewright.common.text import suggest
from tilewright.isa.program_check import MAX_THREADS
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming

if TYPE_CHECKING:
    from tilewright.compiler.cpu.target import Target
    from tilewright.compiler.npu.layers.replacing import LayerKernel

MAX_EFFORT = 3
KEEP = ("outputs", "all")
PRINT_FORMS = ("text", "mlir")
#: Stages that `print_after` accepts besides the passes of the front end and the rewrites for the NPU.
STAGES = ("place", "tails", "layouts", "tasks", "partition", "schedule", "segments", "allocate", "tiles", "emit")


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """Choices about a compilation; wrong ones are refused when the object is made.

    Attributes:
        keep: "outputs", or "all" to keep every quantised tensor in memory: nothing is fused away, nothing reused.
        effort: effort of the schedule search, 0..3: 0 no fusion, 1 fusion by counting, 2 and 3 several schedules by
            exact cycles.
        cpu_only: leave the NPU out.
        host: machine the CPU kernels are for, one of `tilewright.compiler.cpu.target.HOSTS`; None for this one, which
            implies nothing about the board's host: everything the NPU can run stays there.
        clock_mhz: clock of the NPU, by which its time is compared with the host's.
        memory: memory timing that schedules are made for; results do not depend on it.
        keep_weights: weights stay in WGT from run to run, and only a first run loads them; refused unless all fit.
        small_weights: where the NPU decodes weights, they are coded where that saves bytes; otherwise, where it saves
            time.
        threads: number of threads that share the work of every CPU kernel, 1..64; results are the same for every
            number. 1 with a host.
        kernels: kernels that take the place of layers of the NPU, as `tilewright.kernel.Kernel` does.
        print_after: names of passes, rewrites and stages to print after; "all" for every one.
        print_form: "text", or "mlir" for graphs and tile programs as modules of MLIR, and comments of what is neither.

    Raises:
        UsageError: a value that is not accepted. CompileError: an unknown host.
    """

    keep: str = "outputs"
    effort: int = 1
    cpu_only: bool = False
    host: str | None = None
    clock_mhz: float = 100.0
    memory: MemoryTiming = DEFAULT_MEMORY
    keep_weights: bool = False
    small_weights: bool = False
    threads: int = 1
    kernels: tuple[LayerKernel, ...] = ()
    print_after: tuple[str, ...] = ()
    print_form: str = "text"

    def __post_init__(self) -> None:
        if self.keep not in KEEP:
            raise UsageError(f'keep must be "outputs" or "all", not {self.keep!r}')
        if self.print_form not in PRINT_FORMS:
            raise UsageError(f'print_form must be "text" or "mlir", not {self.print_form!r}')
        if not 0 <= self.effort <= MAX_EFFORT:
            raise UsageError(f"effort must be 0..{MAX_EFFORT}, not {self.effort!r}")
        if not 1 <= self.threads <= MAX_THREADS:
            raise UsageError(f"threads must be 1..{MAX_THREADS}, not {self.threads!r}")
        if not 0 < self.clock_mhz <= 10_000:
            raise UsageError(f"clock_mhz must be above 0 and at most 10000, not {self.clock_mhz!r}")
        if not isinstance(self.memory, MemoryTiming):
            raise UsageError(f"memory must be a tilewright.isa.timing.MemoryTiming, not {self.memory!r}")
        for kernel in self.kernels:
            if not hasattr(kernel, "layer_for"):
                raise UsageError(f"kernels must be made by tilewright.kernel.kernel, not {kernel!r}")
        if self.threads > 1 and self.host is not None:
            raise UsageError("threads are for kernels of this machine: with a host there is one")
        if self.host is not None:
            self.target()
        if self.print_after:
            _check_passes(self.print_after)

    @property
    def keep_all(self) -> bool:
        return self.keep == "all"

    def target(self) -> Target:
        """The machine the CPU kernels are for."""
        from tilewright.compiler.cpu.target import Target  # LLVM takes 0.6 s to import

        return Target.host() if self.host is None else Target.named(self.host)

    def prints(self, stage: str) -> bool:
        """True if the graph is to be printed after a pass or stage."""
        return stage in self.print_after or "all" in self.print_after


def printable() -> list[str]:
    """Returns the names that `print_after` knows, in the order they run: passes, rewrites, stages."""
    from tilewright.compiler.npu.rewrites import REWRITES  # 0.5 s to import, which only printing needs this early
    from tilewright.compiler.passes import FRONTEND

    return [*(step.name for step in FRONTEND), *(rewrite.name for rewrite in REWRITES), *STAGES]


def _check_passes(names: tuple[str, ...]) -> None:
    known = printable()
    for name in names:
        if name not in known and name != "all":
            raise UsageError(
                f"unknown pass {name!r}{suggest(name, (*known, 'all'))}; the passes are {', '.join(known)} (or all)"
            )
