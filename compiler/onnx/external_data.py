"""Loads values that an ONNX file keeps in files beside it, wherever in the model they are.

A model from a stranger names the files to read. They must lie below the model's own folder, also after links have been
followed, so that a model cannot have other files of the machine read into its weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from tilewright.common.store import check_regular
from tilewright.compiler.errors import CompileError
from tilewright.compiler.onnx.onnx_graphs import subgraphs

#: Bits of an element, for types that numpy has none for.
_BITS = {
    TensorProto.INT4: 4, TensorProto.UINT4: 4, TensorProto.FLOAT4E2M1: 4, TensorProto.INT2: 2, TensorProto.UINT2: 2,
}  # fmt: skip


def read_model(path: str | Path) -> onnx.ModelProto:
    """Reads the model in a file, with its external data. Raises the errors of `onnx.load`, and `CompileError`."""
    check_regular(path)
    model = onnx.load(str(path), load_external_data=False)
    load_external_data(model, Path(path))
    return model


def load_external_data(model: onnx.ModelProto, path: Path | None) -> None:
    """Puts the external data of every tensor into the model: of initialisers, sparse ones, attributes such as a
    Constant's, bodies of If, Loop and Scan, and functions.

    Args:
        model: changed in place.
        path: the model's file, None for a model that comes from no file.

    Raises:
        CompileError: the model comes from no file, a path is outside of the model's folder, a file cannot be read or is
            too short.
    """
    external = [t for t in _tensors(model) if t.data_location == TensorProto.EXTERNAL]
    if not external:
        return
    if path is None:
        raise CompileError(f"tensor {external[0].name!r} has external data; give a file name, not bytes")
    # A model may itself be a link, as in the caches of model hubs: its data then lies beside the link or its target.
    folders = [path.parent.resolve(), path.resolve().parent]
    for tensor in external:
        try:
            _load(tensor, path.parent, folders)
        except CompileError as error:
            raise CompileError(f"external data of tensor {tensor.name!r}: {error}") from None


def _load(tensor: TensorProto, folder: Path, allowed: list[Path]) -> None:
    entries = {e.key: e.value for e in tensor.external_data}
    location = entries.get("location", "")
    if not location or "\0" in location:
        raise CompileError(f"the location must be the name of a file, not {location!r}")
    try:
        found = (folder / location).resolve()
        if not any(found.is_relative_to(root) for root in allowed):
            raise CompileError(f"{location!r} is outside of the model's folder; put the file beside the model")
        if not found.is_file():
            raise CompileError(f"there is no file {location!r} beside the model")
        size = found.stat().st_size
        offset = _number(entries, "offset", 0)
        length = _number(entries, "length", size - offset)
        if offset + length > size or length < 0:
            raise CompileError(f"bytes {offset} to {offset + length} of {location!r}, which has {size}")
        wanted = _bytes_of(tensor)
        if wanted is not None and wanted != length:
            raise CompileError(f"{length} bytes of {location!r} where the tensor has {wanted}")
        with found.open("rb") as file:
            file.seek(offset)
            tensor.raw_data = file.read(length)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise CompileError(f"{location!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    del tensor.external_data[:]
    tensor.data_location = TensorProto.DEFAULT


def _number(entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 20) and text != str(default):
        raise CompileError(f"{key} must be a number of bytes, not {text!r}")
    return int(text)


def _bytes_of(tensor: TensorProto) -> int | None:
    """The bytes of the tensor, None where its type has no raw data."""
    elements = 1
    for dim in tensor.dims:
        elements *= max(int(dim), 0)
    bits = _BITS.get(tensor.data_type)
    if bits is None:
        try:
            bits = 8 * np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
        except (KeyError, TypeError):
            return None
    return -(-elements * bits // 8)


def _tensors(model: onnx.ModelProto) -> Iterator[TensorProto]:
    yield from _of_graph(model.graph)
    for function in model.functions:
        yield from _of_nodes(function.node)
    for info in model.training_info:
        yield from _of_graph(info.initialization)
        yield from _of_graph(info.algorithm)


def _of_graph(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            yield from ([attribute.t] if attribute.HasField("t") else [])
            yield from attribute.tensors
            sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
            for one in (*sparse, *attribute.sparse_tensors):
                yield from (one.values, one.indices)
        for graph in subgraphs(node):
            yield from _of_graph(graph)
