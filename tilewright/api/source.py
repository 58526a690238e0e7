"""`ModelSource`: a model as the importers read it, without the compiler behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.graph.moves import Mover
from tilewright.compiler.graph.ops.kernel import NodeKernel
from tilewright.compiler.graph.states import declare_states, paired_by_name
from tilewright.errors import UsageError
from tilewright.store.files import is_mlir, is_tflite


@dataclass(frozen=True)
class ModelSource:
    """A model to compile, with what fixes its shapes.

    Attributes:
        model: ONNX, TFLite or MLIR file, its bytes, MLIR text, or an ONNX ModelProto (left unchanged).
        shapes: shape per input, needed where the model leaves dimensions open.
        constants: values of inputs to fix now, by name.
        staged: long loops and large branches are refused (StagingError), not unrolled and run in vain.
        states: of an ONNX model, the outputs that set inputs for the next run, by input; "auto" for inputs called
            past... with outputs called present....
        rising: inputs of integers, each of which is one more than that before it.
        last: outputs of which only the last row is wanted, along the last axis but one.
        batch: size of batches that an ONNX model and `shapes` leave open, with a note in the program; None to refuse
            them.
        kernels: kernels that may run nodes of an ONNX model.
        loaded: the ONNX model as `read` found it, None to read it for each graph.
    """

    model: str | Path | bytes | onnx.ModelProto
    shapes: Mapping[str, Sequence[int]] | None = None
    constants: Mapping[str, Any] | None = None
    staged: bool = False
    states: Mapping[str, str] | str | None = None
    batch: int | None = 1
    kernels: Sequence[NodeKernel] = ()
    rising: Sequence[str] = ()
    last: Sequence[str] = ()
    loaded: Any = None

    def read(self) -> ModelSource:
        """The same source with its ONNX model read and checked, to make several graphs of it.

        Raises:
            CompileError: the model is damaged.
        """
        if self.kernels or is_mlir(self.model) or is_tflite(self.model):
            return self
        from tilewright.compiler.importer.onnx import LoadedModel

        return replace(self, loaded=LoadedModel.of(self.model))

    def graph(self) -> Graph:
        """The model as a graph of its own, called as its file if it comes from one.

        Raises:
            CompileError: the model is damaged, or its shapes are not known.
        """
        shapes = dict(self.shapes) if self.shapes else None
        if is_mlir(self.model):
            return self._mlir(shapes)
        if is_tflite(self.model):
            if self.constants:
                raise UsageError("values of inputs can be fixed in ONNX models only")
            if self.states:
                raise UsageError("states are named for ONNX models only: a TFLite model has variables")
            # each importer is imported with the package of its format
            from tilewright.compiler.importer.tflite import import_tflite

            graph = import_tflite(self.model, shapes)
        else:
            from tilewright.compiler.importer.onnx import import_onnx

            constants, model = dict(self.constants or {}), self.loaded or self.model
            graph = import_onnx(model, shapes, constants, self.staged, self.batch, self.kernels)
            graph.rising = frozenset(self._rising(graph))
            for name in self.last:
                _keep_last_row(graph, name)
            if self.states:
                declare_states(graph, self._pairs(graph))
        if isinstance(self.model, str | Path):
            graph.name = Path(self.model).stem
        return graph

    def _mlir(self, shapes: dict[str, Sequence[int]] | None) -> Graph:
        """The graph of MLIR."""
        if self.states:
            raise UsageError("states are named for ONNX models only")
        from tilewright.compiler.importer.mlir import import_mlir

        assert isinstance(self.model, str | Path | bytes)
        return import_mlir(self.model, shapes, self.constants, self.staged)

    def _rising(self, graph: Graph) -> Sequence[str]:
        """The inputs whose values rise. Raises `UsageError` for what is no input of integers."""
        known = [name for name in graph.inputs if graph.tensor(name).dtype.kind == "i"]
        wrong = next((name for name in self.rising if name not in known), None)
        if wrong is not None:
            raise UsageError(
                f"{wrong!r} cannot rise: it is no input of integers (those are {', '.join(known) or 'none'})"
            )
        return self.rising

    def _pairs(self, graph: Graph) -> Mapping[str, str]:
        """The output that sets each state, by the name of the input. Raises `UsageError` where none is found."""
        if not isinstance(self.states, str):
            return self.states or {}
        found = paired_by_name(graph.inputs, graph.outputs) if self.states == "auto" else {}
        if not found:
            raise UsageError(
                f"no input is called past... with an output called present... (inputs: {', '.join(graph.inputs)}); "
                "name the states as INPUT=OUTPUT"
            )
        return found


def _keep_last_row(graph: Graph, name: str) -> None:
    """Makes an output its last row. Raises `UsageError` for what is no output with rows."""
    found = graph.tensors[name] if name in graph.outputs else None
    if found is None or len(found.shape) < 2 or found.is_const or name in graph.inputs:
        known = ", ".join(graph.outputs)
        raise UsageError(f"{name!r} has no last row: it is no computed output of two axes or more (outputs: {known})")
    rows, axis = found.shape[-2], len(found.shape) - 2
    if rows == 1:
        return
    whole = graph.like(found, f"{name}.rows", found.shape)
    for node in graph.nodes:
        node.outputs = [whole if made == name else made for made in node.outputs]
        node.inputs = [whole if read == name else read for read in node.inputs]
    found.shape = (*found.shape[:axis], 1, found.shape[-1])
    Mover(graph, graph.nodes).slice(whole, axis, rows - 1, rows, name)
