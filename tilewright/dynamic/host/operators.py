"""The table of ops that run on the host, on values that are no tensors of numbers or not yet known in shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from tilewright.compiler.errors import UnsupportedError
from tilewright.dynamic.values import Value

#: Runs a subgraph with arguments for its inputs.
RunBody = Callable[[onnx.GraphProto, Sequence[Value]], list[Value]]


@dataclass
class HostNode:
    """One node to run on the host.

    Attributes:
        op, domain, label: for messages `label`.
        version: opset version of the node's domain in the model.
        attrs: decoded; subgraphs are GraphProtos.
        outputs: names, "" where nobody wants the output.
        body: runs a subgraph.
        evaluate: runs the node by onnx's reference implementation.
    """

    op: str
    domain: str
    label: str
    version: int
    attrs: dict[str, Any]
    outputs: list[str]
    body: RunBody = field(repr=False)
    evaluate: Callable[[Sequence[np.ndarray | None]], list[np.ndarray]] = field(repr=False)

    def error(self, text: str) -> UnsupportedError:
        return UnsupportedError(f"{self.label}: {text}")


HostOp = Callable[[HostNode, list[Value]], Sequence[Value]]
HOST: dict[tuple[str, str], HostOp] = {}


def host_op(*names: str, domain: str = "") -> Callable[[HostOp], HostOp]:
    """Registers how the host runs the named ops: from one value per input (None for missing ones) to one per output."""

    def register(function: HostOp) -> HostOp:
        for name in names:
            HOST[domain, name] = function
        return function

    return register
