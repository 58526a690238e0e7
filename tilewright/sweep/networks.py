"""The networks of a sweep: files, or networks of the zoo."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from compiler.errors import CompileError
from compiler.importer.external_data import read_model
from tilewright.errors import UsageError
from tilewright.files import is_tflite
from tilewright.zoo import ZOO, build_quantized

#: MLPerf Tiny's four, and one of ImageNet size; from the zoo, so that they are there on a fresh machine.
DEFAULT_NETWORKS = ("resnet8", "ds_cnn", "vww", "autoencoder", "mobilenet_v2")


@dataclass(frozen=True)
class Network:
    """A model to compile.

    Attributes:
        name: as results show it.
        content: bytes of the ONNX or TFLite file.
    """

    name: str
    content: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        """16 hex digits of the content."""
        return hashlib.sha256(self.content).hexdigest()[:16]


def resolve(names: Sequence[str]) -> list[Network]:
    """Networks by file name or by name in the zoo; "mobilenet_v2:alpha=0.35,size=64" sets parameters there.

    Raises:
        UsageError: unknown, unreadable, or two of one name.
    """
    found = [_resolve(name) for name in names]
    for n, network in enumerate(found):
        if network.name in [other.name for other in found[:n]]:
            raise UsageError(f"two networks are named {network.name!r}")
    return found


def network_name(text: str) -> str:
    """The name results show for what `resolve` was given."""
    return Path(text).stem if Path(text).suffix.lower() in (".onnx", ".tflite") else text


def _resolve(text: str) -> Network:
    path = Path(text)
    if path.is_file():
        if is_tflite(path):
            return Network(network_name(text), path.read_bytes())
        try:  # by onnx, so that weights in files beside it come along
            return Network(network_name(text), read_model(path).SerializeToString())
        except (DecodeError, ValueError, OSError, CompileError) as error:
            raise UsageError(f"cannot read model {path}: {error}") from None

    name, _, settings = text.partition(":")
    if name not in ZOO:
        raise UsageError(f"no model file and no network of the zoo: {text!r}; the zoo has {', '.join(ZOO)}")
    try:
        return Network(text, build_quantized(name, **_parameters(settings)).SerializeToString())
    except (ValueError, TypeError) as error:
        raise UsageError(f"network {text!r}: {error}") from None


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
