"""Emission of layers whose weights have 4 bits."""

import numpy as np
import pytest

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.instructions import Memory
from tilewright.isa.program import Program

TILES = 256 * 256 // (16 * 16)


def product(config: NpuConfig, least: int) -> Program:
    """Compiles a product whose weights, less their zero point of 3, are -8..7 but one of `least`."""
    net = Net()
    weights = net.constant((256, 256))
    values = np.random.default_rng(3).integers(-5, 11, (256, 256)).astype(np.int8)
    values[5, 7] = least + 3
    net.graph.tensor(weights).data = values
    net.graph.outputs.append(net.product(net.input((8, 256), np.int8), weights))
    return compile_graph(net.graph, config, CompileOptions())


@pytest.mark.parametrize("codes", [0, 16])
def test_weights_that_fit_are_packed_and_not_coded(codes: int) -> None:
    program = product(preset("base").with_(packed_weights=1, weight_codes=codes), -8)
    loads = [o for o in program.ops() if o.name in ("LOAD", "LOAD_PACKED") and o["target"] == Memory.WGT]
    assert {o.name for o in loads} == {"LOAD_PACKED"} and sum(o["count"] for o in loads) == TILES
    assert not any(o.name == "LOAD_CODED" for o in program.ops())
    assert len(product(preset("base"), -8).constants) - len(program.constants) == TILES * 128


def test_one_weight_that_does_not_fit_leaves_its_layer_as_it_is() -> None:
    plain, packed = (product(preset("base").with_(packed_weights=value), -9) for value in (0, 1))
    assert [o.encode() for o in plain.ops()] == [o.encode() for o in packed.ops()]
    assert plain.constants == packed.constants
