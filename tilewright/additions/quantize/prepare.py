"""Any float ONNX model as one that is easy to quantise: shapes fixed, a recent operator set, nothing left to fold."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError, EncodeError
from onnx import helper, numpy_helper

from tilewright.common import temporary
from tilewright.common.installation import require
from tilewright.common.quiet import quiet
from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.onnx import import_onnx
from tilewright.compiler.onnx.equations import check_equations
from tilewright.compiler.onnx.external_data import read_model
from tilewright.compiler.onnx.onnx_graphs import sort_model
from tilewright.errors import UsageError
from tilewright.quantize.branches import inline_branches
from tilewright.quantize.einsums import expand
from tilewright.quantize.fold import fold
from tilewright.quantize.layers import Kind, Network
from tilewright.quantize.long_kernels import shorten
from tilewright.quantize.memory import trim_heap
from tilewright.quantize.names import clear_names
from tilewright.quantize.observe import copied, first_line, light, run, session
from tilewright.quantize.opset import opset_of, upgrade
from tilewright.quantize.recipe import Sample
from tilewright.quantize.recurrent import split_inputs
from tilewright.quantize.volumes import flatten
from tilewright.store.files import is_tflite

QUANTISED = {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "QGemm", "DynamicQuantizeLinear"}

MOST_CHANGE = 0.01
"""Largest difference after preparing, which rounds floats in another order: relative to the largest element, and as a
share of an output's elements. Beyond it the network is another one."""

MOST_OWNERS = 3
"""Maximum of products that share weights and get copies of them."""

Shapes = Mapping[str, Sequence[int]]
Values = Mapping[str, np.ndarray]


def read(model: str | Path | onnx.ModelProto) -> onnx.ModelProto:
    """The float model in a file, with its external data; a ModelProto as it is.

    Raises:
        UsageError: no ONNX model, or one that is quantised already. CompileError: an equation of Einsum that is none.
    """
    loaded = _load(model) if isinstance(model, str | Path) else model
    done = {n.op_type for n in loaded.graph.node} & QUANTISED
    if done:
        raise UsageError(f"the model is quantised already: it has {', '.join(sorted(done))}")
    check_equations(loaded)
    return loaded


def _load(path: str | Path) -> onnx.ModelProto:
    if Path(path).is_file() and is_tflite(path):
        raise UsageError(f"{path} is a TFLite model; here ONNX models are accepted")
    try:
        model = read_model(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except DecodeError:
        raise UsageError(f"{path} is no ONNX model") from None
    if not model.graph.node:
        raise UsageError(f"{path} is no ONNX model, or one without nodes")
    sort_model(model)
    return model


def fix(model: onnx.ModelProto, shapes: Shapes | None = None, values: Values | None = None) -> onnx.ModelProto:
    """The model, copied, with the inputs that are wanted.

    Args:
        shapes: sizes of inputs, open in the model or not.
        values: of inputs that become constants.

    Raises:
        UsageError: the model has no such inputs.
    """
    made = copied(model)
    drop_constant_inputs(made)
    separate_open_sizes(made)
    fix_shapes(made, shapes or {})
    fix_values(made, values or {})
    return made


def prepare(model: onnx.ModelProto, shapes: Shapes | None = None, values: Values | None = None) -> onnx.ModelProto:
    """A float model that computes what the given one does, and is written so that it can be quantised well.

    Its nodes have unique names, constants are initialisers, constant sub-graphs and branches are gone, batch norms are
    part of the product before them, and each product has weights and bias of its own.

    Args:
        model: left unchanged.
        shapes, values: as for `fix`.

    Raises:
        UsageError: shapes or values do not fit, the operator set cannot be upgraded, onnxruntime cannot load the
            model, or see `names.clear_names`.
    """
    return tidy(rewrite(fix(model, shapes, values)))


def rewrite(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in operators that the NPU has, optimised; the first half of `prepare`. This is what onnxruntime's plain
    quantiser gets, too."""
    made = upgrade(inline_branches(model))
    constants_to_initializers(made)
    clear_names(made)
    made = infer_shapes(optimise(made))
    name_nodes(made)
    return infer_shapes(made) if shorten(made) | flatten(made) | expand(made) else made


def tidy(made: onnx.ModelProto) -> onnx.ModelProto:
    """Folds into products what can be, in what `rewrite` has made, which changes; the second half of `prepare`."""
    if split_inputs(made):
        made = infer_shapes(made)
    fold(made)
    own_constants(made)
    return infer_shapes(copied(made))


def require_same(given: onnx.ModelProto, prepared: onnx.ModelProto, sample: Sample) -> None:
    """Raises `UsageError` if the prepared model computes something else than the one it was made of: onnx's version
    converter is not right for every model."""
    random = [n.op_type for n in given.graph.node if "Random" in n.op_type or n.op_type in ("Multinomial", "Bernoulli")]
    if random:
        return
    wanted = run(session(given), sample)
    trim_heap()
    found = run(session(prepared), sample)
    trim_heap()
    name = other_output(wanted, found)
    if name is not None:
        raise UsageError(
            f"upgraded from opset {opset_of(given)} to {opset_of(prepared)} the model gives another output "
            f"{name!r}: export it again with opset_version={opset_of(prepared)}"
        )


def other_output(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> str | None:
    """The name of a float output that differs by more than the order of roundings makes; None without one."""
    for name, value in wanted.items():
        if not isinstance(value, np.ndarray) or value.dtype != np.float32 or not value.size:
            continue
        limit = MOST_CHANGE * float(np.abs(value[np.isfinite(value)]).max(initial=0.0))
        with np.errstate(invalid="ignore"):
            other = found[name]
            if other.shape != value.shape or np.mean(np.abs(other - value) > limit) > MOST_CHANGE:
                return name
    return None


def require_products(network: Network) -> None:
    """Raises `UsageError` if there is nothing that is worth quantising, and says where it may be."""
    if any(layer.kind is Kind.PRODUCT for layer in network.layers):
        return
    for node in network.nodes:
        if node.op_type in ("If", "Loop", "Scan"):
            deciding = f" by {node.input[0]!r}" if node.op_type == "If" else ""
            raise UsageError(
                f"there is nothing to quantise outside of {node.op_type} {node.name!r}, which is chosen{deciding} "
                "while the model runs: fix what decides it, an input with --value NAME=VALUE or open sizes with --shape"
            )
    packed = sum(node.op_type == "MatMulNBits" for node in network.nodes)
    already = f"; the weights of its {packed} MatMulNBits are integers already" if packed else ""
    raise UsageError(
        f"there is nothing to quantise: the model has no Conv, Gemm or MatMul with constant float weights{already}"
    )


def fix_shapes(model: onnx.ModelProto, shapes: Shapes) -> None:
    """Gives inputs sizes, also others than the file has: exporters often write the size of their example as the only
    one. Raises `UsageError` for inputs that the model does not have."""
    inputs = {x.name: x for x in model.graph.input}
    for name, sizes in shapes.items():
        if name not in inputs:
            raise UsageError(f"--shape {name}: the model's inputs are {', '.join(inputs)}")
        kind = inputs[name].type.tensor_type
        if kind.HasField("shape") and len(kind.shape.dim) != len(sizes):
            raise UsageError(f"--shape {name} has {len(sizes)} sizes; the input has {len(kind.shape.dim)}")
        dims = [onnx.TensorShapeProto.Dimension(dim_value=int(n)) for n in sizes]
        kind.shape.CopyFrom(onnx.TensorShapeProto(dim=dims))
    if shapes:
        del model.graph.value_info[:]  # said for other sizes
        for output in model.graph.output:
            if output.type.HasField("tensor_type"):
                output.type.tensor_type.ClearField("shape")


def fix_values(model: onnx.ModelProto, values: Values) -> None:
    """Makes inputs constants. Raises `UsageError` for inputs that the model does not have."""
    names = [x.name for x in model.graph.input]
    for name, value in values.items():
        if name not in names:
            raise UsageError(f"--value {name}: the model's inputs are {', '.join(names)}")
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    kept = [x for x in model.graph.input if x.name not in values]
    del model.graph.input[:]
    model.graph.input.extend(kept)


def separate_open_sizes(model: onnx.ModelProto) -> None:
    """Removes sizes "?" and negative ones, which exporters write for any open size: two of them are not the same
    size."""
    for x in [*model.graph.input, *model.graph.value_info, *model.graph.output]:
        for dim in x.type.tensor_type.shape.dim:
            if dim.dim_param in ("?", "-1", "None") or (dim.HasField("dim_value") and dim.dim_value < 0):
                dim.Clear()


def drop_constant_inputs(model: onnx.ModelProto) -> None:
    """Removes initialisers from the inputs, where older files list them, which keeps onnxruntime from folding them."""
    constants = {x.name for x in model.graph.initializer}
    kept = [x for x in model.graph.input if x.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.ir_version = max(model.ir_version, 4)


_OPTIMISE = """
import sys
import onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
options.optimized_model_filepath = sys.argv[2]
try:
    onnxruntime.InferenceSession(
        sys.argv[1], options, providers=["CPUExecutionProvider"], disabled_optimizers=["MatMulAddFusion"]
    )
except Exception as error:
    print(error)
    sys.exit(1)
"""
"""Optimises file 1 to file 2. MatMul and Add become Gemm in `fold` instead, where that can be quantised."""


def optimise(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model after onnxruntime's basic optimisations, which keep to ONNX's own operators: constants folded,
    Identity and Dropout gone, batch norms folded into Conv.

    They run in a process of their own: for some models with branches in branches onnxruntime crashes. Such a model is
    returned as it is.

    Raises:
        UsageError: onnxruntime cannot load the model.
        MissingPackageError: onnxruntime is not installed.
    """
    require("onnxruntime")
    with temporary.Folder(prefix="tilewright-quantize-") as folder:
        given, made = Path(folder) / "given.onnx", Path(folder) / "made.onnx"
        try:
            given.write_bytes(model.SerializeToString())
        except (ValueError, EncodeError) as error:
            raise UsageError(f"the model is too large to quantise: {first_line(error)}") from None
        ran = subprocess.run(
            [sys.executable, "-c", _OPTIMISE, str(given), str(made)], stdout=subprocess.PIPE, text=True, check=False
        )
        if ran.returncode == 1:
            raise UsageError(f"onnxruntime cannot load the model: {first_line(ValueError(ran.stdout))}")
        if ran.returncode != 0 or not made.exists():
            return model
        found = onnx.load(str(made))
    _drop_unused_opsets(found)
    return found


def constants_to_initializers(model: onnx.ModelProto) -> None:
    """Turns Constant nodes of the main graph that hold a tensor into initialisers."""
    nodes = []
    for node in model.graph.node:
        value = next((a.t for a in node.attribute if a.name == "value"), None) if node.op_type == "Constant" else None
        if value is None:
            nodes.append(node)
            continue
        tensor = model.graph.initializer.add()
        tensor.CopyFrom(value)
        tensor.name = node.output[0]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _drop_unused_opsets(model: onnx.ModelProto) -> None:
    """Removes operator sets that nothing uses, which onnxruntime lists."""
    used = {"", "ai.onnx"} | {node.domain for node in model.graph.node} | {f.domain for f in model.functions}
    kept = [x for x in model.opset_import if x.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def own_constants(model: onnx.ModelProto) -> None:
    """Copies weights and biases that several products share, so that each may be changed. Weights of more than
    `MOST_OWNERS` stay: an unrolled recurrent network has them in every step."""
    constants = {x.name: x for x in model.graph.initializer}
    owners = Counter(node.input[1] for node in model.graph.node if len(node.input) > 1)
    seen: set[str] = set()
    for node in model.graph.node:
        for at, name in enumerate(node.input):
            if name not in constants:
                continue
            many = at == 1 and owners[name] > MOST_OWNERS
            if node.op_type in ("Conv", "ConvTranspose", "Gemm") and at in (1, 2) and name in seen and not many:
                copy = onnx.TensorProto()
                copy.CopyFrom(constants[name])
                copy.name = f"{name}_{len(model.graph.initializer)}"
                model.graph.initializer.append(copy)
                node.input[at] = copy.name
            seen.add(name)


def name_nodes(model: onnx.ModelProto) -> None:
    """Gives every node a name that no other has."""
    seen: set[str] = set()
    for index, node in enumerate(model.graph.node):
        name = node.name or f"{node.op_type}_{index}"
        while name in seen:
            name = f"{name}_{index}"
        node.name = name
        seen.add(name)


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, changed in place, with types and shapes of the tensors inside, as far as they are known."""
    with contextlib.suppress(Exception):  # it refuses models that onnxruntime runs
        _take_shapes(model, onnx.shape_inference.infer_shapes(light(model), data_prop=True))
    if all(_known(model)):
        return model
    with contextlib.suppress(Exception), quiet():
        from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

        found = SymbolicShapeInference.infer_shapes(light(model), auto_merge=True)
        if found is not None:
            _take_shapes(model, found)
    if not all(_known(model)):
        _take_imported(model)
    return model


def _take_imported(model: onnx.ModelProto) -> None:
    """Takes types and shapes from the compiler's importer, which knows operators that onnx's inference does not."""
    try:
        tensors = import_onnx(model).tensors
    except CompileError:  # it asks for sizes, say
        return
    infos = {x.name: x for x in [*model.graph.value_info, *model.graph.output]}
    for name in dict.fromkeys(o for node in model.graph.node for o in node.output if o in tensors):
        kind = helper.np_dtype_to_tensor_dtype(tensors[name].dtype)
        info = infos[name] if name in infos else model.graph.value_info.add()
        info.CopyFrom(helper.make_tensor_value_info(name, kind, tensors[name].shape))


def _take_shapes(model: onnx.ModelProto, found: onnx.ModelProto) -> None:
    for field in ("value_info", "output"):
        values = list(getattr(found.graph, field))
        del getattr(model.graph, field)[:]
        getattr(model.graph, field).extend(values)


def _known(model: onnx.ModelProto) -> Iterator[bool]:
    """Whether the type of each tensor is known."""
    infos = {x.name for x in [*model.graph.value_info, *model.graph.output] if x.type.tensor_type.elem_type}
    for node in model.graph.node:
        for name in node.output:
            yield not name or name in infos
