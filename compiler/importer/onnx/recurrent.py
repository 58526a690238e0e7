"""RNN, GRU, LSTM: one layout, activations always listed."""

from __future__ import annotations

from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode

_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


@handles("RNN", "GRU", "LSTM")
def recurrent(builder: OnnxBuilder, node: OnnxNode) -> None:
    direction = node.attrs.get("direction", "forward")
    node.accept("direction", "forward", "reverse", "bidirectional")
    count = 2 if direction == "bidirectional" else 1
    attrs = {k: v for k, v in node.attrs.items() if k != "output_sequence"}
    attrs["activations"] = attrs.get("activations") or _DEFAULTS[node.op] * count
    if len(attrs["activations"]) != len(_DEFAULTS[node.op]) * count:
        raise CompileError(
            f"{node.label}: activations={attrs['activations']} must have {len(_DEFAULTS[node.op]) * count} entries"
        )
    for k, name in enumerate("XWR"):
        if len(shape := builder.shape(node.input(k))) != 3:
            raise CompileError(f"{node.label}: {name} has shape {list(shape)}; 3 dimensions are accepted")
    if "hidden_size" not in attrs:
        attrs["hidden_size"] = builder.shape(node.input(2))[-1]
    inputs, outputs = list(node.inputs), list(node.outputs)
    if attrs.pop("layout", 0):
        for k in (0, 5, 6):
            if node.input(k):
                inputs[k] = builder.emit("Transpose", [node.input(k)], attrs={"perm": [1, 0, 2]})
        outputs = [builder.fresh(name) if name else "" for name in outputs]
    builder.emit(node.op, inputs, outputs, attrs)
    for name, inner, perm in zip(node.outputs, outputs, ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])):
        if name != inner:
            builder.emit("Transpose", [inner], [name], {"perm": perm})
