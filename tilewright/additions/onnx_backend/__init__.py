"""ONNX's backend interface over the compiler, as a module that ONNX's tools take.

import tilewright.onnx_backend as backend

outputs = backend.run_model(model, [x])  # compiles and runs once
rep = backend.prepare(model, "NPU")  # compiles once, runs often
outputs = rep.run([x])

tests = onnx.backend.test.BackendTest(backend, __name__)  # ONNX's own test suite
"""

from tilewright.onnx_backend.backend import DEVICES, TilewrightBackend, TilewrightRep

__all__ = [
    "DEVICES",
    "TilewrightBackend",
    "TilewrightRep",
    "is_compatible",
    "prepare",
    "run",
    "run_model",
    "run_node",
    "supports_device",
]

is_compatible = TilewrightBackend.is_compatible
prepare = TilewrightBackend.prepare
run = TilewrightBackend.run_model
run_model = TilewrightBackend.run_model
run_node = TilewrightBackend.run_node
supports_device = TilewrightBackend.supports_device
