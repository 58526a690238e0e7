"""A program that leaves the NPU idle says why, and what to do."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tests.common.onnx_models import graph_of
from tests.reference.quantized_models import Model
from tilewright.compiler.graph.graph import DroppedChannels, Graph
from tilewright.compiler.stages.note_forms import SIXTEEN_BITS, UNUSED, general
from tilewright.compiler.stages.notes import notes_on
from tilewright.isa.config import PRESETS
from tilewright.isa.program import CpuStep


def network(kind: str) -> onnx.ModelProto:
    """A product with constant weights, in floats or quantised in some way."""
    w = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    values: dict[str, np.ndarray] = {"s": np.float32(0.03), "w": w}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    if kind == "dynamic":
        values = {"w": np.ones((16, 8), np.int8), "zw": np.int8(0)}
        nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
                 helper.make_node("MatMulInteger", ["q", "w", "qz", "zw"], ["i"]),
                 helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT)]  # fmt: skip
    elif kind != "float":
        values |= {"z": np.zeros((), kind), "wq": np.rint(w * 30).astype(np.int8), "ws": np.float32(1 / 30)}
        nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
                 helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
                 helper.make_node("DequantizeLinear", ["wq", "ws"], ["w"]),
                 helper.make_node("MatMul", ["d", "w"], ["m"]),
                 helper.make_node("QuantizeLinear", ["m", "s", "z"], ["mq"]),
                 helper.make_node("DequantizeLinear", ["mq", "s", "z"], ["y"])]  # fmt: skip
        del values["w"]
    graph = graph_of(nodes, {"x": [1, 16]}, {"y": [1, 8]})
    graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in values.items())
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    model.ir_version = 10
    return model


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("float", [UNUSED + "the model computes in floats"]),
        ("dynamic", [UNUSED + "the model is quantised while it runs (DynamicQuantizeLinear)"]),
        ("int16", [SIXTEEN_BITS + "2 tensors (the first is 'q')", UNUSED + "the activations have 16 bits"]),
        ("int8", []),
    ],
)
def test_notes(kind: str, said: list[str]) -> None:
    program = tw.compile_program(network(kind), cache=False)
    notes = general(program.notes)
    assert len(notes) == len(said) and all(note.startswith(text) for note, text in zip(notes, said)), notes
    assert bool(program.npu_macs) == (kind == "int8")
    assert any("hands on the sums" in note for note in program.notes) == (kind == "dynamic")
    assert all("tilewright quantize" in note for note in notes if note.startswith(UNUSED))


def test_left_out() -> None:
    program = tw.compile_program(network("int8"), cpu_only=True, cache=False)
    assert general(program.notes) == [UNUSED + "it is left out"]


@pytest.mark.parametrize("command", ["compile", "run", "info"])
def test_commands_show_them(command: str, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    from tilewright.cli import cli

    onnx.save(network("float"), tmp_path / "m.onnx")
    more = ["-o", str(tmp_path / "m.twp")] if command == "compile" else []
    with pytest.raises(SystemExit) as ended:
        cli.main([command, str(tmp_path / "m.onnx"), *more], prog_name="tilewright")
    assert not ended.value.code
    out = " ".join(capsys.readouterr().out.split())
    assert f"note: {UNUSED}" in out and "`tilewright quantize` makes" in out


@pytest.mark.medium
@pytest.mark.parametrize(
    ("op", "reason"),
    [
        ("Div", "a quotient of two tensors has 65,536 values, tables of the NPU 256"),
        ("CumSum", "onnxruntime rounds every one of its float sums before it adds the next"),
        ("ArgMax", "its results are places of 64 bits, those of the NPU are bytes"),
        ("ArgMin", "its results are places of 64 bits, those of the NPU are bytes"),
        ("Pow", "no rule is known by which integers give its bytes"),
        ("Pow Relu", "no rule is known by which integers give its bytes"),
        ("Mul", ""),
    ],
)
def test_single_ops_between_bytes_say_why(op: str, reason: str) -> None:
    """Notes name single ops behind layers of the NPU; they say nothing of what the NPU runs, and nothing wrong."""
    m = Model(np.uint8, seed=3)
    x = m.input((1, 8, 5, 5), 0.05)
    parts = [m.requantized(m.op("Conv", x, m.weights((16, 8, 1, 1))), 0.5, 0) for _ in range(2)]
    if op.startswith("Arg"):
        y = m.op(op, parts[0], axis=1)
    elif op == "CumSum":
        y = m.requantized(m.op(op, parts[0], m.const(np.array(1), np.int64)), 4.0, 0)
    else:
        op, _, activation = op.partition(" ")
        y = m.op(op, *parts)
        y = m.requantized(m.op(activation, y) if activation else y, 0.5, 0)
    m.output(y)
    proto = m.build()
    program = tw.compile_program(proto, "tiny", cache=False)
    said = [note for note in program.notes if "runs on the CPU" in note]
    assert [f" runs on the CPU: {reason}" in note for note in said] == [True] * bool(reason), program.notes
    on_cpu = {o.split()[0] for step in program.steps if isinstance(step, CpuStep) for o in step.ops}
    assert (op in on_cpu) == bool(reason)
    assert tw.check(proto, m.feeds(), config="tiny", cache=False).ok


@pytest.mark.parametrize(
    ("op", "activation", "bias", "reason"),
    [
        ("MatMul", "Relu", None, "it lies between two steps of the sums: integers would round more than one of 10,000"),
        ("MatMul", "Clip", None, "it lies between two steps of the sums: integers would round more than one of 10,000"),
        ("MatMul", "", None, ""),
        ("Conv", "", 1.37, "it lies between two steps of the sums: integers would round more than one of 10,000"),
        ("Conv", "Relu", 3, "it meets frequent ties: integers would round more than one of 10,000"),
        ("Conv", "Relu", 2e6, "it has more than 1,073,741,824 steps of the sums, which may wrap"),
        ("Conv", "Relu", 1, ""),
    ],
)
def test_biases_that_integers_cannot_hold_say_so(op: str, activation: str, bias: float | None, reason: str) -> None:
    """Float biases (None) and int32 ones of this many steps of the sums; behind nothing but a Relu, too."""
    m = Model(np.uint8, seed=5)
    x = m.input((2, 9, 12) if op == "MatMul" else (1, 12, 5, 5), 0.075, 129)
    shape = (12, 8) if op == "MatMul" else (8, 12, 3, 3)
    zero = m.const(0, np.int8)
    w = m.op("DequantizeLinear", m.const(m.rng.integers(-3, 4, shape), np.int8), m.const(0.25, np.float32), zero)
    values = m.rng.integers(-900, 900, 8)
    b = m.const(m.rng.normal(size=8), np.float32)
    if bias is not None:
        scale = np.float32(bias) * np.float32(np.float32(0.075) * np.float32(0.25))
        b = m.op("DequantizeLinear", m.const(values, np.int32), m.const(scale, np.float32))
    y = m.op("Add", m.op("MatMul", x, w), b) if op == "MatMul" else m.op("Conv", x, w, b)
    if activation:
        y = m.op(activation, y, *([m.const(0, np.float32), m.const(2, np.float32)] if activation == "Clip" else []))
    m.output(m.requantized(y, 0.013, 0))
    program = tw.compile_program(m.build(), "tiny", cache=False)
    said = [note for note in program.notes if " runs on the CPU: " in note]
    assert [f"onnxruntime adds its bias in floats, and {reason}" in note for note in said] == [True] * bool(reason)
    assert bool(program.npu_macs) == (not reason)


@pytest.mark.parametrize(("unread", "said"), [(0, ""), (12, " and 12 not read")])
def test_channels_that_are_not_computed(unread: int, said: str) -> None:
    graph = Graph()
    graph.dropped = DroppedChannels(976, unread, 1752, 7_490_000, 2_921_000)
    notes = notes_on(graph, [], PRESETS["base"], cpu_only=False)
    assert notes == [f"constant channels: 976 of 1,752 channels are constant{said}: 61 % of the MACs dropped"]
    assert general(notes) == notes
