"""Every kind of layer with random shapes and attributes, made by kernels, byte for byte against the numpy reference."""

import pytest

from tests.network.layer_cases import KINDS, make
from tests.reference import quantized_ops
from tests.unit.tilewright.kernel.generic import KERNELS, TAKEN
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS
from tilewright.runtime.executor import Executor
from tilewright.simulator.functional import FunctionalDevice

CONFIGS = [PRESETS[name] for name in ("base", "tiny", "wide", "large")]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_layer_bytes(kind: str, seed: int) -> None:
    graph, inputs = make(kind, 3000 + seed)
    expected = quantized_ops.run(graph, inputs)
    config, outputs = CONFIGS[seed % len(CONFIGS)], list(graph.outputs)
    TAKEN.clear()
    program = compile_graph(graph, config, CompileOptions(kernels=KERNELS))
    assert bool(TAKEN) == any(layer.op.startswith("kernel ") for layer in program.layers)
    got = Executor(program, FunctionalDevice(config)).run(inputs).outputs
    for name in outputs:
        differing = int((got[name] != expected[name]).sum())
        assert differing == 0, f"{kind} seed {3000 + seed} on {config.name}: {differing} of {name} differ by {TAKEN}"
