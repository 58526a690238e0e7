"""NPU steps of small networks, for tests of the schedule search."""

from __future__ import annotations

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.npu.schedule.problem import StepProblem
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import NpuConfig
from tilewright.runtime.cost import measure


def step_of(net: Net, config: NpuConfig) -> StepProblem:
    """Returns the only NPU step of a network, measured in cycles."""
    found: list[StepProblem] = []
    compile_graph(net.graph, config, CompileOptions(), scheduler=found.append)
    (only,) = found
    return only.fresh().measured_by(measure)
