"""Emission of layers whose weights have 4 bits."""

import numpy as np
import pytest

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import preset
from tilewright.isa.instructions import Memory

TILES = 256 * 256 // (16 * 16)


@pytest.mark.parametrize("codes", [0, 16])
def test_weights_that_fit_are_packed_and_not_coded(codes: int) -> None:
    net = Net()
    c = net.constant((256, 256))
    net.graph.tensor(c).data[:] = np.random.default_rng(3).integers(-8, 8, (256, 256))
    net.graph.outputs.append(net.product(net.input((8, 256), np.int8), c))
    program = compile_graph(net.graph, preset("base").with_(packed_weights=1, weight_codes=codes), CompileOptions())
    loads = [o for o in program.ops() if o.name in ("LOAD", "LOAD_PACKED") and o["target"] == Memory.WGT]
    assert {o.name for o in loads} == {"LOAD_PACKED"} and sum(o["count"] for o in loads) == TILES
    assert not any(o.name == "LOAD_CODED" for o in program.ops())
    plain = compile_graph(net.graph, preset("base"), CompileOptions())
    assert len(plain.constants) - len(program.constants) == TILES * 128


def test_one_weight_that_does_not_fit_leaves_its_layer_as_it_is() -> None:
    net = Net()
    c = net.constant((256, 256))
    net.graph.tensor(c).data[5, 7] = -9
    net.graph.outputs.append(net.product(net.input((8, 256), np.int8), c))
    images = {
        packed: compile_graph(net.graph, preset("base").with_(packed_weights=packed), CompileOptions())
        for packed in (0, 1)
    }
    assert [o.encode() for o in images[0].ops()] == [o.encode() for o in images[1].ops()]
    assert images[0].constants == images[1].constants
