"""QConcat on the NPU: the concatenations that it takes or refuses."""

from __future__ import annotations

import pytest

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.npu.ops import unsupported_reason
from tilewright.isa.config import PRESETS


@pytest.mark.parametrize(
    ("shape", "axis", "channels"),
    [
        ((3, 1), 1, True), ((1, 4), 0, False), ((2, 3, 1), 2, True), ((2, 1, 4), 1, True), ((1, 3, 4), 0, False),
        ((2, 1, 3, 4), 1, True), ((2, 3, 1, 4), 2, False), ((2, 3, 4, 1), 3, False), ((1, 1, 5, 6, 1), 4, True),
        ((1, 1, 5, 1, 6), 3, False),
    ],
)  # fmt: skip
def test_many_pieces_that_change_their_lanes(shape: tuple[int, ...], axis: int, channels: bool) -> None:
    """The NPU takes 64 pieces that change their lanes, but not 66: each takes a layer or more.

    Rows may turn out to be planes of one line, so that their axis 1 counts as well.
    """
    for count in (64, 66):
        net = Net()
        graph = net.done(net.concat(axis, *(net.input(shape, "int8") for _ in range(count))))
        reason = unsupported_reason(graph, graph.nodes[-1], PRESETS["base"])
        many = f"{count} pieces of channels change their lanes; up to 64"
        assert reason == (many if channels and count > 64 else None)
