"""Loads bytes as a checked `onnx.ModelProto`: decoding, external data, function inlining, model-level checks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError
from msgspec import Struct

from tilewright.common import store
from tilewright.common.text import one_line
from tilewright.compiler.errors import CompileError, StagingError, UnsupportedError
from tilewright.compiler.graph.ops.kernel import BY_A_KERNEL, NodeKernel
from tilewright.compiler.importer.onnx.foreign import foreign_format
from tilewright.compiler.limits import check_nodes
from tilewright.compiler.onnx.equations import check_equations
from tilewright.compiler.onnx.external_data import load_external_data
from tilewright.compiler.onnx.onnx_graphs import all_nodes, sort_model, subgraphs
from tilewright.compiler.onnx.onnx_ops import OPSET

OLDEST_OPSET = 1
_MAX_FUNCTIONS = 500  # each may call the one before
_STANDARD = ("", "ai.onnx")
_CONTRIB = "com.microsoft"
_CONTRIB_OPS = ("LayerNormalization", "SimplifiedLayerNormalization")
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", _CONTRIB)


def op_of(node: onnx.NodeProto) -> str:
    """Returns the domain and op of a node as kernels name them, such as "com.me::Deform"; without ONNX's own domain."""
    return node.op_type if node.domain in _STANDARD else f"{node.domain}::{node.op_type}"


@contextlib.contextmanager
def import_errors(name: str) -> Iterator[None]:
    """Turns every error of an import in the block into a one-line CompileError that begins with the model's name."""
    try:
        yield
    except CompileError as error:
        text = one_line(error)
        text = text if text.startswith(f"{name}: ") else f"{name}: {text}"
        if isinstance(error, StagingError):
            raise StagingError(text, error.tensors) from error
        raise type(error)(text) from error
    except (MemoryError, RecursionError, ArithmeticError, LookupError, TypeError, ValueError, RuntimeError) as error:
        # Damage of the file that the checker missed shows up here, never as a traceback.
        kind = type(error).__name__
        raise CompileError(f"{name}: damaged or inconsistent model: {kind}: {one_line(error)}") from error


class LoadedModel(Struct, frozen=True):
    """A model that `load` has returned, for several imports. None of them changes it.

    Attributes:
        name: name for messages.
        model: the model.
    """

    name: str
    model: onnx.ModelProto

    @staticmethod
    def of(source: str | Path | bytes | onnx.ModelProto) -> LoadedModel:
        """Reads and checks a model whose nodes no kernels run; raises as `load` does."""
        name = source_name(source)
        with import_errors(name):
            return LoadedModel(name, load(source, name))


def source_name(source: str | Path | bytes | onnx.ModelProto | LoadedModel) -> str:
    """A short name of a model for messages: the file's, or the graph's."""
    if isinstance(source, LoadedModel):
        return source.name
    if isinstance(source, str | Path):
        return Path(source).name
    return (source.graph.name if isinstance(source, onnx.ModelProto) else "") or "model"


def load(
    source: str | Path | bytes | onnx.ModelProto, name: str, kernels: Sequence[NodeKernel] = ()
) -> onnx.ModelProto:
    """Decodes and checks a model.

    Args:
        source: file name, serialised model, or a ModelProto (copied, never changed).
        name: first in every message.
        kernels: kernels that may run nodes, of any domain.

    Returns:
        The model with functions inlined and external data loaded.

    Raises:
        CompileError: unreadable, damaged or invalid. UnsupportedError: opset or domain out of range.
    """
    model = onnx.ModelProto()
    if isinstance(source, onnx.ModelProto):
        model.CopyFrom(source)
        path = None
    else:
        data, path = _read(source)
        try:
            model.ParseFromString(data)
        except (DecodeError, RuntimeError, ValueError) as error:
            what = foreign_format(data) or f"not an ONNX model, or damaged: {one_line(error)}"
            raise CompileError(f"{name}: {what}") from error
    try:
        load_external_data(model, path)
    except CompileError as error:
        raise CompileError(f"{name}: {error}") from None
    _check_header(model, name, kernels)
    for value in model.graph.output:
        # The checker requires types that are inferred anyway, and unused.
        if value.type.WhichOneof("value") is None or (
            value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape")
        ):
            value.type.tensor_type.elem_type = value.type.tensor_type.elem_type or onnx.TensorProto.FLOAT
            value.type.tensor_type.shape.SetInParent()
    _name_contrib_ops(model)
    _check_functions(model, name)
    sort_model(model)
    try:
        with _ranks(model.graph.input):
            onnx.checker.check_model(model)
    except Exception as error:
        missing = _unknown_op(model)
        if missing:
            raise UnsupportedError(f"{name}: {missing}") from error
        raise CompileError(f"{name}: not a valid ONNX model: {one_line(error)}") from error
    try:
        check_equations(model)
    except CompileError as error:
        raise CompileError(f"{name}: {error}") from None
    if model.functions:
        try:
            model = onnx.inliner.inline_local_functions(model)
        except Exception as error:
            raise CompileError(f"{name}: functions cannot be inlined: {one_line(error)}") from error
    return model


def _read(source: str | Path | bytes) -> tuple[bytes, Path | None]:
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source), None
    path = Path(source)
    try:
        return store.read(path), path
    except OSError as error:
        raise CompileError(f"{path}: cannot be read: {error.strerror or error}") from error


def _check_header(model: onnx.ModelProto, name: str, kernels: Sequence[NodeKernel]) -> None:
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise CompileError(f"{name}: not an ONNX model: it holds no graph")
    if not model.opset_import and model.ir_version < 3:
        model.opset_import.add(domain="", version=1)
    versions = {o.domain: o.version for o in model.opset_import}
    version = opset_of(model)
    used = {n.domain for n in model.graph.node}
    if used & set(_STANDARD) and not OLDEST_OPSET <= version <= OPSET:
        raise UnsupportedError(f"{name}: opset {version} of the ONNX domain; {OLDEST_OPSET} to {OPSET} are accepted")
    local = {f.domain for f in model.functions}
    for node in model.graph.node:
        taken = any(kernel.runs_op(op_of(node)) for kernel in kernels)
        if node.domain not in _DOMAINS and node.domain not in local and not taken:
            raise UnsupportedError(
                f"{name}: {op_of(node)} {node.name!r} is of domain {node.domain!r}; the domains of ONNX, com.microsoft "
                f"and functions in the model are accepted, and {BY_A_KERNEL}"
            )
        if node.domain not in versions and node.domain not in _STANDARD and node.domain not in local:
            # Some exporters use com.microsoft without importing it; the contrib ops have one version only.
            model.opset_import.add(domain=node.domain, version=1)
            versions[node.domain] = 1
    if 3 <= model.ir_version < 4:
        model.ir_version = 4  # version 3 wants initialisers to be inputs too; without an effect where they are not
    if model.ir_version > onnx.IR_VERSION:
        model.ir_version = onnx.IR_VERSION


def _name_contrib_ops(model: onnx.ModelProto) -> None:
    """Moves ops of ONNX's domain that only onnxruntime has in this opset to the domain of its other ops."""
    version = min(opset_of(model), OPSET)
    local = {(f.domain, f.name) for f in model.functions}
    missing = {op for op in _CONTRIB_OPS if ("", op) not in local and not onnx.defs.has(op, version, "")}
    found = False
    for nodes in (model.graph.node, *(f.node for f in model.functions)):
        for node in all_nodes(nodes):
            if node.op_type in missing and node.domain in _STANDARD:
                node.domain, found = _CONTRIB, True
    if found:
        for importer in (model, *model.functions):
            if all(o.domain != _CONTRIB for o in importer.opset_import):
                importer.opset_import.add(domain=_CONTRIB, version=1)


@contextlib.contextmanager
def _ranks(inputs: Iterable[onnx.ValueInfoProto]) -> Iterator[None]:
    """Gives inputs of unknown rank a rank within the block, which the checker requires, though a model need not."""
    open_ = [v.type.tensor_type for v in inputs if v.type.HasField("tensor_type")]
    open_ = [tensor for tensor in open_ if not tensor.HasField("shape")]
    for tensor in open_:
        tensor.shape.SetInParent()
    try:
        yield
    finally:
        for tensor in open_:
            tensor.ClearField("shape")


def _check_functions(model: onnx.ModelProto, name: str) -> None:
    """Raises CompileError where the inlined functions are more nodes than are accepted. A function may call earlier
    ones any number of times, so that a few can exceed any memory.
    """
    bodies = {(f.domain, f.name): f.node for f in model.functions}
    counts: dict[tuple[str, str], int] = {}

    def size(nodes: Iterable[onnx.NodeProto], callers: tuple[tuple[str, str], ...]) -> int:
        total = 0
        for node in nodes:
            called = (node.domain, node.op_type)
            if called not in bodies:
                total += 1
            elif called in callers:
                return total  # the checker has words for it
            else:
                if called not in counts:
                    counts[called] = size(bodies[called], (*callers, called))
                total += counts[called]
            for graph in subgraphs(node):
                total += size(graph.node, callers)
        return total

    if bodies and len(bodies) <= _MAX_FUNCTIONS:
        try:
            check_nodes("functions", size(model.graph.node, ()))
        except CompileError as error:
            raise CompileError(f"{name}: {error}") from None
    elif bodies:
        raise CompileError(f"{name}: the model has {len(bodies)} functions; up to {_MAX_FUNCTIONS} are accepted")


def opset_of(model: onnx.ModelProto) -> int:
    """The version of the default domain; 1 where the model names none."""
    return max((o.version for o in model.opset_import if o.domain in _STANDARD), default=1)


def _unknown_op(model: onnx.ModelProto) -> str | None:
    version = min(opset_of(model), OPSET)
    local = {(f.domain, f.name) for f in model.functions}
    for node in model.graph.node:
        if node.domain in _STANDARD and (node.domain, node.op_type) not in local:
            try:
                known = onnx.defs.has(node.op_type, version, "")
            except (TypeError, ValueError):
                return None
            if not known:
                return f"{node.op_type} {node.name!r}: no such op in opset {version} of the ONNX domain"
    return None
