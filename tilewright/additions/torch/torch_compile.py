"""The backend of `torch.compile`: the graphs that torch finds in a Python function run on a device of ours.

>>> fast = torch.compile(module.eval(), backend="tilewright")
>>> with torch.inference_mode():
...     scores = fast(image)

torch cuts the function at what it cannot trace and hands over one graph after the other. Every graph is exported to
ONNX and compiled at its first call, once for each set of shapes; a graph that cannot be taken runs in torch, and the
log and `graphs()` say why. Needs the `torch` extra.
"""

from __future__ import annotations

import functools
import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.api.compilation import compile
from tilewright.dynamic.model import DynamicModel
from tilewright.errors import TilewrightError, UsageError
from tilewright.isa.program import Program
from tilewright.runtime.devices import Device, Runner
from tilewright.torch.pytorch import export

if TYPE_CHECKING:
    import torch

log = logging.getLogger("tilewright.torch.torch_compile")

#: Of `torch.compile(..., options=)`; others are for `tilewright.compile`.
_OWN_OPTIONS = ("config", "device", "strict")


@dataclass
class GraphReport:
    """The result of compiling one graph for one set of shapes.

    Attributes:
        nodes: operations in torch's graph.
        reason: why it runs in torch; empty if it was compiled.
        macs, npu_macs: multiply-accumulates, in all and on the NPU.
    """

    nodes: int
    reason: str = ""
    macs: int = 0
    npu_macs: int = 0

    def __str__(self) -> str:
        if self.reason:
            return f"{self.nodes} operations in torch: {self.reason}"
        share = f"{self.npu_macs / self.macs:.1%} of {self.macs:,} MACs on the NPU" if self.macs else "no MACs"
        return f"{self.nodes} operations compiled, {share}"


def graphs() -> list[GraphReport]:
    """Reports on all live graphs, in the order of their first calls."""
    return [report for graph in list(_graphs) for report in graph.reports]


def backend(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """The backend of `torch.compile`, registered under the name "tilewright"; torch calls it for every graph.

    Args:
        options: as given to `torch.compile`: `config` ("base"), `device` ("functional", any name for `Device`, or a
            device), `strict` (True raises where a graph cannot be taken), and those of `tilewright.compile`.
    """
    given = dict(options or {})
    made = CompiledGraph(graph, _device(given.get("device", "functional")), given)
    _graphs.append(made)
    return made


class CompiledGraph:
    """A graph of torch that is compiled when it is called, for the shapes it meets."""

    def __init__(self, graph: torch.fx.GraphModule, device: Runner, options: Mapping[str, Any]) -> None:
        self.graph, self.device = graph, device
        self.config = options.get("config", "base")
        self.strict = bool(options.get("strict", False))
        self.options = {name: value for name, value in options.items() if name not in _OWN_OPTIONS}
        self.reports: list[GraphReport] = []
        self._runs: dict[Any, Callable[..., Any]] = {}
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        key = tuple(map(_key, args))
        run = self._runs.get(key)
        if run is None:
            with self._lock:
                run = self._runs.setdefault(key, self._runs.get(key) or self._made(args))
        return run(*args)

    def _made(self, args: Sequence[Any]) -> Callable[..., Any]:
        """Compiles the graph for arguments such as these; returns the graph itself where that is not possible."""
        report = GraphReport(sum(node.op not in ("placeholder", "output") for node in self.graph.graph.nodes))
        self.reports.append(report)
        try:
            free = [i for i, value in enumerate(args) if _is_tensor(value) and not _is_constant(value)]
            program = self._compiled([args[i] for i in free], args, free)
        except TilewrightError as error:
            if self.strict:
                raise
            report.reason = str(error)
            log.warning("%s", report)
            plain: Callable[..., Any] = self.graph
            return plain
        if isinstance(program, Program):
            report.macs, report.npu_macs = program.macs, program.npu_macs
        log.info("%s", report)
        return _Run(program, self.device, free)

    def _compiled(self, inputs: list[torch.Tensor], args: Sequence[Any], free: list[int]) -> Program | DynamicModel:
        import torch

        _require_inference(args)
        if not inputs:
            raise UsageError("it has no inputs but constants")
        bound = _bound(self.graph, args, free)
        try:
            with torch.no_grad():
                exported = torch.export.export(bound, tuple(inputs)).run_decompositions({})
        except Exception as error:  # torch raises many kinds
            raise UsageError(f"torch cannot export it: {str(error).strip().splitlines()[0]}") from error
        tag = torch.Tag.nondeterministic_seeded
        for node in exported.graph.nodes:
            if tag in getattr(node.target, "tags", ()):
                raise UsageError(f"{node.target} draws random numbers")
        signature = exported.graph_signature
        if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
            raise UsageError("it changes a tensor in place")
        outputs = [spec.kind.name for spec in signature.output_specs]
        if set(outputs) != {"USER_OUTPUT"} or len(signature.user_outputs) != len(outputs):
            raise UsageError("not all of its results are tensors")
        names = [f"x{i}" for i in range(len(inputs))]
        model = export(exported, tuple(inputs), input_names=names)
        return compile(model, self.config, **self.options)


class _Run:
    """A compiled graph as a function from torch's arguments to torch's results."""

    def __init__(self, program: Program | DynamicModel, device: Runner, free: list[int]) -> None:
        self.program, self.device, self.free = program, device, free
        infos = program.outputs
        self.outputs = [x if isinstance(x, str) else x.name for x in infos]
        self.inputs = [x.name for x in program.inputs]
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        import torch

        given = {f"x{i}": args[at].detach().numpy() for i, at in enumerate(self.free)}
        with self._lock:
            found = self.device.run(self.program, {name: given[name] for name in self.inputs})
        return tuple(torch.from_numpy(np.asarray(found[name], order="C")) for name in self.outputs)


def _bound(graph: torch.fx.GraphModule, args: Sequence[Any], free: list[int]) -> torch.nn.Module:
    """The graph with its constants and numbers bound: only inputs are left as arguments."""
    import torch

    class Bound(torch.nn.Module):
        """A graph and its constants."""

        def __init__(self) -> None:
            super().__init__()
            self.graph = graph
            for i, value in enumerate(args):
                if i not in free and _is_tensor(value):
                    self.register_buffer(f"constant_{i}", value.detach())

        def forward(self, *inputs: torch.Tensor) -> Any:
            given = iter(inputs)
            return self.graph(*(
                next(given) if i in free else getattr(self, f"constant_{i}", value) for i, value in enumerate(args)
            ))  # fmt: skip

    return Bound().eval()


def _require_inference(args: Sequence[Any]) -> None:
    """Raises `UsageError` for gradients and tensors of other devices, which no compiled program supports."""
    import torch

    tensors = [value for value in args if _is_tensor(value)]
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        raise UsageError("gradients are wanted; call it under torch.inference_mode() or torch.no_grad()")
    for x in tensors:
        if x.device.type != "cpu" or x.layout is not torch.strided:
            raise UsageError(f"a tensor is on {x.device} as {x.layout}; accepted: ordinary tensors of the CPU")


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _is_constant(value: torch.Tensor) -> bool:
    """True for parameters, and for buffers, which torch marks."""
    import torch

    return isinstance(value, torch.nn.Parameter) or hasattr(value, "_dynamo_static_input_type")


def _key(value: Any) -> Any:
    """The cache key of a compiled graph's argument: identity of constants, shapes and types of inputs, numbers."""
    import torch

    if not _is_tensor(value):
        return value
    if _is_constant(value):
        version = 0 if value.is_inference() else value._version
        return (id(value), value.data_ptr(), version, torch.is_grad_enabled() and value.requires_grad)
    return (value.dtype, tuple(value.shape), value.device.type, torch.is_grad_enabled() and value.requires_grad)


@functools.cache
def _named(name: str) -> Runner:
    return Device(name)


def _device(device: str | Runner) -> Runner:
    return _named(device) if isinstance(device, str) else device


class _Alive:
    """The graphs that torch still holds, oldest first."""

    def __init__(self) -> None:
        self._all: list[weakref.ref[CompiledGraph]] = []

    def append(self, graph: CompiledGraph) -> None:
        self._all = [ref for ref in self._all if ref() is not None]
        self._all.append(weakref.ref(graph))

    def __iter__(self) -> Any:
        return (graph for ref in self._all if (graph := ref()) is not None)


_graphs = _Alive()
