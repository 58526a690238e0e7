"""The whole way with the real compiler: networks against onnxruntime, damage, forcing, the command line."""

import json

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper

import tilewright as tw
from tests.common.onnx_models import model_of
from tilewright import zoo
from tilewright.checking import model
from tilewright.cli import cli

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def resnet8() -> onnx.ModelProto:
    return zoo.build_quantized("resnet8", size=8)


FORMS = [("qdq", "int8"), ("qoperator", "uint8")]
#: Networks of which one form is enough.
OF_ONE_FORM = {"vww": FORMS[0], "segmentation": FORMS[1], "efficientnet": FORMS[1], "squeeze_excite": FORMS[0]}
EVERY = [
    pytest.param(name, *form, marks=[pytest.mark.long] * (OF_ONE_FORM.get(name, form) != form))
    for form in FORMS
    for name in ("resnet8", "autoencoder", "vww", "squeeze_excite", "efficientnet", "segmentation")
]


@pytest.mark.parametrize("name, form, activation", EVERY)
def test_every_quantised_tensor_equals_onnxruntime(name, form, activation):
    model = zoo.build_quantized(name, form=form, activation=activation, **zoo.ZOO[name].small)
    report = tw.check(model, keep="all")
    assert report.ok and report.mismatches == 0, report.summary()
    assert report.tensors > 10 and len(report.fused) < report.quantised / 4
    assert report.end_to_end["elements"] == 0


@pytest.mark.parametrize("name", ["deit", "bert", pytest.param("segformer", marks=pytest.mark.long)])
def test_attention_equals_onnxruntime(name):
    report = tw.check(zoo.build_quantized(name, **zoo.ZOO[name].small), keep="all")
    assert report.ok and report.mismatches == 0, report.summary()


@pytest.mark.parametrize(
    "file, effort",
    [
        ("resnet18_qdq", 0),
        *(
            pytest.param(file, 1, marks=pytest.mark.long)
            for file in ("resnet18_qdq", "mobilenet_v2_qdq", "mobilenet_v2_qoperator_u8", "vit_tiny_qdq")
        ),
    ],
)
def test_reference_models(models_dir, file, effort):
    report = tw.check(models_dir / f"{file}.onnx", keep="all", effort=effort)
    assert report.ok and report.mismatches == 0, report.summary()


@pytest.mark.parametrize("config", ["tiny", "small", "large"])
def test_other_configurations(resnet8, config):
    assert tw.check(resnet8, config=config, keep="all").ok


def test_kept_tensors_do_not_share_memory(resnet8):
    from tilewright.runtime.forcing import sharing

    program = tw.compile(resnet8, keep="all")
    kept = [t for t in program.tensors if t.buffer]
    assert len(kept) > 10
    assert [t.name for t in kept if sharing(program.buffers, t.buffer)] == []


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]


def test_one_wrong_weight_is_seen(resnet8, monkeypatch):
    program = tw.compile(resnet8)
    program.constants = flip(program.constants, len(program.constants) // 4)  # where weights are
    report = tw.check(resnet8, program=program)
    assert not report.ok

    real = model.compile_program

    def damaged(*args, **options):
        result = real(*args, **options)
        result.constants = flip(result.constants, len(result.constants) // 4)
        return result

    monkeypatch.setattr(model, "compile_program", damaged)
    report = tw.check(resnet8, keep="all")
    assert not report.ok
    first = next(r for r in report.rows if r.status == "mismatch")
    assert report.rows.index(first) > 0 and first.where == "npu"  # what comes before the damage is still equal


def test_runs_are_repeatable_and_independent(resnet8):
    program = tw.compile(resnet8)
    device = tw.Device("functional")
    a, b = tw.random_inputs(program, 1), tw.random_inputs(program, 2)
    first = device.run(program, a)
    device.run(program, b)
    again = device.run(program, a)
    assert {n: v.tobytes() for n, v in first.items()} == {n: v.tobytes() for n, v in again.items()}
    assert device.counters.macs >= program.npu_macs > 0.99 * program.macs


MOVES = [[], [("Transpose", {"perm": [0, 1, 3, 2]})], [("Transpose", {"perm": [0, 2, 3, 1]})] * 3]
"""Moves between the float ops and the border; the compiler moves integers there, and quantises before."""


def float_border(moves: list[tuple[str, dict[str, list[int]]]] | None = None) -> onnx.ModelProto:
    """x -> Softsign and Mul, which stay float -> moves -> border -> convolution -> y."""
    random = np.random.default_rng(0)
    moved = [
        helper.make_node(op, [f"g{i}" if i else "g"], [f"g{i + 1}"], **attributes)
        for i, (op, attributes) in enumerate(moves or [])
    ]

    weights = random.integers(-127, 128, (16, 16, 1, 1)).astype(np.int8)
    constants = {
        "s": np.float32(0.02), "z": np.int8(0), "so": np.float32(0.5), "w": weights, "sw": np.float32(0.01)
    }  # fmt: skip
    nodes = [
        helper.make_node("Softsign", ["x"], ["f"]),
        helper.make_node("Mul", ["f", "x"], ["g"]),
        *moved,
        helper.make_node("QuantizeLinear", [f"g{len(moved)}" if moved else "g", "s", "z"], ["border"]),
        helper.make_node("DequantizeLinear", ["border", "s", "z"], ["bd"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "z"], ["wd"]),
        helper.make_node("Conv", ["bd", "wd"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "so", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "so", "z"], ["y"]),
    ]
    shape = [1, 16, 6, 6]
    return model_of(nodes, {"x": shape}, {"y": shape}, constants, opset=18)


@pytest.mark.parametrize("moves", MOVES, ids=len)
def test_border_has_a_reason(moves):
    model = float_border(moves)
    program = tw.compile(model, keep="all")
    assert {t.name for t in program.tensors if t.reason and ".int8." not in t.name} == {"border"}
    report = tw.check(model, keep="all")
    assert report.ok and [name for name in report.borders if ".int8." not in name] == ["border"]


@pytest.mark.parametrize("moves", MOVES, ids=len)
def test_forced_border_reaches_the_npu(moves):
    model = float_border(moves)
    program = tw.compile(model, keep="all")
    device = tw.Device("functional")
    inputs = tw.random_inputs(program)
    device.run(program, inputs)
    before = device.tensors(["border", "q"])
    device.run(program, inputs, force={"border": np.zeros_like(before["border"])})
    assert not device.tensors(["q"])["q"].any() and before["q"].any()


def two_inputs() -> onnx.ModelProto:
    """c = a + b, a with an open size."""
    sizes = {"a": ["n", 4], "b": [4]}
    return model_of([helper.make_node("Add", ["a", "b"], ["c"])], sizes, {"c": ["n", 4]}, opset=18)


def tilewright(*args, code=0):
    result = CliRunner().invoke(cli, [*map(str, args)], prog_name="tilewright")
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_command_line(resnet8, tmp_path):
    model, program = tmp_path / "r.onnx", tmp_path / "r.twp"
    model.write_bytes(resnet8.SerializeToString())
    tilewright("compile", model, "-o", program)
    once, twice = (json.loads(tilewright("run", x, "--json", "-").stdout)["outputs"] for x in (model, program))
    assert once == twice
    found = json.loads(tilewright("run", model, "--check=all", "--json", "-").stdout)
    assert found["check"]["mismatches"] == 0 and found["npu_mac_fraction"] == 1.0 and found["model"] == "r"
    layers = json.loads(tilewright("info", program, "--json", "-").stdout)["layers"]
    assert sum(x["macs"] for x in layers) == found["macs"]
    listing = tilewright("disasm", program).stdout
    assert all(f"# layer {x['name']} " in listing for x in layers if x["count"])
    (tmp_path / "short.twp").write_bytes(program.read_bytes()[:5000])
    assert "damaged" in tilewright("run", tmp_path / "short.twp", code=2).stderr


def test_two_inputs_and_open_shape(tmp_path):
    model = tmp_path / "sum.onnx"
    model.write_bytes(two_inputs().SerializeToString())
    assert "1 here; --shape a=N,4 gives another" in " ".join(tilewright("run", model).output.split())
    a, b = np.ones((3, 4), np.float32), np.arange(4, dtype=np.float32)
    np.savez(tmp_path / "in.npz", a=a, b=b)
    tilewright("run", model, tmp_path / "in.npz", "--shape", "a=3,4", "--check", "--output", tmp_path / "out")
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "c.npy"), a + b)
    np.save(tmp_path / "a.npy", a)
    assert "write NAME=" in tilewright("run", model, tmp_path / "a.npy", "--shape", "a=3,4", code=2).stderr
    given = ("run", model, "--input", f"a={tmp_path / 'a.npy'}", "--shape", "a=3,4")
    assert "missing input 'b'" in tilewright(*given, code=2).stderr
    tilewright(*given, "--random", 3)


def test_print_after(resnet8, tmp_path):
    model = tmp_path / "r.onnx"
    model.write_bytes(resnet8.SerializeToString())
    out = tmp_path / "r.twp"
    assert "QConv" in tilewright("compile", model, "-o", out, "--print-after", "fuse_quantization").stdout
    result = tilewright("compile", model, "-o", tmp_path / "no.twp", "--print-after", "nope", code=2)
    assert "fuse_quantization" in result.stderr and not (tmp_path / "no.twp").exists()
