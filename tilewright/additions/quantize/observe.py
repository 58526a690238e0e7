"""Values of tensors inside a model, sample by sample, in bounded memory.

onnxruntime keeps every tensor that is asked for until a run ends, so that asking for all of them takes gigabytes. Here
the model is cut into pieces, each with a bounded number of bytes of observed tensors, that run one after the other: the
work is that of one run, the memory that of one piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.common import temporary
from tilewright.common.installation import require
from tilewright.compiler.onnx.onnx_graphs import reads_of
from tilewright.errors import UsageError
from tilewright.quantize.memory import trim_heap
from tilewright.quantize.recipe import Progress, Sample, Samples

PIECE_BYTES = 16 << 20
"""Bytes of observed tensors per piece; a larger tensor has a piece of its own."""

_ERROR_ONLY = 3
_LARGE_CONSTANT = 1 << 18  # bytes
_ITEM = {
    TensorProto.FLOAT: 4, TensorProto.FLOAT16: 2, TensorProto.INT8: 1, TensorProto.UINT8: 1, TensorProto.INT16: 2
}  # bytes of an element of those that may be in a file of their own  # fmt: skip
_PAGE = 4096
_MOST_OF_A_SHAPE = 1024
"""Maximum of elements of a constant that may be a shape."""


def session(
    model: onnx.ModelProto, *, optimise: bool = True, integers: bool = True, threads: int = 0,
    constants: Iterable[onnx.TensorProto] = (),
) -> Any:  # fmt: skip
    """A session of onnxruntime on the CPU, which gives memory back as soon as it is done with it.

    Args:
        optimise: False runs every node as it stands in the model.
        integers: False computes quantised layers in floats between their QuantizeLinear and DequantizeLinear nodes, as
            the model says: equal but for rounding, and twice as fast where onnxruntime has no int8 kernels.
        threads: 0 for as many as there are processors.
        constants: initialisers beside those of the model.

    Raises:
        UsageError: onnxruntime cannot load the model.
    """
    onnxruntime = require("onnxruntime")

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
    create = lambda given: onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    held = [*model.graph.initializer, *constants]
    large = {x.name for x in held if _bytes(x) >= _LARGE_CONSTANT and x.HasField("raw_data")}
    try:
        if not large:
            return create(_with_constants(model, held).SerializeToString())
        with temporary.Folder(prefix="tilewright-quantize-", ignore_errors=True) as folder:
            small = [x for x in held if x.name not in large]
            place = Path(folder) / "model.onnx"
            light = _with_constants(model, [*small, *_in_data_file([x for x in held if x.name in large], place)])
            place.write_bytes(light.SerializeToString())
            del light
            return create(str(place))
    except Exception as error:  # onnxruntime raises its own kinds without a common base
        raise UsageError(f"onnxruntime cannot load the model: {first_line(error)}") from None


def _bytes(tensor: onnx.TensorProto) -> int:
    """Bytes of a tensor's data by its sizes: protobuf would write it out to count them. 0 of other types."""
    return int(math.prod(tensor.dims)) * _ITEM.get(tensor.data_type, 0)


def _with_constants(model: onnx.ModelProto, constants: Iterable[onnx.TensorProto]) -> onnx.ModelProto:
    """The model with other initialisers."""
    found = without_constants(model)
    found.graph.initializer.extend(constants)
    return found


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copies a model without what was deleted of it before: protobuf keeps that until the whole goes. `CopyFrom` takes
    three times the memory for a while."""
    return _with_constants(model, model.graph.initializer)


def without_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copies a model without its initialisers, which are most of it."""
    found = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    found.functions.extend(model.functions)
    found.metadata_props.extend(model.metadata_props)
    for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        if model.HasField(name):
            setattr(found, name, getattr(model, name))
    graph, given = found.graph, model.graph
    graph.name = given.name or "graph"
    if given.HasField("doc_string"):
        graph.doc_string = given.doc_string
    for name in ("node", "input", "output", "value_info", "sparse_initializer", "quantization_annotation"):
        getattr(graph, name).extend(getattr(given, name))
    return found


def _in_data_file(tensors: Sequence[onnx.TensorProto], place: Path) -> list[onnx.TensorProto]:
    """The tensors with their data in a file beside the model, which onnxruntime maps: it copies what is in a model,
    two times while it loads."""
    found = []
    with place.with_suffix(".data").open("wb") as file:
        for x in tensors:
            file.seek(-(-file.tell() // _PAGE) * _PAGE)
            entries = {"location": f"{place.stem}.data", "offset": file.tell(), "length": file.write(x.raw_data)}
            made = onnx.TensorProto(name=x.name, dims=x.dims, data_type=x.data_type, data_location=TensorProto.EXTERNAL)
            made.external_data.extend(onnx.StringStringEntryProto(key=k, value=str(v)) for k, v in entries.items())
            found.append(made)
    return found


def first_line(error: BaseException) -> str:
    """The first line of an error's text, without onnxruntime's error code."""
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
    """Runs a model piece by piece and yields its inner tensors.

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
                constants = [self._constants[name] for name in piece.constants]
                self._sessions[index] = session(self._model_of(piece, feeds), optimise=False, constants=constants)
            found = run(self._sessions[index], feeds)
            del feeds
            alive.update((name, found[name]) for name in piece.kept)
            for name in piece.dead:
                alive.pop(name, None)
            for name in piece.observed:
                yield name, found.pop(name)
            found.clear()
            trim_heap()

    def _model_of(self, piece: _Piece, feeds: Mapping[str, Any]) -> onnx.ModelProto:
        return part_of(self.model, piece.nodes, feeds, list(dict.fromkeys([*piece.observed, *piece.kept])))


class _Piece:
    """A piece of the model: consecutive nodes.

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
    feeds: Mapping[str, Any],
    outputs: Iterable[str],
) -> onnx.ModelProto:
    """Makes a model of some nodes of a model, which lacks the initialisers that they read. Its inputs have the names
    and types of `feeds`."""
    part = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    part.functions.extend(model.functions)
    part.graph.name = "part"
    part.graph.node.extend(nodes)
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
    check: Callable[[str, np.ndarray, Sample, int], None] | None = None,
) -> None:
    """Calls `take(name, value)` with every tensor of `tensors` (as for `Observer`), for every sample.

    Args:
        check: called before, with the sample and its number besides.

    Raises:
        UsageError: onnxruntime cannot load or run the model.
    """
    observer: Observer | None = None
    for index, sample in enumerate(samples):
        if observer is None:
            observer = Observer(model, tensors, sample)
        for name, value in observer.values(sample):
            if check is not None:
                check(name, value, sample, index)
            take(name, value)
        if progress is not None:
            progress("calibrating", (index + 1) / len(samples))


def paired_values(pair: Sequence[Observer], sample: Sample) -> Iterator[tuple[str, Any, Any]]:
    """Name and values of tensors in both models. The two come in nearly the same order; few have to wait."""
    waiting: list[dict[str, Any]] = [{}, {}]
    walks = [observer.values(sample) for observer in pair]
    open_ = [True, True]
    while any(open_):
        for side in (0, 1):
            item = next(walks[side], None) if open_[side] else None
            if item is None:
                open_[side] = False
                continue
            name, value = item
            other = waiting[1 - side].pop(name, None)
            if other is None:
                waiting[side][name] = value
            else:
                yield (name, value, other) if side == 0 else (name, other, value)


def light(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy for the inference of shapes, with large initialisers as inputs: shape and type of them are enough."""
    found = without_constants(model)
    for tensor in model.graph.initializer:
        small = int(np.prod(tensor.dims, dtype=np.int64)) <= _MOST_OF_A_SHAPE
        if small:
            found.graph.initializer.append(tensor)
        else:
            found.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return found


def tensor_bytes(model: onnx.ModelProto, example: Sample) -> dict[str, int]:
    """Bytes of the tensors inside, with inputs of the example's shapes, as far as shape inference knows them."""
    fixed = light(model)
    del fixed.graph.value_info[:]
    inputs = {x.name for x in model.graph.input}
    kept = [x for x in fixed.graph.input if x.name not in inputs]
    del fixed.graph.input[:]
    fixed.graph.input.extend(kept)
    for name, value in example.items():
        kind = helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype)
        fixed.graph.input.append(helper.make_tensor_value_info(name, kind, list(np.shape(value))))
    for x in fixed.graph.output:
        x.ClearField("type")
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
