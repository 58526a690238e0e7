"""`NativeModel`: a model compiled whole to native code for this CPU, without an NPU and without a program file."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.api.source import ModelSource
from tilewright.compiler import cpu
from tilewright.compiler.passes import run_passes
from tilewright.errors import UsageError
from tilewright.runtime.executor import aligned_zeros


class NativeModel:
    """A model's nodes as one CPU segment, loaded, with its buffers.

    Args:
        model: what `tilewright.compile` takes.
        shapes: shape per input, needed where the model leaves dimensions open.
        target: how to compile; by default this machine.
        threads: that share each kernel's work.

    Raises:
        TilewrightError: the model cannot be compiled for the CPU.

    Attributes:
        compile_seconds: import, passes, code generation and loading.
        segment: the compiled nodes.
    """

    def __init__(
        self,
        model: Any,
        shapes: Mapping[str, Sequence[int]] | None = None,
        target: cpu.Target | None = None,
        threads: int = 1,
    ) -> None:
        started = time.perf_counter()
        self.graph = graph = ModelSource(model, shapes).graph()
        run_passes(graph)
        for node in graph:
            reason = cpu.unsupported_reason(graph, node)
            if reason is not None:
                raise UsageError(reason)
        self.segment = cpu.compile_segment(
            graph, graph.nodes, graph.inputs, graph.outputs, "tw_native", target, threads=threads
        )
        self._kernel = cpu.load(self.segment.object_code, self.segment.symbol, threads)
        self.compile_seconds = time.perf_counter() - started
        self._constants = [self._aligned(graph.tensor(n).data) for n in self.segment.constants]
        self.inputs = {n: self._place(n) for n in self.segment.inputs}
        self.outputs = {n: self._place(n) for n in self.segment.outputs}
        self._workspace = aligned_zeros(self.segment.workspace_bytes)
        arrays = [*self.inputs.values(), *self._constants, *self.outputs.values()]
        self._addresses = [a.ctypes.data for a in arrays]

    def _place(self, name: str) -> np.ndarray:
        t = self.graph.tensor(name)
        return aligned_zeros(t.nbytes).view(t.dtype).reshape(t.shape)

    @staticmethod
    def _aligned(data: np.ndarray | None) -> np.ndarray:
        assert data is not None
        place = aligned_zeros(data.nbytes).view(data.dtype).reshape(data.shape)
        place[...] = data
        return place

    def run(self) -> None:
        """Computes `outputs` from `inputs`, arrays that the caller fills and reads."""
        self._kernel(self._addresses, self._workspace.ctypes.data)

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs, by name and as fresh arrays, for these inputs."""
        for name, value in inputs.items():
            self.inputs[name][...] = value
        self.run()
        return {name: value.copy() for name, value in self.outputs.items()}
