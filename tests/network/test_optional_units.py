"""Networks on machines without window, tables or a queue of VECTOR's own: the bytes of onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tilewright as tw
from tests.common import onnx_models
from tilewright import zoo
from tilewright.isa.config import PRESETS
from tilewright.isa.encoding import Op
from tilewright.isa.fields import HEADER
from tilewright.isa.instructions import Engine, Memory
from tilewright.runtime.executor import Executor
from tilewright.simulator.cycle import CycleDevice
from tilewright.simulator.functional import FunctionalDevice

#: Depthwise layers; depthwise layers, gates and tables.
NETWORKS = ("ds_cnn", "efficientnet")


@pytest.mark.network
@pytest.mark.parametrize("depthwise", [0, 1])
@pytest.mark.parametrize("lut_tables", [0, 4])
@pytest.mark.parametrize("network", ["ds_cnn", pytest.param("efficientnet", marks=pytest.mark.long)])
def test_networks_on_reduced_machines(network: str, lut_tables: int, depthwise: int) -> None:
    model = zoo.build_quantized(network, **zoo.ZOO[network].small)
    config = PRESETS["base"].with_(name="reduced", row_unit=0, lut_tables=lut_tables, depthwise=depthwise)
    program = tw.compile(model, config)
    ops = program.ops()
    assert any(o.name == "DEPTHWISE" for o in ops) == bool(depthwise)
    tables = any(o["lut"] if o.name == "VECTOR" else o.name == "LOAD" and o["target"] == Memory.LUT for o in ops)
    assert tables == (lut_tables > 0 and network == "efficientnet")
    inputs = zoo.random_inputs(model, 1, seed=3)[0]
    (got,) = Executor(program, FunctionalDevice(config)).run(inputs).outputs.values()
    check(model, inputs, got)


@pytest.mark.network
@pytest.mark.parametrize("network", [*NETWORKS, "vww"])
def test_networks_on_one_queue_for_gemm_and_vector(network: str) -> None:
    """The same work where no tiles are measured, slower: a VECTOR that waits holds back GEMMs behind it. Which loads
    go ahead differs: a queue without room holds back what is behind it."""
    model = zoo.build_quantized(network, **zoo.ZOO[network].small)
    inputs = zoo.random_inputs(model, 1, seed=3)[0]
    cycles, instructions, loads = [], [], []
    for own in (1, 0):
        config = PRESETS["small"].with_(name="queues", vector_queue=own)
        program = tw.compile(model, config, effort=0)
        result = Executor(program, CycleDevice(config)).run(inputs)
        (got,) = result.outputs.values()
        check(model, inputs, got)
        cycles.append(result.counters.cycles)
        engines = (Engine.GEMM, Engine.VECTOR, Engine.STORE)
        runs = [o for o in program.ops() if not o.name.endswith("_SYNC")]
        instructions.append({e: [_without_semaphores(o) for o in runs if o.instruction.engine == e] for e in engines})
        loads.append(sorted(_without_semaphores(o) for o in runs if o.name == "LOAD"))
    assert instructions[0] == instructions[1]
    assert loads[0] == loads[1]
    assert cycles[0] < cycles[1] < 1.1 * cycles[0]


def _without_semaphores(o: Op) -> tuple[str, list[tuple[str, int]]]:
    semaphores = {field.name for field in HEADER[1:]}
    return o.name, sorted((n, v) for n, v in o.values.items() if v and n not in semaphores)


@pytest.mark.network
@pytest.mark.parametrize("network", ["ds_cnn", pytest.param("efficientnet", marks=pytest.mark.long)])
def test_networks_with_fewer_lanes(network: str) -> None:
    """The same bytes, and the more cycles the more passes a row takes (with several, the array makes means: 0.1 %)."""
    model = zoo.build_quantized(network, **zoo.ZOO[network].small)
    inputs = zoo.random_inputs(model, 1, seed=3)[0]
    cycles = []
    for passes in (1, 2, 4):
        config = PRESETS["base"].with_(name="passes", row_unit=0, vector_passes=passes)
        result = Executor(tw.compile(model, config), CycleDevice(config)).run(inputs)
        check(model, inputs, *result.outputs.values())
        cycles.append(result.counters.cycles)
    assert cycles[0] < 1.002 * cycles[1] and cycles[1] < cycles[2] < 3 * cycles[0]


@pytest.mark.network
def test_networks_where_two_outputs_share_products() -> None:
    """The same bytes. Where there are twice as many outputs as inputs it is the same program in the same cycles; else
    DEPTHWISE has half the lanes."""
    model = zoo.build_quantized("ds_cnn", **zoo.ZOO["ds_cnn"].small)
    inputs = zoo.random_inputs(model, 1, seed=3)[0]
    for block_out in (8, 16):
        cycles, instructions = [], []
        for packed in (0, 1):
            config = PRESETS["small"].with_(name="packed", block_out=block_out, packed_products=packed)
            program = tw.compile(model, config)
            result = Executor(program, CycleDevice(config)).run(inputs)
            check(model, inputs, *result.outputs.values())
            cycles.append(result.counters.cycles)
            instructions.append([(o.name, o.values) for o in program.ops()])
        assert (instructions[0] == instructions[1]) == (cycles[0] == cycles[1]) == (block_out == 16)
        assert cycles[0] <= cycles[1] < 2 * cycles[0]


def check(model: onnx.ModelProto, inputs: dict[str, np.ndarray], got: np.ndarray) -> None:
    """Raises `AssertionError` unless `got` is onnxruntime's output."""
    (expected,) = onnx_models.run(model, inputs).values()
    assert np.array_equal(got, expected), np.abs(got - expected).max()
