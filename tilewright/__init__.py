"""Tilewright: compile quantised models, run them on an NPU or a simulator of it, and check every byte.

>>> import tilewright as tw
>>> program = tw.compile("model.onnx", config="base")
>>> device = tw.Device("functional")
>>> outputs = device.run(program, {"input": image})
>>> report = tw.check("model.onnx", keep="all")
>>> print(tw.explain(program).cycles, tw.compare("small", "base", model="model.onnx").ratio)
>>> tw.quantize("float.onnx", "photos/").save("model.onnx")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilewright.common.errors import TilewrightError
from tilewright.errors import ConfigMismatchError, InputError, UntrustedError, UsageError
from tilewright.registry import public_names

if TYPE_CHECKING:
    from tilewright.api.compilation import compile, compile_program
    from tilewright.checking.model import check
    from tilewright.checking.report import CheckReport
    from tilewright.dynamic.model import DynamicModel
    from tilewright.export import export_c
    from tilewright.isa.config import NpuConfig
    from tilewright.isa.program import Program
    from tilewright.litert.library import litert_delegate
    from tilewright.measure.api import compare, explain
    from tilewright.measure.compare import Comparison
    from tilewright.measure.explain import Explanation
    from tilewright.onnxruntime.library import onnxruntime_library
    from tilewright.onnxruntime.session import onnxruntime_report, onnxruntime_session
    from tilewright.quantize import quantize
    from tilewright.runtime.devices import Device, Runner
    from tilewright.runtime.inputs import random_inputs
    from tilewright.store.files import load
    from tilewright.sweep.whole import sweep
    from tilewright.torch.pytorch import from_torch

#: Where each public name is, imported when it is asked for. Running a compiled program takes a quarter of a second to
#: import; the compiler, onnx and the reference runtimes would take another second.
_HOMES = {
    "CheckReport": "tilewright.checking.report",
    "Comparison": "tilewright.measure.compare",
    "Device": "tilewright.runtime.devices",
    "DynamicModel": "tilewright.dynamic.model",
    "Explanation": "tilewright.measure.explain",
    "NpuConfig": "tilewright.isa.config",
    "Program": "tilewright.isa.program",
    "Runner": "tilewright.runtime.devices",
    "check": "tilewright.checking.model",
    "compare": "tilewright.measure.api",
    "compile": "tilewright.api.compilation",
    "compile_program": "tilewright.api.compilation",
    "explain": "tilewright.measure.api",
    "export_c": "tilewright.export",
    "load": "tilewright.store.files",
    "random_inputs": "tilewright.runtime.inputs",
    **public_names(),
}
#: Packages that are called by their names; see `tilewright.api.callable_module`.
_PACKAGES = ("quantize", "sweep")

__all__ = [
    "CheckReport",
    "Comparison",
    "ConfigMismatchError",
    "Device",
    "DynamicModel",
    "Explanation",
    "InputError",
    "NpuConfig",
    "Program",
    "Runner",
    "TilewrightError",
    "UntrustedError",
    "UsageError",
    "check",
    "compare",
    "compile",
    "compile_program",
    "explain",
    "export_c",
    "from_torch",
    "litert_delegate",
    "load",
    "onnxruntime_library",
    "onnxruntime_report",
    "onnxruntime_session",
    "quantize",
    "random_inputs",
    "sweep",
]


if not TYPE_CHECKING:  # a type checker knows all names from above, and that there are no others

    def __getattr__(name: str) -> Any:
        """A public name of `_HOMES` or `_PACKAGES`."""
        if name in _PACKAGES:
            return _package(name)
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(_imported(_HOMES[name]), name)
        return found


def _package(name: str) -> Any:
    """A package of this one; see `_imported`."""
    return _imported(f"{__name__}.{name}")


def _imported(module: str) -> Any:
    """A module. Raises ModuleNotFoundError, with the command that brings it, where it needs one that is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        from tilewright.common.installation import told

        extra = "sweep" if module == f"{__name__}.sweep" else ""
        raise (told(error, extra) or error) from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_PACKAGES})
