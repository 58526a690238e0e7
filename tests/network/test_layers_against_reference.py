"""Every NPU layer kind with random shapes and attributes, on several machines, byte for byte against the numpy
reference of the quantised operations (itself checked against onnxruntime)."""

from __future__ import annotations

import pytest

from tests.network.layer_cases import KINDS, make
from tests.reference import quantized_ops
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.runtime.executor import Executor
from tilewright.simulator.functional import FunctionalDevice

BASE = PRESETS["base"]
MACHINES: list[NpuConfig] = [
    *PRESETS.values(),
    BASE.with_(name="wide", block_in=8, block_out=16, act_rows=16384),
    BASE.with_(name="narrow", block_in=16, block_out=8, acc_rows=2048, wgt_tiles=768),
    BASE.with_(name="half", packed_products=1, act_rows=1024, wgt_tiles=192, acc_rows=256, prm_rows=32),
    BASE.with_(name="no_units", depthwise=0, lut_tables=0, row_unit=0),
]
#: What runs on the CPU where a machine has no results of 16 bits runs on the NPU here.
CONFIGS = [config.with_(wide_results=1) for config in MACHINES]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_layer_bytes(kind: str, seed: int) -> None:
    graph, inputs = make(kind, 1000 + seed)
    expected = quantized_ops.run(graph, inputs)
    config = CONFIGS[seed % len(CONFIGS)]
    outputs = list(graph.outputs)
    program = compile_graph(graph, config, CompileOptions(keep="all" if seed % 3 == 0 else "outputs"))
    got = Executor(program, FunctionalDevice(config)).run(inputs).outputs
    for name in outputs:
        differing = int((got[name] != expected[name]).sum())
        assert differing == 0, f"{kind} seed {1000 + seed} on {config.name}: {differing} elements of {name} differ"
