"""Emission of layers whose weights are coded."""

import numpy as np

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.codes import CodeMode
from tilewright.isa.config import preset
from tilewright.isa.instructions import Memory


def test_what_is_coded_is_loaded_once() -> None:
    """Weights of a single value are loaded coded on a machine that can decode them, plain on one that cannot."""
    net = Net()
    net.graph.outputs.append(net.product(net.input((8, 256), np.int8), 256))
    tiles = 256 * 256 // (16 * 16)
    for codes in (0, 16):
        config = preset("base").with_(weight_codes=codes)
        ops = compile_graph(net.graph, config, CompileOptions(small_weights=True)).ops()
        plain = sum(o["count"] for o in ops if o.name == "LOAD" and o["target"] == Memory.WGT)
        coded = sum(o["count"] for o in ops if o.name == "LOAD_CODED" and o["mode"] == CodeMode.WEIGHTS)
        assert (plain, coded) == ((0, tiles) if codes else (tiles, 0))
