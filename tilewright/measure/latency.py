"""Latency of an inference from end to end: the NPU's cycles, and between them CPU steps and border conversions.

NPU and CPU take turns: the runtime waits for each before it starts the next, so times add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tilewright.compiler.cpu.cost import HostModel, host_model
from tilewright.isa.program import CpuStep, KernelWork, NpuStep, Program
from tilewright.measure.clock import Clock, show
from tilewright.measure.host_models import calibrated


@dataclass(frozen=True)
class Latency:
    """The parts of an inference's latency, as far as they are known.

    Attributes:
        cycles: of the NPU.
        clock: that turns them into time; None where none is known.
        host: the model of the machine that the kernels are for.
        kernels: of the CPU, with seconds of each by the model.
        calls: CPU steps.
        turns: runs of the NPU.
        crossings: how often tensors go from one to the other between the first and the last step.
    """

    cycles: int
    clock: Clock | None
    host: HostModel
    kernels: list[tuple[KernelWork, float]]
    calls: int
    turns: int
    crossings: int

    @property
    def npu_seconds(self) -> float | None:
        return self.cycles / self.clock.mhz / 1e6 if self.clock else None

    @property
    def cpu_seconds(self) -> float:
        """Kernels, and calling their steps."""
        return sum(s for _, s in self.kernels) + self.calls * self.host.call_cycles / self.host.mhz / 1e6

    @property
    def border_seconds(self) -> float:
        """Seconds to start the NPU and to wait for its end."""
        return self.turns * self.host.turn_seconds

    @property
    def seconds(self) -> float | None:
        """Seconds of an inference, from end to end."""
        npu = self.npu_seconds
        return None if npu is None else npu + self.cpu_seconds + self.border_seconds

    @property
    def by_ops(self) -> dict[str, float]:
        """Seconds of the kernels by what they compute, the longest first."""
        found: dict[str, float] = {}
        for kernel, seconds in self.kernels:
            found[kernel.op] = found.get(kernel.op, 0.0) + seconds
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def to_dict(self) -> dict[str, Any]:
        ms = lambda seconds: None if seconds is None else seconds * 1e3
        return {
            "milliseconds": ms(self.seconds),
            "npu_cycles": self.cycles,
            "npu_milliseconds": ms(self.npu_seconds),
            "cpu_milliseconds": ms(self.cpu_seconds),
            "cpu_milliseconds_by_ops": {ops: seconds * 1e3 for ops, seconds in self.by_ops.items()},
            "border_milliseconds": ms(self.border_seconds),
            "border_crossings": self.crossings,
            "npu_turns": self.turns,
            "clock_mhz": self.clock.mhz if self.clock else None,
            "host": self.host.name,
            "host_mhz": self.host.mhz,
            "host_source": self.host.source,
        }

    def sentence(self) -> str:
        """The headline, for people."""
        crossings = f"{self.crossings} border crossing{'' if self.crossings == 1 else 's'}"
        host = f"{self.host.name} at {self.host.mhz:g} MHz"
        cpu = f"CPU about {show(1e3 * self.cpu_seconds)} ms ({host})" if self.calls else "nothing on the CPU"
        if self.border_seconds:
            cpu += f", starting the NPU about {show(1e3 * self.border_seconds)} ms"
        if self.seconds is None or self.clock is None or self.npu_seconds is None:
            return f"latency: NPU {self.cycles:,} cycles (--clock makes time of them), {cpu}, {crossings}"
        clock = f"{self.clock.mhz:g} MHz, {self.clock.source}"
        rate = 1 / self.seconds if self.seconds else 0.0
        return (
            f"latency about {show(1e3 * self.seconds)} ms, {rate:,.{0 if rate >= 100 else 1}f} inferences/s: "
            f"NPU {show(1e3 * self.npu_seconds)} ms "
            f"({self.cycles:,} cycles at {clock}), {cpu}, {crossings}"
        )


def latency(programs: Sequence[Program], cycles: int, clock: Clock | None) -> Latency:
    """The latency of programs that run one after the other, with the NPU's cycles of all of them."""
    facts = next((p.host for p in programs if p.host.triple), programs[0].host)
    host = host_model(facts, calibrated())
    kernels = [(k, host.kernel_seconds(k, max(p.host.threads, 1))) for p in programs for k in p.host_work]
    steps = [step for p in programs for step in p.steps]
    crossings = sum(isinstance(a, NpuStep) != isinstance(b, NpuStep) for a, b in pairwise(steps))
    calls = sum(isinstance(step, CpuStep) for step in steps)
    return Latency(cycles, clock, host, kernels, calls, len(steps) - calls, crossings)
