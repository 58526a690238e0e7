"""RNN, GRU, LSTM: one layout, activations always listed."""

from __future__ import annotations

from compiler.errors import CompileError
from compiler.importer.builder import Builder
from compiler.importer.registry import OnnxNode, handles

_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


@handles("RNN", "GRU", "LSTM")
def recurrent(builder: Builder, node: OnnxNode) -> None:
    direction = node.attrs.get("direction", "forward")
    node.accept("direction", "forward", "reverse", "bidirectional")
    count = 2 if direction == "bidirectional" else 1
    attrs = {k: v for k, v in node.attrs.items() if k != "output_sequence"}
    attrs["activations"] = attrs.get("activations") or _DEFAULTS[node.op] * count
    if len(attrs["activations"]) != len(_DEFAULTS[node.op]) * count:
        raise CompileError(
            f"{node.label}: activations={attrs['activations']} must have {len(_DEFAULTS[node.op]) * count} entries"
        )
    if "hidden_size" not in attrs:
        attrs["hidden_size"] = builder.shape(node.input(2))[-1]
    builder.emit(node.op, node.inputs, node.outputs, attrs)
