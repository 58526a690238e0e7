"""Custom operators of torch as nodes of ONNX, in a domain and with a name as torch has them, for kernels to run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import onnx

if TYPE_CHECKING:
    import torch

_SCHEMA = onnx.defs.OpSchema
_KINDS = onnx.defs.OpSchema.AttrType
#: Namespaces whose operators torch's exporter knows itself, or takes apart.
_KNOWN = ("aten", "prim", "prims", "quantized_decomposed", "torchvision", "torchao", "higher_order")
#: Python's and ONNX's type of an attribute, by torch's.
_ATTRIBUTES: dict[str, tuple[Any, Any]] = {
    "int": (int, _KINDS.INT), "SymInt": (int, _KINDS.INT), "bool": (bool, _KINDS.INT), "float": (float, _KINDS.FLOAT),
    "str": (str, _KINDS.STRING), "List[int]": (Sequence[int], _KINDS.INTS),
    "List[float]": (Sequence[float], _KINDS.FLOATS),
}  # fmt: skip
_TENSORS = ("Tensor", "Optional[Tensor]")


def translations(graph: torch.fx.Graph) -> dict[Any, Callable[..., Any]]:
    """Returns the functions that make nodes of ONNX of the custom operators of a graph, for torch's exporter.

    Tensors are inputs, numbers and text attributes. Operators of other types, or of several results, are left out.
    """
    found = {}
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op == "call_function" and schema is not None and _is_custom(schema):
            found[node.target] = _translation(schema)
    return found


def _is_custom(schema: Any) -> bool:
    """Returns True for an operator that torch does not know, of tensors, numbers and text, and of one result."""
    kinds = [str(argument.type) for argument in schema.arguments]
    fits = all(kind in _ATTRIBUTES or kind in _TENSORS for kind in kinds)
    returns = [str(value.type) for value in schema.returns]
    return schema.name.split("::")[0] not in _KNOWN and fits and returns == ["Tensor"] and kinds[0] == "Tensor"


def _translation(schema: Any) -> Callable[..., Any]:
    """Returns the function that makes the node of an operator."""
    from onnxscript import values

    domain, name = schema.name.split("::")
    tensors = [a for a in schema.arguments if str(a.type) in _TENSORS]
    numbers = {a.name: a for a in schema.arguments if str(a.type) in _ATTRIBUTES}
    option = _SCHEMA.FormalParameterOption
    inputs = [
        _SCHEMA.FormalParameter(
            a.name, f"T{i}", param_option=option.Single if str(a.type) == "Tensor" else option.Optional
        )
        for i, a in enumerate(tensors)
    ]
    every = list(onnx.defs.get_schema("Shape").type_constraints[0].allowed_type_strs)
    kinds = [(f"T{i}", every, "") for i in range(len(tensors))]
    op = values.Op(values.Opset(domain, 1), name, _SCHEMA(
        name, domain, 1, inputs=inputs, outputs=[_SCHEMA.FormalParameter("result", "T0")], type_constraints=kinds,
        attributes=[_SCHEMA.Attribute(n, _ATTRIBUTES[str(a.type)][1], required=False) for n, a in numbers.items()],
    ))  # fmt: skip
    own = inspect.Signature([_parameter(a) for a in schema.arguments])

    def translate(*arguments: Any, **options: Any) -> Any:
        bound = own.bind(*arguments, **options)
        bound.apply_defaults()
        given = {n: int(v) if isinstance(v, bool) else v for n, v in bound.arguments.items() if n in numbers}
        return op(*(bound.arguments[a.name] for a in tensors), **given)

    translate.__name__ = name
    translate.__signature__ = own  # type: ignore[attr-defined]  # what the exporter reads types from
    translate.__annotations__ = {n: _ATTRIBUTES[str(a.type)][0] for n, a in numbers.items()}
    return translate


def _parameter(argument: Any) -> inspect.Parameter:
    """Returns an argument of an operator as a parameter."""
    default = argument.default_value if argument.has_default_value() else inspect.Parameter.empty
    kind = _ATTRIBUTES.get(str(argument.type), (inspect.Parameter.empty,))[0]
    return inspect.Parameter(argument.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)
