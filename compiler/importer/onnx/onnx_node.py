"""A node of an ONNX model before its import."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from tilewright.compiler.errors import CompileError, UnsupportedError


class OnnxNode(Struct):
    """A node of the model, with its attributes decoded and nothing normalised.

    Attributes:
        version: opset version of the node's domain in this model.
        label: `Op 'name'` for messages.
    """

    op: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    domain: str = ""
    version: int = 1

    @property
    def label(self) -> str:
        return f"{self.op} {self.name or (self.outputs[0] if self.outputs else '')!r}"

    def input(self, index: int) -> str:
        """The name of an input, empty where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def output(self, index: int) -> str:
        return self.outputs[index] if index < len(self.outputs) else ""

    def positive(self, attr: str, default: int) -> int:
        """A positive integer attribute. Raises CompileError where it is not 1 or more."""
        value = int(self.attrs.get(attr, default))
        if value < 1:
            raise CompileError(f"{self.label}: {attr}={value} must be at least 1")
        return value

    def accept(self, attr: str, *values: Any) -> None:
        """Raises UnsupportedError unless the attribute is missing or one of `values`."""
        if attr in self.attrs and self.attrs[attr] not in values:
            given = self.attrs[attr]
            raise UnsupportedError(
                f"{self.label}: {attr}={given!r} is not supported; accepted: {', '.join(map(repr, values))}"
            )
