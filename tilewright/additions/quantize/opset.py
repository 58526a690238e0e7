"""A model written anew for a later operator set."""

from __future__ import annotations

import onnx
from onnx import defs, helper

from tilewright.compiler.onnx.onnx_graphs import all_nodes
from tilewright.errors import UsageError
from tilewright.quantize.observe import copied, light

LEAST = 13
"""The first operator set whose DequantizeLinear takes one scale per channel."""
TARGETS = (17, 15, 13)
"""Operator sets to upgrade older models to, the best first."""


def opset_of(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operators; 1 where the model names none."""
    return max((int(x.version) for x in model.opset_import if x.domain in ("", "ai.onnx")), default=1)


def upgrade(model: onnx.ModelProto, least: int = LEAST) -> onnx.ModelProto:
    """The model with an operator set of at least `least`; itself if it has one. A model with norms in parts gets one
    that has LayerNormalization, which onnxruntime then makes of the parts, if it can be converted.

    Where no operator of the model has changed, the version alone is raised; else onnx's version converter does it.

    Raises:
        UsageError: onnx cannot convert it.
    """
    version = opset_of(model)
    wanted = max(least, TARGETS[0]) if _has_norms_in_parts(model) else least
    if version >= wanted:
        return model
    reason = ""
    targets = [t for t in TARGETS if t >= max(least, version + 1)] or [least]
    for target in targets:
        if not _changed(model, version, target):
            return with_opset(model, target)
    for target in targets:
        try:
            return _converted(model, target)
        except Exception as error:  # the converter raises RuntimeError and ValueError of many kinds
            reason = reason or _reason(error)
    if version >= least:
        return model
    raise UsageError(
        f"the model has opset {version}, of {least} or later is needed, and onnx cannot convert it: {reason}; export "
        f"it again with opset_version={TARGETS[0]}"
    )


def _has_norms_in_parts(model: onnx.ModelProto) -> bool:
    return {"ReduceMean", "Sqrt"} <= {node.op_type for node in model.graph.node}


def with_opset(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    """Converts the model to another version of ONNX's operators."""
    changed = copied(model)
    kept = [x for x in model.opset_import if x.domain not in ("", "ai.onnx")]
    del changed.opset_import[:]
    changed.opset_import.extend([helper.make_opsetid("", version), *kept])
    changed.ir_version = max(changed.ir_version, 8)
    return changed


def _converted(model: onnx.ModelProto, target: int) -> onnx.ModelProto:
    from onnx import version_converter

    given = light(model)
    if model.ir_version < 4:  # where initialisers had to be inputs too; the converter then knows no constants
        given.ir_version = 8
    found = version_converter.convert_version(given, target)
    inputs = {x.name for x in model.graph.input}
    kept = [x for x in found.graph.input if x.name in inputs]
    del found.graph.input[:]
    found.graph.input.extend(kept)
    small = {x.name for x in given.graph.initializer}
    found.graph.initializer.extend(x for x in model.graph.initializer if x.name not in small)
    found.ir_version = max(found.ir_version, 8)
    names = [x.name for x in model.graph.output]
    if [x.name for x in found.graph.output] != names:
        raise ValueError("it renames outputs")
    return found


def _changed(model: onnx.ModelProto, version: int, target: int) -> bool:
    """Whether any operator of the model, in branches too, means something else in the later set."""
    for node in all_nodes(model.graph.node):
        if node.domain in ("", "ai.onnx"):
            try:
                before, after = (defs.get_schema(node.op_type, v, "").since_version for v in (version, target))
            except Exception:  # no such operator in one of them
                return True
            if before != after:
                return True
    return False


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if lines else type(error).__name__
    return text.rpartition(": ")[2] if text.startswith("/") else text
