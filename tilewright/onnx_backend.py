"""ONNX's backend interface over the compiler.

    import tilewright.onnx_backend as backend

    outputs = backend.run_model(model, [x])  # compile and run once
    rep = backend.prepare(model, "NPU")  # compile once, run often
    outputs = rep.run([x])

    tests = onnx.backend.test.BackendTest(backend, __name__)  # ONNX's own test suite

Device "CPU" compiles every node to native code of this machine; "NPU" gives quantised parts to the accelerator, here
the functional simulator. Shapes the model leaves open, and values that decide shapes, are taken from the inputs of
`run`; there is one compiled program for each combination, kept as long as the representation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from compiler.errors import UnsupportedError
from compiler.importer import OPSET, import_onnx
from compiler.pipeline import compile_graph
from isa.config import NpuConfig
from isa.program import Program
from tilewright.devices import Device
from tilewright.errors import InputError, UsageError

DEVICES = ("CPU", "NPU")


class TilewrightRep(BackendRep):
    """A model prepared to run.

    Args:
        model: left unchanged.
        device: one of `DEVICES`.
        config: preset name or configuration of the NPU.
        constants: values of inputs fixed at compile time, by name; those are no inputs of `run`.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        device: str = "CPU",
        config: str | NpuConfig = "base",
        constants: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.device = model, device
        self.config = config if isinstance(config, NpuConfig) else NpuConfig.load(config)
        self.constants = dict(constants or {})
        initialised = {t.name for t in model.graph.initializer}
        self.all_inputs = [i.name for i in model.graph.input if i.name not in self.constants]
        self.inputs = [n for n in self.all_inputs if n not in initialised]
        self.outputs = [o.name for o in model.graph.output]
        self._programs: dict[Any, Program] = {}
        self._runner = Device("functional")

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Outputs in the model's order, as a named tuple.

        Args:
            inputs: list in the order of the model's inputs (those with an initialiser may be left out), dict by name,
                or a bare array for a single input.

        Raises:
            InputError: inputs do not fit. CompileError: the model cannot be compiled for them.
        """
        feeds = self._feeds(inputs)
        program = self._program(feeds)
        taken = {t.name for t in program.inputs}
        found = self._runner.run(program, {n: v for n, v in feeds.items() if n in taken})
        return namedtupledict("Outputs", self.outputs)(*(found[n] for n in self.outputs))

    def _feeds(self, inputs: Any) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            return dict(inputs)
        values = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        names = next((names for names in (self.inputs, self.all_inputs) if len(names) == len(values)), None)
        if names is None:
            raise InputError(f"{len(values)} inputs are given; the model takes {', '.join(self.inputs) or 'none'}")
        return dict(zip(names, map(np.asarray, values)))

    def _program(self, feeds: Mapping[str, Any]) -> Program:
        """The program for these shapes; where values decide shapes, for those values."""
        shapes = tuple((n, v.shape) for n, v in feeds.items())
        if shapes not in self._programs:
            try:
                self._programs[shapes] = self._compile(feeds, {})
            except UnsupportedError:
                values = {n: v for n, v in feeds.items() if v.dtype.kind in "iub" and v.ndim <= 1}
                key = shapes, tuple((n, v.tobytes()) for n, v in values.items())
                if key not in self._programs:
                    self._programs[key] = self._compile(feeds, values)
                return self._programs[key]
        return self._programs[shapes]

    def _compile(self, feeds: Mapping[str, Any], values: Mapping[str, Any]) -> Program:
        model = self.model
        overridden = {t.name for t in model.graph.initializer} & set(feeds)
        if overridden:
            model = onnx.ModelProto()
            model.CopyFrom(self.model)
            kept = [t for t in model.graph.initializer if t.name not in overridden]
            del model.graph.initializer[:]
            model.graph.initializer.extend(kept)
        shapes = {n: v.shape for n, v in feeds.items() if n not in values}
        graph = import_onnx(model, shapes, {**self.constants, **values})
        return compile_graph(graph, self.config, cpu_only=self.device == "CPU")


class TilewrightBackend(Backend):
    """`onnx.backend.base.Backend` on Tilewright; the functions of this module are its methods."""

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
            kwargs: `config` and `constants`, see `TilewrightRep`; others are ignored, as other backends do.

        Raises:
            UsageError: unknown device.
        """
        if not cls.supports_device(device):
            raise UsageError(f"unknown device {device!r}; available: {', '.join(DEVICES)}")
        options = {k: v for k, v in kwargs.items() if k in ("config", "constants")}
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


is_compatible = TilewrightBackend.is_compatible
prepare = TilewrightBackend.prepare
run = TilewrightBackend.run_model
run_model = TilewrightBackend.run_model
run_node = TilewrightBackend.run_node
supports_device = TilewrightBackend.supports_device
