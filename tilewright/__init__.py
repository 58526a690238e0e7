"""Tilewright: compile quantised models, run them on an NPU or a simulator of it, and check every byte.

>>> import tilewright as tw
>>> program = tw.compile("model.onnx", config="base")
>>> device = tw.Device("functional")
>>> outputs = device.run(program, {"input": image})
>>> report = tw.check("model.onnx", keep="all")
"""

from typing import TYPE_CHECKING, Any

from common.errors import TilewrightError
from isa.config import NpuConfig
from isa.program import Program
from tilewright.api.compilation import compile, compile_program, load
from tilewright.check.model import CheckReport, check
from tilewright.errors import ConfigMismatchError, InputError, UsageError
from tilewright.export import export_c
from tilewright.runtime.devices import Device, Runner
from tilewright.runtime.inputs import random_inputs

if TYPE_CHECKING:
    from tilewright.dynamic import DynamicModel

__all__ = [
    "CheckReport",
    "ConfigMismatchError",
    "Device",
    "DynamicModel",
    "InputError",
    "NpuConfig",
    "Program",
    "Runner",
    "TilewrightError",
    "UsageError",
    "check",
    "compile",
    "compile_program",
    "export_c",
    "load",
    "random_inputs",
]


def __getattr__(name: str) -> Any:
    """Models compiled while they run need onnx; programs do not."""
    if name == "DynamicModel":
        from tilewright.dynamic import DynamicModel

        return DynamicModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
