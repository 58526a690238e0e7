"""Small ONNX models, and onnxruntime as the yardstick beside them: the one place where tests make either."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.checking.saturation import int8_activations

Spec = (
    Any  # of a value: an array like it; (element type of TensorProto, shape); a shape of float32; None: to be inferred
)
Values = dict[str, Any]


def session(
    model: onnx.ModelProto | Path, *, optimize: bool = True, optimized: Path | None = None
) -> onnxruntime.InferenceSession:
    """A session with exact integer kernels and one thread, that warns of nothing.

    Args:
        model: the model, or its file.
        optimize: False: each node is run as it stands in the model.
        optimized: file that gets the optimised model.
    """
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    proto = onnx.load(model, load_external_data=False) if isinstance(model, Path) else model
    if not int8_activations(proto):
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def run(model: onnx.ModelProto | Path, feeds: Mapping[str, Any], **options: Any) -> Values:
    """onnxruntime's outputs by name; `options` as for `session`."""
    running = session(model, **options)
    names = [o.name for o in running.get_outputs()]
    return dict(zip(names, running.run(names, dict(feeds)), strict=True))


def assert_equal(model: onnx.ModelProto, *inputs: Mapping[str, Any], **options: Any) -> None:
    """Compiled for `tiny` the model gives onnxruntime's bytes.

    Args:
        inputs: of one run each.
        options: as for `tilewright.compile`.
    """
    running, program = session(model), tw.compile(model, "tiny", cache=False, **options)
    names = [o.name for o in running.get_outputs()]
    for feeds in inputs:
        got = tw.Device("functional").run(program, feeds)
        for name, value in zip(names, running.run(names, dict(feeds)), strict=True):
            np.testing.assert_array_equal(got[name], value, err_msg=name)


def value_info(name: str, spec: Spec) -> onnx.ValueInfoProto:
    """Type and shape of a value."""
    if spec is None:
        return onnx.ValueInfoProto(name=name)
    if isinstance(spec, np.ndarray | np.generic):
        text = spec.dtype.kind in "OU"
        return helper.make_tensor_value_info(
            name, TensorProto.STRING if text else helper.np_dtype_to_tensor_dtype(spec.dtype), spec.shape
        )
    if isinstance(spec, tuple) and len(spec) == 2 and (spec[1] is None or isinstance(spec[1], list | tuple)):
        return helper.make_tensor_value_info(name, *spec)
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, spec)


def graph_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Spec],
    outputs: Mapping[str, Spec] | Iterable[str],
    constants: Mapping[str, Any] | None = None,
) -> onnx.GraphProto:
    """A graph; outputs given by name alone have the type that is inferred."""
    results = outputs if isinstance(outputs, Mapping) else dict.fromkeys(outputs)
    return helper.make_graph(
        nodes,
        "graph",
        [value_info(n, s) for n, s in inputs.items()],
        [value_info(n, s) for n, s in results.items()],
        [numpy_helper.from_array(np.array(v, order="C"), n) for n, v in (constants or {}).items()],
    )


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Spec],
    outputs: Mapping[str, Spec] | Iterable[str],
    constants: Mapping[str, Any] | None = None,
    *,
    opset: int = 21,
    **domains: int,
) -> onnx.ModelProto:
    """A model of one graph.

    Args:
        nodes: in the order they run.
        inputs: by name what `Spec` says.
        outputs: the same, or names alone: their types are inferred.
        constants: initialisers by name.
        opset: version of ONNX's own operators.
        domains: versions of other domains by name; a domain that stands in a node and not here has version 1.
    """
    versions = {"": opset, **{n.domain: 1 for n in nodes if n.domain}, **domains}
    return helper.make_model(
        graph_of(nodes, inputs, outputs, constants),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in versions.items()],
        ir_version=10,
    )
