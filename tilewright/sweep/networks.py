"""The networks of a sweep: files, or networks of the zoo."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import helper

from tilewright.common import store
from tilewright.common.text import suggest
from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.onnx.inputs import batch_note, input_shapes
from tilewright.compiler.onnx.external_data import read_model
from tilewright.errors import UsageError
from tilewright.store.files import is_tflite
from tilewright.zoo import ZOO, build_quantized

#: MLPerf Tiny's four, and one of ImageNet size; from the zoo, so that they are there on a fresh machine.
DEFAULT_NETWORKS = ("resnet8", "ds_cnn", "vww", "autoencoder", "mobilenet_v2")


@dataclass(frozen=True)
class Network:
    """A model to compile.

    Attributes:
        name: as results show it.
        content: bytes of the ONNX or TFLite file.
        note: what a user should know of its shapes.
    """

    name: str
    content: bytes = field(repr=False)
    note: str = ""

    @property
    def digest(self) -> str:
        """16 hex digits of the content."""
        return hashlib.sha256(self.content).hexdigest()[:16]


def resolve(names: Sequence[str], shapes: Mapping[str, Sequence[int]] | None = None) -> list[Network]:
    """Networks by file name or by name in the zoo; "mobilenet_v2:alpha=0.35,size=64" sets parameters there.

    Args:
        shapes: of inputs that ONNX files leave open; in every network that has an input of the name.

    Raises:
        UsageError: unknown, unreadable, two of one name, sizes that are still open, a shape that does not fit or is for
            no input.
    """
    used: set[str] = set()
    found = [_resolve(name, shapes or {}, used) for name in names]
    unused = [name for name in shapes or {} if name not in used]
    if unused:
        raise UsageError(f"--shape {unused[0]}: no ONNX file of the sweep has such an input")
    for n, network in enumerate(found):
        if network.name in [other.name for other in found[:n]]:
            raise UsageError(f"two networks are named {network.name!r}")
    return found


def network_name(text: str) -> str:
    """The name results show for what `resolve` was given."""
    return Path(text).stem if Path(text).suffix.lower() in (".onnx", ".tflite") else text


def _resolve(text: str, shapes: Mapping[str, Sequence[int]], used: set[str]) -> Network:
    path = Path(text)
    if path.is_file():
        if is_tflite(path):
            return Network(network_name(text), store.read(path))
        try:  # by onnx, so that weights in files beside it come along
            model = read_model(path)
        except (DecodeError, ValueError, OSError, CompileError) as error:
            raise UsageError(f"cannot read model {path}: {error}") from None
        try:
            note = _fix(model, shapes, used)
            return Network(network_name(text), model.SerializeToString(), note)
        except CompileError as error:
            raise UsageError(f"{path}: {error}") from None

    name, _, settings = text.partition(":")
    if name not in ZOO:
        raise UsageError(
            f"no model file and no network of the zoo: {text!r}{suggest(name, ZOO)}; the zoo has {', '.join(ZOO)}"
        )
    try:
        return Network(text, build_quantized(name, **_parameters(settings)).SerializeToString())
    except (ValueError, TypeError) as error:
        raise UsageError(f"network {text!r}: {error}") from None


def _fix(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]], used: set[str]) -> str:
    """Writes the shapes of all inputs into the model, so that its digest covers them; 1 for an open batch, of which
    the note says so."""
    weights = {i.name for i in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in weights]
    own = {i.name: shapes[i.name] for i in inputs if i.name in shapes}
    used.update(own)
    note = batch_note(inputs, own, 1)
    for value, shape in zip(inputs, input_shapes(inputs, own, 1)):
        if value.name in own or any(not d.HasField("dim_value") for d in value.type.tensor_type.shape.dim):
            value.CopyFrom(helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, shape))
    return note


def _parameters(text: str) -> dict[str, Any]:
    found = {}
    for item in filter(None, text.split(",")):
        name, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f"parameters are NAME=VALUE, not {item!r}")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found
