"""Every way a model can be wrong ends in one CompileError of one line that says what and where."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.common.onnx_models import model_of
from tests.reference.quantized_cases import CASES
from tests.reference.quantized_models import Model
from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.importer.onnx import import_onnx
from tilewright.compiler.passes import run_passes


def small(name: str = "conv", seed: int = 3) -> onnx.ModelProto:
    model = Model(np.int8, seed)
    CASES[name](model, 2)
    return model.build()


def one_node(
    op: str, shapes: list[list[int]], domain: str = "", opset: int = 21, dtype: int = TensorProto.FLOAT, **attrs: object
) -> onnx.ModelProto:
    inputs = {f"x{i}": (dtype, s) for i, s in enumerate(shapes)}
    node = helper.make_node(op, list(inputs), ["y"], name="it", domain=domain, **attrs)
    return model_of([node], inputs, {"y": (dtype, ["n"])}, opset=opset)


def refused(source: object, *words: str, kind: type[CompileError] = CompileError, **more: object) -> None:
    with pytest.raises(kind) as caught:
        import_onnx(source, **more)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text, text


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scale(value: float) -> None:
    model = small()
    quantizer = next(n for n in model.graph.node if n.op_type == "QuantizeLinear")
    for i in model.graph.initializer:
        if i.name == quantizer.input[1]:
            i.CopyFrom(numpy_helper.from_array(np.float32(value), i.name))
    refused(model, "QuantizeLinear", quantizer.input[1], f"{value:g}", "must be finite")


def test_scale_shape() -> None:
    model = small()
    quantizer = next(n for n in model.graph.node if n.op_type == "QuantizeLinear")
    for i in model.graph.initializer:
        if i.name in quantizer.input[1:]:
            value = numpy_helper.to_array(i)
            i.CopyFrom(numpy_helper.from_array(np.full(3, value), i.name))
    refused(model, "3 values", "axis 1", "[1, 4, 9, 10]")


def test_zero_point_type() -> None:
    model = small()
    constants = {i.name for i in model.graph.initializer}
    node = next(n for n in model.graph.node if n.op_type == "DequantizeLinear" and n.input[0] in constants)
    for i in model.graph.initializer:
        if i.name == node.input[2]:
            i.CopyFrom(numpy_helper.from_array(np.full(numpy_helper.to_array(i).shape, 200, np.uint8), i.name))
    refused(model, "zero point", "uint8", "int8")


def test_not_a_model(tmp_path: Path) -> None:
    refused(tmp_path / "none.onnx", "none.onnx", "cannot be read")
    (tmp_path / "text.onnx").write_text("hello, world")
    refused(tmp_path / "text.onnx", "text.onnx", "not an ONNX model")
    (tmp_path / "empty.onnx").write_bytes(b"")
    refused(tmp_path / "empty.onnx", "empty.onnx", "no graph")


def test_external_data_missing(tmp_path: Path) -> None:
    model = small()
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert import_onnx(tmp_path / "m.onnx").outputs
    (tmp_path / "weights.bin").unlink()
    refused(tmp_path / "m.onnx", "m.onnx", "external data")


def test_unknown() -> None:
    refused(one_node("Flurb", [[1]]), "Flurb 'it'", "no such op", kind=UnsupportedError)
    refused(one_node("Flurb", [[1]], domain="my.own"), "'my.own'", "com.microsoft", kind=UnsupportedError)
    refused(one_node("Flurb", [[1]], domain="com.microsoft"), "Flurb 'it'", "supported: ", kind=UnsupportedError)
    refused(one_node("Relu", [[1]], colour=1), "colour")
    refused(one_node("Relu", [[1]], opset=99), "opset 99", "accepted", kind=UnsupportedError)
    refused(one_node("Identity", [[1]], dtype=TensorProto.STRING), "string", kind=UnsupportedError)
    refused(one_node("NonZero", [[2, 2]]), "NonZero 'it'", "compile time", kind=UnsupportedError)


def test_open_sizes_of_several_inputs() -> None:
    """One option for each input whose sizes do not follow from those before it."""
    floats = TensorProto.FLOAT
    shapes = {"a": ["batch", 4], "b": ["batch", "steps"], "c": ["batch", 7], "d": [3, None]}
    inputs = [helper.make_tensor_value_info(name, floats, shape) for name, shape in shapes.items()]
    node = helper.make_node("Concat", list(shapes), ["y"], axis=1)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", floats, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    refused(model, "'a' leaves dimension 0", "--shape a=1,4 --shape b=1,128 --shape d=3,128")


def test_inconsistent() -> None:
    refused(one_node("MatMul", [[2, 3], [4, 5]]), "MatMul 'it'", "[2, 3]")
    refused(one_node("Conv", [[1, 4, 5, 5], [8, 3, 3, 3]]), "Conv 'it'", "[8, 3, 3, 3]")
    refused(one_node("Conv", [[1, 1, 4, 9], [1, 1, 3, 12]]), "Conv 'it'", "a window of 12 does not fit a length of 9")
    refused(one_node("Concat", [[1, 2]], axis=7), "axis 7", "-2..1")
    for op, operands, axis in (
        ("GatherElements", 2, "axis"),
        ("ScatterElements", 3, "axis"),
        ("ReverseSequence", 2, "time_axis"),
        ("ReverseSequence", 2, "batch_axis"),
        ("LayerNormalization", 2, "axis"),
        ("LpNormalization", 1, "axis"),
        ("RMSNormalization", 2, "axis"),
    ):
        refused(one_node(op, [[2, 3]] * operands, opset=23, **{axis: 5}), op, "axis 5", "-2..1")
    for op, operands, counted in (
        ("GroupNormalization", 3, "num_groups"), ("LRN", 1, "size"), ("GlobalLpPool", 1, "p"), ("LpPool", 1, "p")
    ):  # fmt: skip
        more = {"kernel_shape": [2, 2]} if op == "LpPool" else {}
        shapes = [[1, 4, 6, 2], *[[4]] * (operands - 1)]
        refused(one_node(op, shapes, **more, **{counted: 0}), op, f"{counted}=0", "at least 1")
    refused(one_node("GatherND", [[2, 3], [2, 1]], batch_dims=-9), "batch_dims=-9", "0..1")
    refused(one_node("SpaceToDepth", [[1, 4, 6, 2]], blocksize=4), "blocksize=4", "[1, 4, 6, 2]")
    refused(one_node("MaxPool", [[1, 2, 3, 3]], kernel_shape=[2]), "kernel_shape=[2]", "2 values")
    model = one_node("Add", [[1], [1]])
    del model.graph.input[1]
    refused(model, "x1")
    cycle = one_node("Relu", [[1]])
    cycle.graph.node[0].input[0] = "y"
    refused(cycle, "y")


def test_shapes() -> None:
    model = one_node("Relu", [[1, 3]])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    refused(model, "input 'x0'", "dimension 0", "'batch'", "--shape x0=1,3")
    assert import_onnx(model, {"x0": (4, 3)}).tensor("y").shape == (4, 3)
    refused(model, "rank 2", shapes={"x0": (4,)})
    refused(model, "fixes it to 3", shapes={"x0": (4, 5)})
    refused(model, "'z'", "'x0'", shapes={"z": (4, 5)})


@pytest.mark.medium
@pytest.mark.parametrize("name", ["conv", "gemm", "concat", "movement", "silu", "resize_nearest", "max_pool"])
def test_flipped_and_cut(name: str) -> None:
    """Damaged bytes give a graph or a CompileError, never anything else."""
    data, rng = small(name).SerializeToString(), random.Random(name)
    for _ in range(400):
        damaged = bytearray(data)
        if rng.random() < 0.1:
            damaged = damaged[: rng.randrange(len(data))]
        else:
            for _ in range(rng.choice([1, 1, 2, 4])):
                damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            run_passes(import_onnx(bytes(damaged)))
        except CompileError as error:
            assert "\n" not in str(error)


def test_ir_version_3_need_not_list_its_initialisers_as_inputs() -> None:
    node = onnx.helper.make_node("Mul", ["x", "w"], ["y"])
    model = model_of([node], {"x": (3, 2)}, {"y": (3, 2)}, {"w": np.ones((3, 2), np.float32)}, opset=7)
    model.ir_version = 3
    assert import_onnx(model).inputs == ["x"]
