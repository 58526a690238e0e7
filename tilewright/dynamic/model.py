"""`DynamicModel`: a model whose shapes are only known when it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from tilewright.common.shown import Shown, listed
from tilewright.compiler.importer.onnx.inputs import fixed_value
from tilewright.compiler.importer.onnx.loader import opset_of
from tilewright.compiler.options import CompileOptions
from tilewright.dynamic.body import Body, ModelRun
from tilewright.dynamic.programs import PartPrograms
from tilewright.dynamic.signature import check_values, loaded, signature_of
from tilewright.dynamic.values import Value
from tilewright.errors import UsageError
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.runtime.counters import add_counters
from tilewright.runtime.devices import Device, Runner
from tilewright.runtime.executor import RunResult


class DynamicModel(Shown):
    """An ONNX or TOSA model that is compiled while it runs, in parts, once for every combination of shapes.

    Made by `tilewright.compile` for models that cannot be one program: open dimensions, shapes that follow from values,
    loops and branches by run-time values, sequences, optionals, strings. Runs wherever programs run:
    `Device("functional").run(model, inputs)`, or simply `model(inputs)`.

    Args:
        model: file name, serialised model, MLIR text, or ModelProto (left unchanged).
        config: of the NPU.
        shapes: of inputs, where they shall be fixed.
        constants: values of inputs to fix now; those are no inputs any more.
        effort: of the schedule search, 0..3.
        cpu_only: leave the NPU out.
        memory: that schedules are made for, None for the default.
        cache: keep programs on disk.

    Attributes:
        inputs: signatures of the inputs.
        outputs: names of the outputs.
        constants: values fixed now, by input.
        compilations: programs compiled so far; those found on disk are not counted.
        ran: the programs of the last run, in order.

    Raises:
        CompileError: the model is damaged or invalid. What a part cannot compile is only found when it is reached.
    """

    def __init__(
        self,
        model: str | Path | bytes | onnx.ModelProto,
        config: NpuConfig | str | Path = "base",
        shapes: Mapping[str, Sequence[int]] | None = None,
        *,
        constants: Mapping[str, Any] | None = None,
        effort: int = 1,
        cpu_only: bool = False,
        memory: MemoryTiming | None = None,
        cache: bool = True,
    ) -> None:
        proto, file = loaded(model, shapes)
        self.name = Path(file).stem if isinstance(model, str | Path) else proto.graph.name or file
        self.config = config if isinstance(config, NpuConfig) else NpuConfig.load(config)
        versions = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in proto.opset_import}
        versions[""] = opset_of(proto)
        options = CompileOptions(effort=effort, cpu_only=cpu_only, memory=memory or DEFAULT_MEMORY)
        self._programs = PartPrograms(file, versions, self.config, options, cache)
        infos = {i.name: i for i in proto.graph.input}
        for name in (*(constants or {}), *(shapes or {})):
            if name not in infos:
                raise UsageError(f"{self.name}: no input {name!r}; inputs: {', '.join(infos)}")
        self.constants = {name: fixed_value(infos[name], value) for name, value in (constants or {}).items()}
        self._body = Body(self._programs, proto.graph, given=self.constants)
        self.inputs = [signature_of(infos[n], (shapes or {}).get(n)) for n in self._body.inputs]
        self.outputs = list(self._body.outputs)
        self.ran: list[Program] = []
        self._runner: Runner | None = None

    @property
    def compilations(self) -> int:
        return self._programs.compilations

    def facts(self) -> dict[str, Any]:
        """Returns facts, for `repr` and notebooks."""
        return {
            "name": self.name, "config": self.config.name, "inputs": listed(self.inputs),
            "outputs": listed(self.outputs), "compilations": self.compilations,
        }  # fmt: skip

    def __call__(self, inputs: Mapping[str, Any] | Any) -> dict[str, Value]:
        """Runs on the functional simulator."""
        if self._runner is None:
            self._runner = Device("functional")
        return self.run(self._runner, inputs).outputs  # type: ignore[return-value]

    def save(self, path: str | Path) -> None:
        """Refuses: a dynamic model has no program to save.

        Raises:
            UsageError: says what `tilewright.compile_program` needs to make one.
        """
        lacking = [str(s) for s in self.inputs if s.shape is None or not all(isinstance(d, int) for d in s.shape)]
        remedy = f"give the shapes of {', '.join(lacking)}" if lacking else "its shapes follow from run-time values"
        raise UsageError(f"{self.name} is compiled while it runs, {path} would hold one program: {remedy}")

    def run(self, runner: Runner, inputs: Mapping[str, Any] | Any, **options: Any) -> RunResult:
        """Runs once on a device; compiles what these shapes need and was not compiled before.

        Args:
            inputs: by name; lists are sequences, None an optional without a value, arrays of `str` strings.
            options: for the device.

        Returns:
            Outputs by name, counters summed over all programs, seconds of each.

        Raises:
            InputError: inputs that do not fit. CompileError: a part cannot be compiled. DeviceError: see `Runner.run`.
        """
        values = check_values(self.name, self.inputs, inputs)
        run = ModelRun(runner, options)
        found = self._body.run(run, list(values.values()))
        self.ran = run.programs
        outputs: Any = dict(zip(self.outputs, found))
        return RunResult(outputs, add_counters(run.counters), run.seconds)
