"""`TilewrightBackend`: ONNX's backend interface over the compiler.

Device "CPU" compiles every node to native code of this machine; "NPU" gives quantised parts to the accelerator, here
the functional simulator. Shapes the model leaves open, and values that decide shapes, are taken from the inputs of
`run`: such a model is compiled while it runs, in parts, once for every combination (docs/dynamic-models.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from tilewright.compiler.errors import OpenShapeError, StagingError
from tilewright.compiler.importer.onnx import OPSET, import_onnx
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.dynamic.model import DynamicModel
from tilewright.errors import InputError, UsageError
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.runtime.devices import Device

DEVICES = ("CPU", "NPU")


class TilewrightRep(BackendRep):
    """A model prepared to run: one program where all shapes are known, else a `DynamicModel`.

    Args:
        model: left unchanged.
        device: one of `DEVICES`.
        config: preset name or configuration of the NPU.
        constants: values of inputs fixed at compile time, by name; those are no inputs of `run`.
        shapes: of inputs, where the model leaves them open.
        ahead: compile everything now; refuse models that would have to be compiled while they run.

    Raises:
        CompileError: the model is damaged, or cannot be compiled.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        device: str = "CPU",
        config: str | NpuConfig = "base",
        constants: Mapping[str, Any] | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        ahead: bool = False,
    ) -> None:
        self._source = model
        chosen = config if isinstance(config, NpuConfig) else NpuConfig.load(config)
        self._options: dict[str, Any] = {
            "device": device,
            "config": chosen,
            "constants": dict(constants or {}),
            "shapes": shapes,
        }
        self._initialised = {t.name for t in model.graph.initializer}
        self._inputs = [i.name for i in model.graph.input if i.name not in self._options["constants"]]
        self._outputs = [o.name for o in model.graph.output]
        self._overridden: TilewrightRep | None = None
        self._runner = Device("functional")
        cpu_only = device == "CPU"
        self.model: Program | DynamicModel
        try:
            graph = import_onnx(model, dict(shapes) if shapes else None, self._options["constants"])
            self.model = compile_graph(graph, chosen, CompileOptions(cpu_only=cpu_only))
        except (OpenShapeError, StagingError):
            if ahead:
                raise
            self.model = DynamicModel(
                model, chosen, shapes, constants=self._options["constants"], cpu_only=cpu_only, cache=False
            )

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Outputs in the model's order, as a named tuple.

        Args:
            inputs: list in the order of the model's inputs (those with an initialiser may be left out), dict by name,
                or a bare array for a single input. Sequences are lists, optionals without a value None.

        Raises:
            InputError: inputs do not fit. CompileError: a part of a dynamic model cannot be compiled.
        """
        feeds = self._feeds(inputs)
        if self._initialised & set(feeds):
            return self._without_initialisers(set(feeds)).run(feeds)
        if isinstance(self.model, Program):
            found = self._runner.run(self.model, {n: np.asarray(v) for n, v in feeds.items()})
        else:
            found = self.model.run(self._runner, feeds).outputs
        outputs: tuple[Any, ...] = namedtupledict("Outputs", self._outputs)(*(found[n] for n in self._outputs))
        return outputs

    def _feeds(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            return dict(inputs)
        values = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        needed = [n for n in self._inputs if n not in self._initialised]
        names = next((names for names in (needed, self._inputs) if len(names) == len(values)), None)
        if names is None:
            raise InputError(f"{len(values)} inputs are given; the model takes {', '.join(needed) or 'none'}")
        return dict(zip(names, values))

    def _without_initialisers(self, names: set[str]) -> TilewrightRep:
        """Returns the model prepared with the initialisers of these names as inputs."""
        if self._overridden is None or names & self._overridden._initialised:
            model = onnx.ModelProto()
            model.CopyFrom(self._source)
            kept = [t for t in model.graph.initializer if t.name not in names]
            del model.graph.initializer[:]
            model.graph.initializer.extend(kept)
            self._overridden = TilewrightRep(model, **self._options)
        return self._overridden


class TilewrightBackend(Backend):
    """`onnx.backend.base.Backend` on Tilewright; the functions of the package are its methods."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the device exists; what cannot be compiled is reported by `prepare` and `run`."""
        return cls.supports_device(device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` is "CPU" or "NPU", with or without a number (":0")."""
        return device.partition(":")[0] in DEVICES

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> TilewrightRep:
        """A model ready to run.

        Args:
            kwargs: `config`, `constants`, `shapes`, `ahead`: see `TilewrightRep`. Others are ignored, as others do.

        Raises:
            UsageError: unknown device. CompileError: the model cannot be compiled.
        """
        if not cls.supports_device(device):
            raise UsageError(f"unknown device {device!r}; available: {', '.join(DEVICES)}")
        options = {k: v for k, v in kwargs.items() if k in ("config", "constants", "shapes", "ahead")}
        return TilewrightRep(model, device.partition(":")[0], **options)

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Outputs of one run."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Outputs of a single node.

        Args:
            inputs: as for `run`; None for optional inputs that are left out.
            outputs_info: not needed: types and shapes are inferred.
            kwargs: `opset_version` (by default the newest), and those of `prepare`.
        """
        version = int(kwargs.pop("opset_version", OPSET))
        values = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        feeds = {n: np.asarray(v) for n, v in zip(node.input, values) if n and v is not None}
        info = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in feeds.items()
        ]
        outputs = [onnx.ValueInfoProto(name=n) for n in node.output if n]
        graph = helper.make_graph([node], node.op_type, info, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])
        return cls.run_model(model, feeds, device, **kwargs)
