"""Places of buffers over the whole of a small program."""

from __future__ import annotations

import itertools

import pytest

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.errors import CompileError
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.compiler.stages.memory import place_memory
from tilewright.compiler.stages.order import order_steps
from tilewright.compiler.stages.partition import Partition, partition
from tilewright.compiler.stages.schedule import schedule_steps
from tilewright.compiler.stages.segments import prepare_segments
from tilewright.isa.config import PRESETS

TINY = PRESETS["tiny"]


def three_layers() -> Net:
    net = Net()
    x = net.plane(4, 4)
    for _ in range(3):
        x = net.conv(x, 4)
    net.done(x)
    return net


@pytest.mark.parametrize("keep", ["outputs", "all"])
def test_buffers(keep: str) -> None:
    """Buffers that stay on the chip have no place in memory; with all tensors kept, none share one."""
    program = compile_graph(three_layers().graph, TINY, CompileOptions(keep=keep))
    arena = [buffer for buffer in program.buffers if buffer.space == "arena"]
    assert len(arena) == (4 if keep == "all" else 2)
    ends = [(buffer.offset, buffer.offset + buffer.nbytes) for buffer in sorted(arena, key=lambda b: b.offset)]
    if keep == "all":
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
    assert program.arena_bytes == max(end for _, end in ends)


def test_a_layer_without_a_buffer() -> None:
    net, options = three_layers(), CompileOptions(keep="all")

    def placed(parts: Partition) -> None:
        steps = order_steps(net.graph, parts, options)
        segments = prepare_segments(net.graph, parts, steps, options)
        place_memory(net.graph, parts, steps, schedule_steps(TINY, steps, options), segments, options)

    parts = partition(net.graph, TINY, options)
    placed(parts)
    del parts.buffers["QConv.1@c1"]
    with pytest.raises(CompileError, match=r"uses 'QConv.1@c1', which has no place"):
        placed(parts)
