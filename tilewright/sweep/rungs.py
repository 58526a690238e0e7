"""Cycles of a network on a machine for less than a compilation costs: a bound, an estimate, a schedule without search.

Nothing is packed, emitted for memory or compiled for the CPU. Each rung says more than the one before, for more time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.npu.emit.plan import TilePlans
from tilewright.compiler.npu.schedule.problem import StepProblem
from tilewright.compiler.npu.schedule.search import make_schedule, policies
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.stages.emission import layer_bounds, with_bound
from tilewright.compiler.stages.order import LayerStep, NodeStep, order_steps, reads_elsewhere
from tilewright.compiler.stages.partition import partition
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Layer
from tilewright.runtime.cost import measure
from tilewright.simulator.bound import bound_cycles

#: From the cheapest on.
RUNGS = ("bound", "estimate", "schedule")
#: Parts that the search leaves of the cycles in which the busier of array and vector unit works, and of those in which
#: both wait in a schedule without search. `python -m calibration.searches.margins` measures how close programs come.
_WORK, _WAITS = 0.85, 0.4
MARGINS = (_WORK, _WAITS)
#: Part of a program's cycles that the search leaves at least where scratchpads are smaller. The larger ones run what it
#: finds there as fast, so that only luck of the search makes it less than all.
LUCK = 0.93


def evaluate(graph: Graph, config: NpuConfig, options: CompileOptions, rung: str) -> dict[str, Any]:
    """Returns the `cycles` and `dram_bytes` that a graph (changed in place) takes at least, by a rung; and `on_cpu`,
    which is equal for machines that leave the same part of it to the CPU.

    The bound and the bytes are proven for every schedule. The other two rest on what the search was seen to save.
    """
    parts = partition(graph, config, options)
    steps = order_steps(graph, parts, options)
    bounds = layer_bounds(graph, config, steps, parts.read_behind)
    layers = [layer for step in steps if isinstance(step, LayerStep) for layer in step.tasks]
    rows = [with_bound(Layer(layer.name, layer.op, "npu"), bounds[id(layer)]) for layer in layers]

    def problems() -> Iterator[StepProblem]:
        elsewhere, plans = reads_elsewhere(steps), TilePlans(options.memory)
        cost = functools.partial(measure, timing=options.memory)
        for number, step in enumerate(steps):
            if isinstance(step, LayerStep):
                outside = elsewhere[number] | {name for layer in step.tasks for name in layer.extra_reads}
                yield StepProblem(config, step.tasks, outside, cost, plans)

    cycles = 0.0
    if rung == "bound":
        cycles = bound_cycles(rows, config, options.memory)
    else:
        for problem in problems():
            # Every layer alone, without what moves bytes: fusion saves only bytes.
            work, _ = problem.busy_cycles(make_schedule(problem, policies(0)[0]))
            cycles += _WORK * work
            if rung == "schedule":
                whole = problem.cost(make_schedule(problem, policies(options.effort)[0]))
                cycles += _WAITS * max(0, whole - work)
    left = [node for step in steps if isinstance(step, NodeStep) for node in step.tasks]
    return {
        "cycles": math.floor(cycles),
        "dram_bytes": sum(row.minimum_bytes for row in rows),
        "on_cpu": f"{len(left)} nodes, {sum(map(graph.macs, left))} MACs",
    }
