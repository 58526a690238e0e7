"""Models of hosts: the time a processor takes for the counted operations of kernels.

A time is the sum of the operations by kind, each with its cycles, and of the bytes of memory; nothing overlaps beyond
the numbers themselves. They are throughputs of code as these kernels are: independent operations one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.compiler.cpu.target import HOSTS, Target
from tilewright.isa.program_parts import WORK_KINDS, HostFacts, KernelWork


@dataclass(frozen=True, kw_only=True)
class HostModel:
    """The speed of a host.

    Attributes:
        name: name in `tilewright.compiler.cpu.target.HOSTS`, or "this machine".
        mhz: its clock.
        cycles: cycles of one operation, by kind of `WORK_KINDS`.
        byte_cycles: cycles per byte of a kernel's buffers.
        call_cycles: cycles to call a CPU step.
        turn_us: overhead of one NPU run, for the registers, waking up at its interrupt, and caches.
        source: source of the numbers.
    """

    name: str
    mhz: float
    cycles: Mapping[str, float] = field(repr=False)
    byte_cycles: float = 0.0
    call_cycles: float = 0.0
    turn_us: float = 0.0
    source: str = ""

    def seconds(self, work: Mapping[str, float], nbytes: int, threads: int = 1) -> float:
        """Time in seconds of one kernel whose work is shared by threads."""
        cycles = sum(self.cycles.get(kind, 0.0) * amount for kind, amount in work.items())
        return (cycles + self.byte_cycles * nbytes) / threads / self.mhz / 1e6

    def step_seconds(self, work: Mapping[str, float], nbytes: int) -> float:
        """Time in seconds of a CPU step by one thread, including its call."""
        return self.seconds(work, nbytes) + self.call_cycles / self.mhz / 1e6

    def kernel_seconds(self, kernel: KernelWork, threads: int = 1) -> float:
        return self.seconds(kernel.work, kernel.nbytes, threads)

    @property
    def turn_seconds(self) -> float:
        """Overhead in seconds of every NPU run, beside the NPU's cycles."""
        return self.turn_us / 1e6


THIS = "this machine"
_NOMINAL = "from the processor's manual, not measured"


def _kinds(*cycles: float) -> dict[str, float]:
    """Cycles by kind, in the order of `WORK_KINDS`: vector, shuffle, scalar, plain, divide, memory, gather, turns."""
    return dict(zip(WORK_KINDS, cycles, strict=True))


#: Models by name of the host. Operations of a vector are of the target's registers.
HOST_MODELS = {
    model.name: model
    for model in (
        # AVX-512. What `tilewright bench --host --write` keeps takes its place.
        HostModel(
            name=THIS, mhz=3000, cycles=_kinds(0.40, 0.82, 0.05, 0.042, 0.70, 0.45, 1.0, 0.03), byte_cycles=0.023,
            call_cycles=7000, source="measured on an EPYC of the fourth generation",
        ),
        # Three vector ports and two loads a cycle.
        HostModel(
            name="x86_64-linux", mhz=3000, cycles=_kinds(0.4, 0.9, 0.1, 0.1, 2.5, 0.5, 1.0, 0.1), byte_cycles=0.04,
            call_cycles=300, turn_us=5, source=_NOMINAL,
        ),
        # Cortex-A53 at 1.2 GHz: in order, two instructions a cycle, 128 bits of vectors a cycle. What LLVM puts into
        # vectors of the others' width is a quarter of it here.
        HostModel(
            name="aarch64-linux", mhz=1200, cycles=_kinds(1.0, 1.0, 0.5, 0.4, 18, 1.0, 2.0, 1.0), byte_cycles=0.25,
            call_cycles=500, turn_us=15, source=_NOMINAL,
        ),
        # Cortex-A9 at 650 MHz: 64 bits of vectors a cycle; float32 is scalar there and takes its turn in the pipeline.
        HostModel(
            name="armv7-linux", mhz=650, cycles=_kinds(2.0, 2.0, 0.8, 0.8, 15, 1.5, 3.0, 1.0), byte_cycles=0.5,
            call_cycles=500, turn_us=20, source=_NOMINAL,
        ),
        # An in-order core of 64 bits, one instruction a cycle.
        HostModel(
            name="riscv64-linux", mhz=600, cycles=_kinds(1.0, 1.0, 1.0, 1.0, 20, 1.5, 3.0, 2.0), byte_cycles=0.5,
            call_cycles=500, turn_us=20, source=_NOMINAL,
        ),
        # The core of boards without a host, at their clock of 50 MHz; floats are computed by calls.
        HostModel(
            name="riscv32-none", mhz=50, cycles=_kinds(30, 5.0, 5.0, 5.0, 200, 6.0, 6.0, 5.0), byte_cycles=1.0,
            call_cycles=100, turn_us=2, source=_NOMINAL,
        ),
    )
}  # fmt: skip


def host_model(facts: HostFacts, calibrated: HostModel | None = None) -> HostModel:
    """The model of the machine that a program's kernels are compiled for.

    Args:
        calibrated: measured model of this machine.
    """
    for name, target in HOSTS.items():
        if target.triple == facts.triple and tuple(target.needed) == tuple(facts.features):
            return HOST_MODELS[name]
    return calibrated or HOST_MODELS[THIS]


def named_host_model(name: str | None) -> HostModel:
    """The model of a host by its name for `--host`, None for this machine. Raises `CompileError` for another name."""
    if name is None:
        return HOST_MODELS[THIS]
    Target.named(name)
    return HOST_MODELS[name]
