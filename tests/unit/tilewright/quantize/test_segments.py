"""A model in segments gives what it gives in one piece."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.unit.tilewright.quantize import networks
from tilewright.quantize import ranges
from tilewright.quantize.observe import run, session
from tilewright.quantize.recipe import Recipe
from tilewright.quantize.segments import Segments
from tilewright.quantize.switches import Switchboard


def two_outputs() -> onnx.ModelProto:
    """A network with a second output near its begin, and a skip over most of it."""
    model = networks.deep(depth=3)
    model.graph.node.append(helper.make_node("Add", ["h0", "h2"], ["z"], "skip"))
    for name in ("h0", "z"):
        model.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 16, 12, 12]))
    return model


@pytest.mark.parametrize("count", [1, 3, 50])
def test_any_switches_in_any_number_of_segments(count: int) -> None:
    model, (first, second) = two_outputs(), networks.samples(2)
    board = Switchboard(Recipe(model, ranges.find(model, [first], "minmax")))  # type: ignore[arg-type]
    found, whole = Segments(model, board.model, first, count), session(board.model)
    names = sorted(x.name for x in board.model.graph.input if x.name.startswith("switch:"))
    for number, sample in enumerate([first, second, first, second, first]):
        on = [] if number == 4 else [n for n in names if np.random.default_rng(number).random() < 0.2 * number]
        feeds = {name: np.array(name in on) for name in names}
        got, wanted = found.run(sample, feeds, on), run(whole, sample | feeds)
        assert list(got) == list(wanted) == ["y", "h0", "z"]
        for name, value in wanted.items():
            assert np.allclose(got[name], value, atol=0.02 * np.abs(value).max()), (number, name)
    found.close()
