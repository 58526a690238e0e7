"""Networks on machines without window and tables: the bytes of onnxruntime, by the instructions that are left."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import tilewright as tw
from isa.config import PRESETS
from isa.instructions import Memory
from simulator.functional import FunctionalDevice
from tilewright import zoo
from tilewright.runtime import Executor

#: Depthwise layers; depthwise layers, gates and tables.
NETWORKS = ("ds_cnn", "efficientnet")


@pytest.mark.network
@pytest.mark.parametrize("depthwise", [0, 1])
@pytest.mark.parametrize("lut_tables", [0, 4])
@pytest.mark.parametrize("network", NETWORKS)
def test_networks_on_reduced_machines(network: str, lut_tables: int, depthwise: int) -> None:
    model = zoo.build_quantized(network, **zoo.ZOO[network].small)
    config = PRESETS["small"].with_(name="reduced", lut_tables=lut_tables, depthwise=depthwise)
    program = tw.compile(model, config)
    ops = program.ops()
    assert any(o.name == "DEPTHWISE" for o in ops) == bool(depthwise)
    tables = any(o["lut"] if o.name == "VECTOR" else o.name == "LOAD" and o["target"] == Memory.LUT for o in ops)
    assert tables == (lut_tables > 0 and network == "efficientnet")
    inputs = zoo.random_inputs(model, 1, seed=3)[0]
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, inputs)
    (got,) = Executor(program, FunctionalDevice(config)).run(inputs).outputs.values()
    assert np.array_equal(got, expected), np.abs(got - expected).max()
