"""Values of tensors inside a model, sample by sample, in bounded memory.

onnxruntime keeps every tensor that is asked for until a run ends, so that asking for all of them takes gigabytes. Here
the model is cut into pieces, each with a bounded number of bytes of observed tensors, that run one after the other: the
work is that of one run, the memory that of one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.onnx_graphs import reads_of
from tilewright.errors import UsageError
from tilewright.quantize.memory import give_back
from tilewright.quantize.recipe import Progress, Sample, Samples

PIECE_BYTES = 16 << 20
"""What the observed tensors of one piece may hold; a larger tensor has a piece of its own."""

_ERROR_ONLY = 3


def session(model: onnx.ModelProto, *, optimise: bool = True, integers: bool = True, threads: int = 0) -> Any:
    """A session of onnxruntime on the CPU, which gives memory back as soon as it is done with it.

    Args:
        optimise: False runs every node as it stands in the model.
        integers: False computes quantised layers in floats between their QuantizeLinear and DequantizeLinear nodes, as
            the model says: equal but for rounding, and twice as fast where onnxruntime has no int8 kernels.
        threads: 0 for as many as there are processors.

    Raises:
        UsageError: onnxruntime cannot load the model.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERROR_ONLY
    options.intra_op_num_threads = threads
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting threads leave the processor free
    if not integers:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises its own kinds without a common base
        raise UsageError(f"onnxruntime cannot load the model: {first_line(error)}") from None


def first_line(error: BaseException) -> str:
    """What happened, without onnxruntime's code in front."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return text.split(" : ", 3)[-1] if text.startswith("[ONNXRuntimeError]") else text


def run(running: Any, sample: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of one run by name. Raises `UsageError` if the model fails on the sample."""
    try:
        return dict(zip([o.name for o in running.get_outputs()], running.run(None, dict(sample))))
    except Exception as error:
        shapes = ", ".join(f"{n}: {np.asarray(v).dtype}{list(np.shape(v))}" for n, v in sample.items())
        raise UsageError(f"the model does not run on calibration data of {shapes}: {first_line(error)}") from None


def runner(model: onnx.ModelProto) -> Callable[[Sample], dict[str, Any]]:
    """The function from a sample to the model's outputs by name; raises as `session` and `run`."""
    running = session(model)
    return lambda sample: run(running, sample)


class Observer:
    """A model whose inner tensors can be looked at.

    Args:
        model: any ONNX model, float or quantised; nodes in topological order.
        tensors: names to observe: inputs, initialisers, and what nodes of the main graph write; others are left out.
        example: a sample, for the sizes of tensors.
        piece_bytes: bytes of observed tensors in memory at one time.
    """

    def __init__(
        self, model: onnx.ModelProto, tensors: Sequence[str], example: Sample, piece_bytes: int = PIECE_BYTES
    ) -> None:
        self.model = model
        self.wanted = set(tensors)
        self._constants = {x.name: x for x in model.graph.initializer}
        self._pieces = _cut(model, self.wanted, tensor_bytes(model, example), piece_bytes)
        self._sessions: list[Any] = [None] * len(self._pieces)

    @property
    def pieces(self) -> int:
        return len(self._pieces)

    def values(self, sample: Sample) -> Iterator[tuple[str, np.ndarray]]:
        """Name and value of every observed tensor for a sample: initialisers, inputs, then in the order of the nodes.

        Raises:
            UsageError: onnxruntime cannot load or run the model.
        """
        for name, tensor in self._constants.items():
            if name in self.wanted:
                yield name, numpy_helper.to_array(tensor)
        for name, value in sample.items():
            if name in self.wanted and name not in self._constants:
                yield name, value
        alive: dict[str, Any] = dict(sample)
        for index, piece in enumerate(self._pieces):
            feeds = {name: alive[name] for name in piece.reads}
            if self._sessions[index] is None:
                self._sessions[index] = session(self._model_of(piece, feeds), optimise=False)
            found = run(self._sessions[index], feeds)
            del feeds
            alive.update((name, found[name]) for name in piece.kept)
            for name in piece.dead:
                alive.pop(name, None)
            for name in piece.observed:
                yield name, found.pop(name)
            found.clear()
            give_back()

    def _model_of(self, piece: _Piece, feeds: Mapping[str, Any]) -> onnx.ModelProto:
        constants = [self._constants[name] for name in piece.constants]
        return part_of(self.model, piece.nodes, constants, feeds, list(dict.fromkeys([*piece.observed, *piece.kept])))


class _Piece:
    """Some nodes in a row.

    Attributes:
        reads: tensors it takes from before.
        constants: initialisers it reads.
        observed: tensors to hand out.
        kept: tensors that later pieces read.
        dead: tensors that no later piece reads.
    """

    def __init__(self, nodes: list[onnx.NodeProto]) -> None:
        self.nodes = nodes
        self.reads: list[str] = []
        self.constants: list[str] = []
        self.observed: list[str] = []
        self.kept: list[str] = []
        self.dead: list[str] = []


def _cut(model: onnx.ModelProto, wanted: set[str], sizes: Mapping[str, int], limit: int) -> list[_Piece]:
    """The nodes up to the last one with an observed tensor, in pieces."""
    pieces: list[_Piece] = []
    room = 0
    for node in model.graph.node:
        size = sum(sizes.get(name, limit // 16) for name in node.output if name in wanted)
        if not pieces or size > room:
            pieces.append(_Piece([]))
            room = limit
        pieces[-1].nodes.append(node)
        room -= size
    while pieces and not any(name in wanted for node in pieces[-1].nodes for name in node.output):
        pieces.pop()
    constants = {x.name for x in model.graph.initializer}
    needed: set[str] = set()
    for piece in reversed(pieces):
        made = dict.fromkeys(name for node in piece.nodes for name in node.output if name)
        read = dict.fromkeys(name for node in piece.nodes for name in reads_of([node]) if name not in made)
        piece.constants = [name for name in read if name in constants]
        piece.reads = [name for name in read if name not in constants]
        piece.observed = [name for name in made if name in wanted]
        piece.kept = [name for name in made if name in needed]
        piece.dead = [name for name in piece.reads if name not in needed]
        needed.difference_update(made)
        needed.update(piece.reads)
    return pieces


def part_of(
    model: onnx.ModelProto,
    nodes: Iterable[onnx.NodeProto],
    constants: Iterable[onnx.TensorProto],
    feeds: Mapping[str, Any],
    outputs: Iterable[str],
) -> onnx.ModelProto:
    """Some nodes of a model as a model. Its inputs have the names and types of `feeds`."""
    part = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    part.functions.extend(model.functions)
    part.graph.name = "part"
    part.graph.node.extend(nodes)
    part.graph.initializer.extend(constants)
    part.graph.input.extend(_value_info(name, value) for name, value in feeds.items())
    part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    return part


def _value_info(name: str, value: Any) -> onnx.ValueInfoProto:
    if isinstance(value, list):  # a sequence of tensors
        kind = helper.np_dtype_to_tensor_dtype(value[0].dtype) if value else onnx.TensorProto.FLOAT
        return helper.make_tensor_sequence_value_info(name, kind, None)
    dtype = np.asarray(value).dtype
    kind = onnx.TensorProto.STRING if dtype.kind in "OU" else helper.np_dtype_to_tensor_dtype(dtype)
    return helper.make_tensor_value_info(name, kind, None)


def observe(
    model: onnx.ModelProto,
    samples: Samples,
    tensors: Sequence[str],
    take: Callable[[str, np.ndarray], None],
    progress: Progress | None = None,
) -> None:
    """Calls `take(name, value)` with every tensor of `tensors` (as for `Observer`), for every sample.

    Raises:
        UsageError: onnxruntime cannot load or run the model.
    """
    observer: Observer | None = None
    for index, sample in enumerate(samples):
        if observer is None:
            observer = Observer(model, tensors, sample)
        for name, value in observer.values(sample):
            take(name, value)
        if progress is not None:
            progress("calibrating", (index + 1) / len(samples))


def tensor_bytes(model: onnx.ModelProto, example: Sample) -> dict[str, int]:
    """Bytes of the tensors inside, with inputs of the example's shapes; of those that shape inference can tell."""
    fixed = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    fixed.graph.name = "sizes"
    fixed.graph.node.extend(model.graph.node)
    for tensor in model.graph.initializer:
        small = int(np.prod(tensor.dims, dtype=np.int64)) <= 1024
        if small:  # may be a shape; for the others shape and type are enough
            fixed.graph.initializer.append(tensor)
        else:
            fixed.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    for name, value in example.items():
        kind = helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype)
        fixed.graph.input.append(helper.make_tensor_value_info(name, kind, list(np.shape(value))))
    fixed.graph.output.extend(onnx.ValueInfoProto(name=x.name) for x in model.graph.output)
    try:
        fixed = onnx.shape_inference.infer_shapes(fixed, data_prop=True)
    except Exception:  # it refuses models that onnxruntime runs; sizes are guessed then
        return {}
    found = {}
    for info in [*fixed.graph.value_info, *fixed.graph.output]:
        kind = info.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim]
        if kind.elem_type and kind.HasField("shape") and all(d >= 0 for d in dims):
            item = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)).itemsize
            found[info.name] = int(np.prod(dims, dtype=np.int64)) * item
    return found
